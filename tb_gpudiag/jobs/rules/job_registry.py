"""The rules on jobs.

A rule on a job is a module with a function `check`, and a page, both named after the rule. `check` reads
facts about all ranks, and answers as rules on one trace do.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import RuleAnswer, Severity
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.vocabulary import levels

if TYPE_CHECKING:
    from tb_gpudiag.jobs.ranks.job_facts import JobFacts


@dataclass(frozen=True)
class JobRule(AnyRule):
    """A rule on a job. Shares are of the step window: the median over the ranks."""

    @property
    def package(self) -> str:
        return "tb_gpudiag.jobs.rules"

    @property
    def check(self) -> Callable[[JobFacts], RuleAnswer]:
        """The module's function, imported on use: `gpudiag explain` needs no digests."""
        return import_module(f"{self.package}.{self.name}").check


JOB_RULES: tuple[JobRule, ...] = (
    JobRule("GD602", "slow_rank", "Slow rank", error_share=levels.LARGE, topic="slow rank"),
    JobRule("GD603", "uneven_work", "Uneven work", error_share=levels.LARGE, topic="uneven work"),
    JobRule("GD604", "slow_link", "Slow network or link", error_share=levels.LARGE),
    JobRule("GD605", "mismatched_collectives", "Mismatched collectives"),
    JobRule("GD606", "late_recording", "Late start of a recording", severity=Severity.INFO),
    JobRule("GD607", "communication_overlap", "Communication that could overlap", error_share=levels.LARGE),
    JobRule("GD608", "small_collectives", "Many small collectives", error_share=levels.LARGE),
    JobRule("GD609", "long_transfers", "Transfers that nothing hides", severity=Severity.INFO),
    JobRule("GD610", "pipeline_bubble", "Bubbles of a pipeline", error_share=levels.HALF),
)

ABOUT_LATE_RANKS = ("slow rank", "uneven work")
"""Topics of rules that tell which ranks the others wait for."""
