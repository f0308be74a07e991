"""What a rule on a job is. It reads facts about all ranks, and answers as rules on one trace do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.rules.rule import Answer, AnyRule


class JobCheck(Protocol):
    """Look at the facts and answer."""

    def __call__(self, facts: JobFacts, /) -> Answer: ...


@dataclass(frozen=True)
class JobRule(AnyRule):
    """A rule on a job. Shares are of the step window: the median over the ranks."""

    check: JobCheck

    @property
    def package(self) -> str:
        return "tb_gpudiag.jobs.rules"
