"""What a rule on a job is: a module with a function `check`, and a page, both named after it.

`check` reads facts about all ranks, and answers as rules on one trace do.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from tb_gpudiag.rules.rule import AnyRule, RuleAnswer

if TYPE_CHECKING:
    from tb_gpudiag.jobs.ranks.job_facts import JobFacts


class JobCheck(Protocol):
    """Look at the facts and answer."""

    def __call__(self, facts: JobFacts, /) -> RuleAnswer: ...


@dataclass(frozen=True)
class JobRule(AnyRule):
    """A rule on a job. Shares are of the step window: the median over the ranks."""

    @property
    def package(self) -> str:
        return "tb_gpudiag.jobs.rules"

    @property
    def check(self) -> JobCheck:
        """The module's function. It is imported on use: `gpudiag explain` needs no digests."""
        return cast(JobCheck, import_module(f"{self.package}.{self.name}").check)
