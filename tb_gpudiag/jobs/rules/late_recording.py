"""GD606: ranks that started to record later than the others, so that all waited for them once."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import AGREEING, capitalized, culprits_text, ranks_evidence
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, RuleAnswer
from tb_gpudiag.rules.rule import page_fixes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import share, time_ns
from tb_gpudiag.wording.quantity import duration

FIXES = page_fixes(__name__)

# Recordings of ranks that step their profilers together start within 0.5 ms of one another. A start that is
# late by a small part of a step hardly changes a figure.
LEAST_SHARE = levels.NOTICEABLE
LEAST_NS = 800_000

# The late start explains the wait if all but this much of it is the difference between the starts.
UNEXPLAINED = levels.HALF

# Offsets of clocks have to be surer than what is judged with them.
CLOCK = levels.LARGE


def late_collective(facts: JobFacts) -> int:
    """The first collective in which ranks wait for a recording that started late; NONE if there is none."""
    starts, waits = facts.starts, facts.waits
    found = starts.explained(waits, UNEXPLAINED)
    if found == NONE or starts.later_ns[found] < max(LEAST_NS, LEAST_SHARE * _step_ns(facts)):
        return NONE
    residual = facts.clocks.residual_ns
    return NONE if np.isfinite(residual) and residual > CLOCK * waits.skew_ns[found] else found


def _step_ns(facts: JobFacts) -> float:
    return facts.job_ns / max(1, len(facts.own_time.steps))


def check(facts: JobFacts) -> RuleAnswer:
    """Compare arrivals at the first collectives with the starts of the recordings."""
    starts, waits, residual = facts.starts, facts.waits, facts.clocks.residual_ns
    found = late_collective(facts)
    if found == NONE:
        most = int(waits.skew_ns[starts.first].max())
        if residual > CLOCK * most and most >= LEAST_SHARE * _step_ns(facts):
            return CannotTell(
                f"clocks agree within {time_ns(residual)} only, too little to compare arrivals that "
                f"differ by {time_ns(most)}",
                "Synchronize the hosts' clocks (PTP or chrony), or record more steps.",
            )
        return Clear(
            f"ranks arrive at their first collective within {time_ns(most)} of one another, and no "
            "late start explains that"
        )
    skew_ns, late_ns = int(waits.skew_ns[found]), int(starts.later_ns[found])
    members = _late_members(facts, found)
    who, several = culprits_text(facts, members), len(members) > 1
    return Finding(
        title=f"{capitalized(who)} started to record {'up to ' if several else ''}{time_ns(late_ns)} later "
        "than the first rank",
        summary=f"In the first collective the others wait {time_ns(skew_ns)} for "
        f"{AGREEING[several].it}. Counted from each rank's own start, arrivals differ by "
        f"only {time_ns(abs(skew_ns - late_ns))}, so the reason is the recording, not the job. The first "
        "collective is not counted against any rank.",
        fix=FIXES["barrier"],
        records_again=True,
        evidence=[
            ranks_evidence(facts, members),
            Evidence("First to last arrival", duration(skew_ns)),
            Evidence("Counted from own start", duration(abs(skew_ns - late_ns))),
            Evidence("Share of step window", share(skew_ns, facts.job_ns), ("in the first collective",)),
        ],
    )


def _late_members(facts: JobFacts, collective: int) -> Int64:
    """Members that started later than half of the way from the first start to the last one."""
    start, waits = facts.starts.start_ns, facts.waits
    own = np.sort(waits.member[waits.bounds[collective] : waits.bounds[collective + 1]]).astype(np.int64)
    return own[start[own] >= start[own].max() - facts.starts.later_ns[collective] // 2]
