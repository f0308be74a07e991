"""Recordings in which the recorder itself slows the host: whether a replay can be trusted to predict
anything, what the recorded time promises, and what findings about the host cost without the recorder.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Replay
from tb_gpudiag.facts.replay.unslowed import Unslowed
from tb_gpudiag.facts.waiting.host_lead import HostLead
from tb_gpudiag.facts.waiting.overhead import LEAST, LIKELY, MOST
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Severity
from tb_gpudiag.rules.rule import AnyRule
from tb_gpudiag.rules.shared.lost_time import COMPUTE_SHARE
from tb_gpudiag.rules.shared.odd_recordings import steps_end_unseen
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.wording.format import count, share, time_ns
from tb_gpudiag.wording.quantity import duration

# How far the model may be off in parts of the recording that it was not fitted to (Replay.error). Public
# traces of one rank's own work are off by 0.0 to 1.4%; those with waits for other ranks, or for something
# else that the trace does not have, by 2.5 to 73%.
WORST_ERROR = levels.MEASURABLE

# How much of the work may start at another time than predicted: at most 1% in public traces that the model
# explains. Random delays on all starts make it 20% and more.
MOST_STARTS = levels.SIZEABLE

MEASURE = (
    "Measure the step time without the profiler first: it may be much shorter than the "
    "recorded one, and then the host is not what limits the job."
)

# A smaller part of the recorded time than this is not worth a sentence: steps differ by as much.
LEAST_SLOWED = levels.NOTICEABLE

# A fifth of a step is no lead by chance: without the recorder, the host launches faster than the GPU works.
# Two public recordings that fall behind begin 30% and 61% of a step ahead, healthy ones stay 100% ahead.
LEAST_LEAD = levels.LARGE

# The same two recordings starve the GPU for 24% and 49% of their later steps, and not at all in the first.
LEAST_STARVED = levels.SIZEABLE

# Less than this does not change what a finding says.
LEAST_PART = levels.NOTICEABLE


def trusted_replay(facts: Facts) -> Replay | None:
    """Return the replay if there is a GPU and the model explains its waits, else None."""
    if facts.device is None or not facts.window.duration_ns or steps_end_unseen(facts):
        return None
    return None if why_not_replayed(facts) else facts.replay


def why_not_replayed(facts: Facts) -> str:
    """Say why nothing can be predicted from this trace; "" if it can."""
    replay = facts.replay
    if replay.unexplained_share > WORST_ERROR:
        waits = share(replay.unexplained_share)
        return f"waits that this trace does not explain take {waits} of the step window"
    if replay.unexplained_starts > MOST_STARTS:
        starts = share(replay.unexplained_starts)
        return f"{starts} of the GPU work starts at a time that this trace does not explain"
    if replay.part_error > WORST_ERROR:
        return f"one half of the recording predicts the other with an error of {share(replay.part_error)}"
    return ""


def unslowed(facts: Facts) -> Unslowed | None:
    """How long the step window takes without the recorder; None if that is as long, or if the recording does
    not say."""
    if facts.device is None or not facts.recorded.operators or trusted_replay(facts) is None:
        return None
    found = facts.unslowed
    return found if found.least_slowed >= LEAST_SLOWED else None


def lost_lead(facts: Facts) -> HostLead | None:
    """The host's lead as the recording began, if it lost half of it and the GPU starved from then on: the
    recorder slows this host."""
    lead = facts.host_lead
    if lead is None or lead.lead_ns < LEAST_LEAD * lead.step_ns or 2 * lead.later_ns >= lead.lead_ns:
        return None
    return lead if lead.starved_share >= max(LEAST_STARVED, 2 * lead.first_starved) else None


def host_may_keep_up(facts: Facts) -> bool:
    """Whether the host may limit the job only because it is recorded: it was ahead of the GPU when the
    recording began, or without the recorder the GPU may be busy as in a job that computing limits."""
    if lost_lead(facts) is not None:
        return True
    found = unslowed(facts)
    return found is not None and (
        _busy_share(facts, found.recorded_ns) < COMPUTE_SHARE <= _busy_share(facts, found.least_ns)
    )


def gpu_keeps_busy(facts: Facts) -> bool:
    """Whether the GPU is busy as in a job that computing limits, even if recording costs the host little."""
    found = unslowed(facts)
    return found is not None and _busy_share(facts, found.most_ns) >= COMPUTE_SHARE


def host_likely_limits(facts: Facts) -> bool:
    """Whether the GPU likely waits for the host without the recorder, too: in the middle of the estimate it
    is not as busy as in a job that computing limits."""
    found = unslowed(facts)
    if lost_lead(facts) is not None or found is None:
        return False
    return _busy_share(facts, found.most_ns) + _busy_share(facts, found.least_ns) < 2 * COMPUTE_SHARE


def _busy_share(facts: Facts, window_ns: int) -> float:
    """The GPU's busy share of a step window of this length."""
    return min(1.0, _busy_ns(facts) / max(1, window_ns))


def _busy_ns(facts: Facts) -> int:
    assert facts.device is not None
    return facts.window.duration_ns - int(facts.device.window_account.idle_ns.sum())


