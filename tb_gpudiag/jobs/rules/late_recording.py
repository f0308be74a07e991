"""GD606: ranks that started to record later than the others, so that all waited for them once."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import NOT_MATCHED, capitalized, culprits_text
from tb_gpudiag.rules.rule import Answer, CannotTell, Clear, Evidence, Finding, Fix
from tb_gpudiag.trace.events import Int64
from tb_gpudiag.wording.format import share, time_ns
from tb_gpudiag.wording.quantity import duration

# A start that is late by less hardly changes a figure.
LEAST_SHARE = 0.02
LEAST_NS = 500_000

# The late start explains the wait if arrivals differ by at most this much of it when they count from each
# rank's own start.
UNEXPLAINED = 0.5

# Offsets of clocks have to be surer than what is judged with them.
CLOCK = 0.25


def late_by_ns(facts: JobFacts) -> int:
    """How much of the wait in the first collective is due to late starts; 0 if it is not."""
    starts = facts.starts
    late = starts.skew_ns - starts.own_skew_ns
    if starts.collective < 0 or starts.own_skew_ns > UNEXPLAINED * starts.skew_ns:
        return 0
    if np.isfinite(facts.clocks.residual_ns) and facts.clocks.residual_ns > CLOCK * starts.skew_ns:
        return 0
    return late if late >= max(LEAST_NS, LEAST_SHARE * facts.job_ns) else 0


def check(facts: JobFacts) -> Answer:
    """Compare arrivals at the first collective with the starts of the recordings."""
    starts, clocks = facts.starts, facts.clocks
    if starts.collective < 0:
        return NOT_MATCHED
    late_ns = late_by_ns(facts)
    if not late_ns:
        if clocks.residual_ns > CLOCK * starts.skew_ns and starts.skew_ns >= LEAST_SHARE * facts.job_ns:
            return CannotTell(
                f"clocks agree within {time_ns(clocks.residual_ns)} only, too little to compare arrivals "
                f"that differ by {time_ns(starts.skew_ns)}",
                "Synchronize the hosts' clocks (PTP or chrony), or record more steps.",
            )
        return Clear(f"at the first collective, ranks arrive within {time_ns(starts.skew_ns)} of one another")
    members = _late_members(facts, late_ns)
    who = culprits_text(facts, members)
    several = len(members) > 1
    return Finding(
        title=f"{capitalized(who)} started to record {time_ns(late_ns)} later than the first rank",
        summary=f"In the first collective the others wait {time_ns(starts.skew_ns)} for "
        f"{'them' if several else 'it'}. Counted from each rank's own start, arrivals differ by "
        f"{time_ns(starts.own_skew_ns)} only: the recording is the reason, not the job. The first "
        "collective is not counted against any rank.",
        fix=_FIX,
        cost_ns=0,
        evidence=[
            Evidence("First to last arrival", duration(starts.skew_ns)),
            Evidence("Counted from own start", duration(starts.own_skew_ns)),
            Evidence(
                "Share of step window", share(starts.skew_ns, facts.job_ns), ("in the first collective",)
            ),
        ],
    )


def _late_members(facts: JobFacts, late_ns: int) -> Int64:
    """Members that started later than half of the way from the first start to the last one."""
    start = facts.starts.start_ns
    waits = facts.waits
    begin, end = waits.bounds[facts.starts.collective], waits.bounds[facts.starts.collective + 1]
    own = np.sort(waits.member[begin:end]).astype(np.int64)
    late: Int64 = own[start[own] >= start[own].max() - late_ns // 2]
    return late


_FIX = Fix(
    "Start the recordings together: step the profiler in the same step on all ranks, after a barrier.",
    """with torch.profiler.profile(schedule=schedule(wait=5, warmup=2, active=5), ...) as profiler:
    for batch in loader:
        train_step(batch)
        torch.distributed.barrier()       # only while you record
        profiler.step()""",
    "https://docs.pytorch.org/docs/stable/profiler.html",
)
