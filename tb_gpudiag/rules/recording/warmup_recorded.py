"""GD902: the first recorded steps are still warming up."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import (
    NOTHING_CLAIMED,
    Answer,
    CannotTell,
    Claimed,
    Clear,
    Evidence,
    Finding,
    Range,
    Rule,
    Severity,
)
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.rules.shared.slow_start import leading_slow_steps
from tb_gpudiag.wording.format import share, time_ns

# From here on the warm-up is so much of the step window that the window's figures are about it, and not about
# training.
SPOILS_SHARE = 0.25

# With fewer there is no steady state to compare with.
FEWEST_STEPS = 3


def check(facts: Facts, _claimed: Claimed = NOTHING_CLAIMED) -> Answer:
    """Steps from the end of the GPU work of the one before to the end of their own: a host that runs ahead
    says nothing about how long they take."""
    steps = facts.step_times
    if steps is None or len(steps) < FEWEST_STEPS:
        known = len(steps) if steps is not None else 0
        return CannotTell(
            f"it takes {FEWEST_STEPS} steps to tell a warm-up, and the trace has {known}",
            "Record at least three steps after warming up: schedule(wait=1, warmup=2, active=6).",
        )
    start_ns, end_ns = steps.times.start_ns, steps.times.end_ns
    length_ns = end_ns - start_ns
    if np.median(length_ns) <= 0:
        return CannotTell("most steps have no GPU work in the trace")
    slow, steady_ns = leading_slow_steps(length_ns)
    if not slow:
        return Clear(f"the first step took {time_ns(int(length_ns[0]))}, the median one {time_ns(steady_ns)}")
    extra_ns = int(length_ns[:slow].sum() - slow * steady_ns)
    window_ns = facts.window.duration_ns
    return Finding(
        title=f"The first step took {length_ns[0] / steady_ns:.1f} times as long as the later ones",
        summary=(
            "The recording began before the job was warm. Compilation, autotuning and first allocations "
            "happen once; the figures over the step window contain them as if they happened in every step."
        ),
        fix=record_again("Skip more steps before recording: raise wait and warmup in the schedule."),
        evidence=[
            Evidence("first step", time_ns(int(length_ns[0]))),
            Evidence("slow steps", f"{slow} of {len(length_ns)}"),
            Evidence("median of the steady steps", time_ns(steady_ns)),
            Evidence("extra time in the step window", f"{time_ns(extra_ns)} ({share(extra_ns, window_ns)})"),
        ],
        ranges=[
            Range(int(start_ns[0]), int(end_ns[slow - 1]), facts.device.id if facts.device else NO_DEVICE)
        ],
        severity=Severity.WARNING if extra_ns >= SPOILS_SHARE * window_ns else None,
    )


RULE = Rule("GD902", "warmup_recorded", "Warm-up recorded", check, severity=Severity.INFO)