def slowed_sentences(facts: Facts) -> list[str]:
    """What shows that the recording slows the host, if the host may limit the job. GD908 says what to do."""
    if (lead := lost_lead(facts)) is not None:
        return [_lost_lead(lead)]
    found = unslowed(facts)
    if found is None:
        return []
    said = "The recording slows the host."
    if not host_may_keep_up(facts):
        return [said]
    low, high = (share(_busy_share(facts, ns)) for ns in (found.most_ns, found.least_ns))
    return [f"{said} Without it, the GPU is busy {low} to {high} of the time."]


def measure(facts: Facts) -> str:
    """How to find out whether the host limits the job, if it may do so only because it is recorded."""
    if lost_lead(facts) is not None:
        return MEASURE
    what = "a step" if facts.step_time.median else "the same work"
    limit = time_ns(round(_whole(facts)[0] * _busy_ns(facts) / COMPUTE_SHARE / facts.window.duration_ns))
    return (
        f"Time {what} without the profiler first: below {limit}, computing limits the job, and above, the "
        "host does."
    )


def estimate(facts: Facts, found: Unslowed) -> str:
    """How long a step takes without the profiler, as a part of a sentence."""
    whole_ns, what = _whole(facts)
    likely = time_ns(round(whole_ns * found.likely_ns / found.recorded_ns))
    return f"without the profiler {what} takes about {likely} instead of {time_ns(round(whole_ns))}"


def _whole(facts: Facts) -> tuple[float, str]:
    """What was recorded, in ns and in words: a step, or all of the step window."""
    if facts.step_time.median:
        return facts.step_time.median, "a step"
    return float(facts.window.duration_ns), "the recorded time"


def _lost_lead(lead: HostLead) -> str:
    return (
        "The recording itself probably slows the host: when it began, the host was ahead of the GPU, and in "
        f"later steps the GPU waits for it {share(lead.starved_share)} of the time."
    )


def without_promise(finding: Finding, _facts: Facts) -> Finding:
    """Return a finding about the host's own work that promises no saving."""
    return replace(
        finding,
        summary=f"{finding.summary} The recording itself probably slows the host (GD908): what a fix saves "
        "without the profiler is not known.",
        saving=None,
        removable=None,
        sure=False,
    )


def behind_blocking(finding: Finding, _facts: Facts) -> Finding:
    """Return a finding about the host's own work where every launch waits for its kernel."""
    return replace(
        finding,
        summary=f"{finding.summary} Every launch waits for its kernel (GD301). The host's own work takes "
        "less time than the GPU computes: without these waits it costs nothing.",
        fix=Fix("Unset CUDA_LAUNCH_BLOCKING first, and record again."),
        saving=None,
        removable=None,
        sure=False,
    )


def without_recorder(found: Finding, rule: AnyRule, facts: Facts) -> Finding:
    """Return a finding with the estimated overhead of recording Python frames in its time, and the share of
    the step window without it.

    It is an ERROR only if it would still be one after subtracting the largest estimate, and a hint if nothing
    would be found after subtracting, on a GPU, the smallest one, or without one the most likely.
    """
    if found.slowed is None or found.records_again:
        return found
    cost, time, window_ns = facts.host_work.recorder_cost, found.slowed.time, facts.window.duration_ns
    on_gpu = facts.device is not None
    # Without a GPU, the time is the main thread's own.
    spent, likely = (cost.delayed_ns, LIKELY) if on_gpu else (cost.spent_ns, facts.likely_on_cpu)
    all_ns = np.minimum.accumulate([spent(time, MOST), spent(time, likely), cost.spent_ns(time, LEAST)])
    if trusted_replay(facts) is not None:
        # The whole window is not shorter than the replay without the recorder.
        all_ns = np.minimum(all_ns, max(0, window_ns - facts.unslowed.least_ns))
    most_ns, likely_ns, least_ns = all_ns.tolist()
    if most_ns < LEAST_PART * found.cost_ns:
        return found
    low, about, high = (_corrected(found.cost_ns, ns, window_ns) for ns in all_ns.tolist())
    severity = found.severity
    if (high if on_gpu else about) < found.slowed.least_share:
        severity = Severity.INFO
    elif severity is None and rule.error_share is not None and low < rule.error_share:
        severity = rule.severity
    frames, operators = cost.frames(time), cost.operators(time)
    counted = [count(frames, "Python frame"), *([count(operators, "operator")] if operators else [])]
    return replace(
        found,
        summary=f"{found.summary} Recording frames and operators takes about {time_ns(likely_ns)} of this "
        f"({time_ns(least_ns)} to {time_ns(most_ns)}): without it, the share is about {share(about)} "
        f"({share(low)} to {share(high)}).",
        evidence=[
            *found.evidence,
            Evidence(
                "Recording overhead, estimated",
                duration(least_ns, "at least"),
                (
                    duration(most_ns, f"at most ({share(most_ns, found.cost_ns)} of this time)"),
                    f"for {' and '.join(counted)}",
                ),
            ),
        ],
        severity=severity,
    )


def _corrected(cost_ns: int, overhead_ns: int, window_ns: int) -> float:
    """Share of the step window without the overhead, which makes the window shorter as well."""
    left_ns = window_ns - overhead_ns
    return (cost_ns - overhead_ns) / left_ns if left_ns > 0 else 0.0
