"""GD610: stages of a pipeline that wait for micro-batches."""

from __future__ import annotations

import math
from typing import Final

from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.pipeline import Pipeline
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Fix, RuleAnswer, Saving, Severity
from tb_gpudiag.rules.rule import fix_code, page_fixes
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.collective_kinds import PIPELINE
from tb_gpudiag.wording.format import count, share
from tb_gpudiag.wording.quantity import duration, number, share_of

CODE = fix_code(__name__)
FIXES = page_fixes(__name__)

# Four micro-batches for each stage leave a bubble of up to 20%, which those who train large models accept.
LEAST_SHARE = 0.25

# With this little of a bubble left, more micro-batches gain hardly anything.
GOAL_SHARE = levels.SIZEABLE

STAGES_SHOWN: Final = 3


def check(facts: JobFacts) -> RuleAnswer:
    """Find stages that have nothing to compute for much of the time."""
    found = facts.pipeline
    if found is None:
        if PIPELINE in facts.parallelism:
            return CannotTell(
                "messages do not say which ranks they are between", "Record with record_shapes=True."
            )
        return Clear("no messages between the stages of a pipeline")
    bubble, ideal = found.bubble_share, found.ideal_share
    if bubble < LEAST_SHARE:
        at_best = f", {share(ideal)} at best" if ideal is not None and ideal <= bubble else ""
        return Clear(f"stages of the pipeline wait {share(bubble)} of the time{at_best}")
    window_ns, steps = facts.job_ns, max(1, found.steps)
    cost_ns = int(bubble * window_ns)
    schedule = "The order of forward and backward passes does not show the schedule."
    if ideal is not None:
        schedule = (
            f"{found.schedule} with {count(found.batches, 'micro-batch', 'micro-batches')} on "
            f"{count(found.depth, 'stage')} waits {share(ideal)} of the time even if all stages take equally "
            "long."
        )
    return Finding(
        title=f"Stages of the pipeline wait {share(bubble)} of the time",
        summary=f"A stage that waits for a micro-batch computes nothing. {schedule}",
        fix=_fix(found, bubble),
        cost_ns=cost_ns,
        saving=Saving(0, int(max(0.0, bubble - GOAL_SHARE) * window_ns), "at most"),
        # Ranks that share cores wait for those, too.
        severity=Severity.INFO.when(not facts.on_gpu),
        evidence=[
            Evidence.of_window("Bubble, mean over the stages", cost_ns, window_ns),
            *([Evidence("At best, with equal stages", share_of(ideal, 1))] if ideal is not None else []),
            *Evidence.some("Micro-batches in a step", number(found.batches)),
            *(
                Evidence(
                    f"Stage {stage.stage} (rank {facts.set.ranks[stage.member]})",
                    duration(stage.computing_ns / steps, "computing per step"),
                    (
                        duration(stage.warm_up_ns / steps, "waiting before its first micro-batch"),
                        duration(stage.between_ns / steps, "between"),
                        duration(stage.drain_ns / steps, "after its last"),
                    ),
                )
                for stage in sorted(found.stages, key=lambda one: -one.computing_ns)[:STAGES_SHOWN]
            ),
        ],
    )


def _fix(found: Pipeline, bubble: float) -> Fix:
    """More micro-batches if the schedule has most of the bubble, equal stages otherwise."""
    ideal = found.ideal_share
    if ideal is None or 2 * ideal >= bubble:
        wanted = math.ceil((found.depth - 1) * (1 / GOAL_SHARE - 1) / found.chunks)
        return Fix(
            f"Split the batch into more micro-batches: {wanted:,} leave a bubble of {share(GOAL_SHARE)}. Or "
            "put several stages on each rank (interleaved 1F1B).",
            CODE["micro_batches"],
            "https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
        )
    return FIXES["balance"]
