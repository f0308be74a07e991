"""What a job saves if its ranks no longer send something."""

from __future__ import annotations

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.rules.answer import Saving
from tb_gpudiag.rules.savings import REST_IS_FASTER, with_faster_rest


def at_most(facts: JobFacts, freed_ns: int, *, sure_ns: int = 0, beyond: str = "") -> Saving:
    """Return what a fix saves at most that frees this much of the ranks' time. On a CPU, the rest gets
    faster, too.

    sure_ns: transfers that the job does not need, while nothing computes. On a CPU, all ranks are in them,
    and do without them what they do now. A GPU's host may take as long for its other work: nothing is sure.
    """
    if facts.on_gpu:
        return Saving(0, min(freed_ns, facts.job_ns), "at most", beyond)
    most_ns = max(with_faster_rest(freed_ns, facts.job_ns), min(freed_ns + facts.slowed_ns, facts.job_ns))
    also = f"{beyond}, and {REST_IS_FASTER}" if beyond else REST_IS_FASTER
    return Saving(min(sure_ns, most_ns), most_ns, "estimate", also)
