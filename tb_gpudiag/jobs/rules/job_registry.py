"""The rules on jobs.

A rule on a job is a module with a function `check`, and a page, both named after the rule. `check` reads
facts about all ranks, and answers as rules on one trace do.
"""

from __future__ import annotations

from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.rules.job_words import not_matched, ranks_absent
from tb_gpudiag.rules.answer import RuleAnswer, Severity
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.recorded import FileKind

if TYPE_CHECKING:
    from tb_gpudiag.jobs.ranks.job_facts import JobFacts


@dataclass(frozen=True)
class JobRule(AnyRule):
    """A rule on a job. Shares are of the step window: the median over the ranks.

    compares: what of matched collectives it needs. Waiting for a rank without a trace looks like transfer.
    about: the files of the ranks that it applies to.
    """

    compares: Literal["", "arrivals", "transfers"] = field(default="arrivals", kw_only=True)
    about: FileKind = field(default="trace", kw_only=True)

    @property
    def package(self) -> str:
        return "tb_gpudiag.jobs.rules"

    def check(self, facts: JobFacts) -> RuleAnswer:
        """Answer by the facts, or say what the recordings lack."""
        if self.compares and not len(facts.waits):
            return not_matched(facts)
        if self.compares == "transfers" and facts.waits_for_absent:
            return ranks_absent()
        # Imported on use: `gpudiag explain` needs no digests.
        answer: RuleAnswer = import_module(f"{self.package}.{self.name}").check(facts)
        return answer


JOB_RULES: tuple[JobRule, ...] = (
    JobRule("GD602", "slow_rank", "Slow rank", error_share=levels.LARGE, topic="slow rank"),
    JobRule("GD603", "uneven_work", "Uneven work", error_share=levels.LARGE, topic="uneven work"),
    JobRule("GD604", "slow_link", "Slow network or link", error_share=levels.LARGE, compares="transfers"),
    JobRule("GD605", "mismatched_collectives", "Mismatched collectives", compares=""),
    JobRule("GD606", "late_recording", "Late start of a recording", severity=Severity.INFO),
    JobRule(
        "GD607",
        "communication_overlap",
        "Communication that could overlap",
        error_share=levels.LARGE,
        compares="transfers",
    ),
    JobRule(
        "GD608", "small_collectives", "Many small collectives", error_share=levels.LARGE, compares="transfers"
    ),
    JobRule(
        "GD609",
        "long_transfers",
        "Transfers that nothing hides",
        severity=Severity.INFO,
        compares="transfers",
    ),
    JobRule("GD610", "pipeline_bubble", "Bubbles of a pipeline", error_share=levels.HALF),
    JobRule(
        "GD611",
        "rank_out_of_memory",
        "Ranks that ran out of memory",
        severity=Severity.ERROR,
        compares="",
        about="snapshot",
    ),
)

ABOUT_LATE_RANKS = ("slow rank", "uneven work")
"""Topics of rules that tell which ranks the others wait for."""
