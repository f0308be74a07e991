"""GD610: stages of a pipeline that wait because too few microbatches are under way."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.rules.job_words import capitalized, not_matched, ranks_text
from tb_gpudiag.rules.fix_code import fix_code
from tb_gpudiag.rules.rule import Clear, Evidence, Finding, Fix, RuleAnswer, Saving
from tb_gpudiag.wording.format import count, share
from tb_gpudiag.wording.quantity import duration, number

CODE = fix_code(__name__)

# Even stages wait for (p - 1) / (m + p - 1) of a step with p stages and m microbatches (GPipe, Huang et al.
# 2019, whose authors call the bubble negligible from m = 4p on). With 4p of them that is below this share.
LEAST_SHARE = 0.20

STAGES_SHOWN: Final = 8


def check(facts: JobFacts) -> RuleAnswer:
    """Find pipelines whose busiest stage waits for long: what others wait more is due to uneven stages."""
    if not len(facts.waits):
        return not_matched(facts)
    stages = [np.flatnonzero(facts.stages == stage) for stage in range(int(facts.stages.max()) + 1)]
    if len(stages) < 2:
        return Clear("the ranks are no stages of a pipeline")
    waiting, window_ns = facts.bubbles.waiting_ns, facts.job_ns
    # A stage is as fast as its slowest replica, which waits least.
    least = np.array([waiting[stage].min() for stage in stages])
    lost_ns, busiest = int(least.min()), stages[int(least.argmin())]
    if lost_ns < LEAST_SHARE * window_ns:
        return Clear(f"the busiest of {count(len(stages), 'stage')} waits {share(lost_ns, window_ns)}")
    microbatches = facts.bubbles.microbatches
    who = ranks_text(facts.ranks(busiest))
    return Finding(
        title=f"Every stage of the pipeline waits at least {share(lost_ns, window_ns)} of the time",
        summary=f"{count(len(stages), 'stage')} share {count(microbatches, 'microbatch', 'microbatches')} "
        "per step, and wait while the pipeline fills and drains. "
        f"{capitalized(who)} waits least; what the others wait on top is due to uneven stages.",
        fix=_FIX,
        cost_ns=lost_ns,
        saving=Saving(0, lost_ns, "at most"),
        evidence=[
            Evidence.of_window("Waiting of the busiest stage", lost_ns, window_ns),
            Evidence("Microbatches per step", number(microbatches)),
            *(
                Evidence.of_window(f"Stage {i}: {ranks_text(facts.ranks(stage))} waits", int(ns), window_ns)
                for i, (stage, ns) in enumerate(zip(stages[:STAGES_SHOWN], least, strict=False))
            ),
            *_even(len(stages), microbatches, facts),
        ],
    )


def _even(stages: int, microbatches: int, facts: JobFacts) -> list[Evidence]:
    """Say what a pipeline of even stages waits with so many microbatches, and with twice as many."""
    if not microbatches:
        return []
    now, twice = ((stages - 1) / (m + stages - 1) for m in (microbatches, 2 * microbatches))
    window_ns = facts.job_ns
    return [
        Evidence("Even stages would wait", duration(now * window_ns), (share(now),)),
        Evidence("With twice the microbatches", duration(twice * window_ns), (share(twice),)),
    ]


_FIX = Fix(
    "Split the batch into more microbatches, about four for each stage, or use an interleaved or zero-bubble "
    "schedule.",
    CODE["microbatches"],
    "https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
)
