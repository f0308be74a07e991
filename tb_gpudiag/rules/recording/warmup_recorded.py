"""GD902: the first recorded steps are still warming up."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.steady import MOST, leading_slow_steps
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.stepping.variance import optimizer_only_in
from tb_gpudiag.rules.answer import CannotTell, Clear, Evidence, Finding, Range, RuleAnswer, Severity
from tb_gpudiag.rules.doubts import not_comparable
from tb_gpudiag.rules.rule import Claimed, Rule
from tb_gpudiag.rules.shared.grown_parts import what_grew
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE, lost_time, split_window
from tb_gpudiag.rules.shared.odd_recordings import capture_ns, capture_sentence, first_run_parts
from tb_gpudiag.rules.shared.recording_advice import record_again
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import around
from tb_gpudiag.wording.quantity import duration, number, ratio, share_of

# From here on the warm-up takes so much of the window that the figures describe it instead of training.
SPOILS_SHARE = levels.LARGE

# With fewer steps there is no steady state to compare with.
FEWEST_STEPS = 3

_INCLUDED = "The figures over the step window include them."
_LEFT_OUT = "The step window leaves these steps out."


def check(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    """Compare the first steps with the later ones.

    With a GPU, a step lasts from the end of the previous step's GPU work to the end of its own: a host that
    runs ahead says nothing about how long steps take.
    """
    if said := capture_sentence(facts):
        return _only_capture(said, facts)
    if facts.steady.mostly is Cause.INITIALIZATION or _is_largest_part(facts):
        return _first_run(facts, facts.gpu)
    if facts.on_cpu and (once := _first_run_on_cpu(facts)) is not None:
        return once
    return not_comparable(facts) or _first_steps(facts)


def _first_steps(facts: Facts) -> RuleAnswer:
    steps = facts.step_times
    if len(steps) < FEWEST_STEPS:
        return CannotTell(
            f"recognizing a warm-up takes {FEWEST_STEPS} steps, and the trace has {len(steps)}",
            "Record at least three steps after the warm-up: schedule(wait=5, warmup=2, active=6).",
        )
    start_ns, end_ns = steps.times.start_ns, steps.times.end_ns
    length_ns = steps.length_ns
    if facts.device is not None and not np.median(steps.work):
        return CannotTell("the trace has no GPU work for most steps")
    slow, steady_ns = leading_slow_steps(length_ns)
    if not slow or optimizer_only_in(facts.host, steps, np.arange(len(steps)) < slow):
        return Clear(f"the first step took {duration(length_ns[0])}, the median step {duration(steady_ns)}")
    at = np.arange(len(steps))
    main, _, cause = next(iter(what_grew(steps, at[:slow], at[slow:])), ("nothing by itself", 0, None))
    if cause is Cause.WAITING:
        return Clear(f"the first step is slower by {main}, which is no warm-up")
    slowdown = ratio(length_ns[0] / steady_ns, "the median")
    extra_ns = int(length_ns[:slow].sum() - slow * steady_ns)
    window_ns = facts.recorded_window.duration_ns
    included = not facts.steady.first
    return Finding(
        title=f"The first step took {slowdown} of the later steps",
        summary=(
            f"The recording began before the job was in a steady state: {main} grew most. "
            f"{_INCLUDED if included else _LEFT_OUT}"
        ),
        fix=record_again("Skip more steps before recording: increase wait and warmup in the schedule."),
        evidence=[
            Evidence("First step", duration(length_ns[0]), (slowdown,)),
            Evidence("Median of the later steps", duration(steady_ns)),
            Evidence("Slow steps", number(slow, suffix=f"of {len(length_ns)}")),
            Evidence(
                "Extra time", duration(extra_ns), (share_of(extra_ns, window_ns, "of the recorded steps"),)
            ),
        ],
        ranges=[
            Range(int(start_ns[0]), int(end_ns[slow - 1]), facts.device.id if facts.device else NO_DEVICE)
        ],
        severity=Severity.WARNING.when(included and extra_ns >= SPOILS_SHARE * window_ns),
    )


def _only_capture(said: str, facts: Facts) -> Finding:
    recorded_ns = facts.recorded_window.duration_ns
    return Finding(
        title="Only the capture of a graph was recorded",
        summary=said,
        fix=record_again("To see the job at work, record steps after the capture: they launch the graph."),
        evidence=[
            Evidence(
                "Capturing",
                duration(capture_ns(facts)),
                (share_of(capture_ns(facts), recorded_ns, "of the recording"),),
            ),
            Evidence("Captured launches", number(len(facts.captures.launches))),
        ],
        leads=True,
    )


def _is_largest_part(facts: Facts) -> bool:
    """Whether first-run work takes more of the step window than anything else, and no steps show the rest."""
    device = facts.device
    if device is None or len(facts.steps) >= FEWEST_STEPS:
        return False
    parts = split_window(device.window_account, lost_time(facts), device.lost.total)
    others = max(parts.computing_ns, SPOILS_SHARE * parts.window_ns, *parts.by_limiter.values())
    return parts.initialization_ns >= others


def _first_run(facts: Facts, device: DeviceFacts) -> Finding:
    first_run_ns = device.ledger.by_cause(device.window)[Cause.INITIALIZATION]
    cold = share_of(first_run_ns, device.window.duration_ns, "of the recording")
    listed = ", ".join(map(" ".join, first_run_parts(facts)))
    return Finding(
        title=f"First-run work takes {cold}",
        summary=(
            f"The GPU was idle during work that happens once{around(': ', listed)}. Nothing here shows "
            "how fast the job is in its steady state."
        ),
        fix=record_again("Run a few steps before recording: increase wait and warmup in the schedule."),
        evidence=[Evidence("Idle during first-run work", duration(first_run_ns), (cold,))],
        severity=Severity.WARNING,
        leads=True,
    )


def _first_run_on_cpu(facts: Facts) -> Finding | None:
    """The finding about a job without a GPU; None unless first-run work takes most of the recording."""
    lost = lost_time(facts)
    chosen = lost.of(Cause.INITIALIZATION)
    once_ns = lost.total_ns(chosen)
    if once_ns < max(1, MOST * lost.window_ns):
        return None
    cold = share_of(once_ns, lost.window_ns, "of the recording")
    what = "First-run work"
    text = "Run a few steps before recording: increase wait and warmup in the schedule."
    if len(facts.loader_starts.once) > 0:
        what = "Starting a data loader"
        text = f"For a batch or two, use num_workers=0: starting and stopping workers takes longer. {text}"
    return Finding(
        title=f"{what} takes {cold}",
        summary="The main thread did what happens once. Nothing here shows how fast the job is in its steady "
        "state.",
        fix=record_again(text),
        evidence=[Evidence("First-run work", duration(once_ns), (cold,))],
        ranges=lost.ranges(chosen),
        severity=Severity.WARNING,
    )


RULE = Rule("GD902", "warmup_recorded", "Warm-up recorded", check, severity=Severity.INFO)
