"""Correct findings about the host for what recording Python frames costs it."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.waiting.overhead import LEAST, MOST
from tb_gpudiag.rules.answer import Evidence, Finding, Severity
from tb_gpudiag.rules.shared.lost_time import NO_DEVICE, Lost
from tb_gpudiag.rules.shared.trusted_replay import trusted_replay
from tb_gpudiag.wording.format import count, share, time_ns
from tb_gpudiag.wording.quantity import duration

# Less than this does not change what a finding says.
LEAST_PART = 0.05


def with_recording_overhead(
    found: Finding, facts: Facts, lost: Lost, chosen: Bool, error_share: float
) -> Finding:
    """Add the estimated overhead and the corrected share, if Python frames were recorded in the finding's
    time.

    The finding is an ERROR only if it would still be one after subtracting the largest estimate. chosen: mask
    of the finding's time. error_share: from which share on its rule makes it an ERROR.
    """
    cost, stretches = facts.recorder_cost, lost.stretches(chosen)
    frames = cost.frames(stretches)
    if not cost.frame_starts_ns.size:
        return found
    least_ns = cost.spent_ns(stretches, LEAST)
    # Without a GPU, the time is the main thread's own.
    spent = cost.spent_ns if lost.device == NO_DEVICE else cost.delayed_ns
    most_ns = max(least_ns, spent(stretches, MOST))
    if lost.device != NO_DEVICE and trusted_replay(facts) is not None:
        # The whole window is not shorter than the replay without the recorder.
        most_ns = min(most_ns, max(0, lost.window_ns - facts.unslowed.least_ns))
        least_ns = min(least_ns, most_ns)
    if most_ns < LEAST_PART * found.cost_ns:
        return found
    low, high = _corrected(found.cost_ns, most_ns, lost), _corrected(found.cost_ns, least_ns, lost)
    inflated = lost.share(found.cost_ns) >= error_share > low
    return replace(
        found,
        summary=f"{found.summary} Recording frames and operators takes an estimated {time_ns(least_ns)} "
        f"to {time_ns(most_ns)} of this: without it, the share is about {share(low)} to {share(high)}.",
        evidence=[
            *found.evidence,
            Evidence(
                "Recording overhead, estimated",
                duration(least_ns, "at least"),
                (
                    duration(most_ns, f"at most ({share(most_ns, found.cost_ns)} of this time)"),
                    f"for {_events(frames, cost.operators(stretches))}",
                ),
            ),
        ],
        severity=Severity.WARNING if inflated and found.severity is None else found.severity,
    )


def _events(frames: int, operators: int) -> str:
    counted = ((frames, "Python frame"), (operators, "operator"))
    return " and ".join(count(events, kind) for events, kind in counted if events or kind == "Python frame")


def _corrected(cost_ns: int, overhead_ns: int, lost: Lost) -> float:
    """Share of the step window without the overhead, which makes the window shorter as well."""
    window_ns = lost.window_ns - overhead_ns
    return (cost_ns - overhead_ns) / window_ns if window_ns > 0 else 0.0
