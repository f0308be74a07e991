"""Recordings in which the recorder itself slows the host: then its time may promise nothing."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.unslowed import Unslowed
from tb_gpudiag.facts.waiting.lost_lead import LostLead
from tb_gpudiag.rules.answer import Finding
from tb_gpudiag.rules.shared.trusted_replay import trusted_replay
from tb_gpudiag.rules.shared.verdict_shares import COMPUTE_SHARE
from tb_gpudiag.wording.format import share, time_ns

ABOUT_HOST_SPEED = frozenset({"GD102", "GD201", "GD202"})
"""Rules about the host's own work between and in launches, which recording makes slower."""

MEASURE = (
    "Measure the step time without the profiler first: it may be much shorter than the "
    "recorded one, and then the host is not what limits the job."
)


# A smaller part of the recorded time than this is not worth a sentence: steps differ by as much.
LEAST_SLOWED = 0.05


def unslowed(facts: Facts) -> Unslowed | None:
    """How long the step window takes without the recorder; None if that is as long, or if the recording does
    not say."""
    if facts.device is None or not facts.recorded.operators or trusted_replay(facts) is None:
        return None
    found = facts.unslowed
    return found if found.least_slowed >= LEAST_SLOWED else None


def host_may_keep_up(facts: Facts) -> bool:
    """Whether the host may limit the job only because it is recorded: it was ahead of the GPU when the
    recording began, or without the recorder the GPU may be busy as in a job that computing limits."""
    if facts.lost_lead is not None:
        return True
    found = unslowed(facts)
    if found is None or _busy_share(facts, found.recorded_ns) >= COMPUTE_SHARE:
        return False
    return _busy_share(facts, found.least_ns) >= COMPUTE_SHARE


def gpu_keeps_busy(facts: Facts) -> bool:
    """Whether the GPU is busy as in a job that computing limits, even if recording costs the host little."""
    found = unslowed(facts)
    return found is not None and _busy_share(facts, found.most_ns) >= COMPUTE_SHARE


def _busy_share(facts: Facts, window_ns: int) -> float:
    """The GPU's busy share of a step window of this length."""
    assert facts.device is not None
    busy_ns = facts.window.duration_ns - int(facts.device.window_account.idle_ns.sum())
    return min(1.0, busy_ns / window_ns) if window_ns else 0.0


def slowed_sentences(facts: Facts) -> list[str]:
    """What shows that the recording slows the host, and what to do, if the host may limit the job."""
    if facts.lost_lead is not None:
        return [_lost_lead(facts.lost_lead), MEASURE]
    found = unslowed(facts)
    if found is None:
        return []
    said = f"The recording slows the host: {estimate(facts, found)}."
    if not host_may_keep_up(facts):
        return [said]
    low, high = (share(_busy_share(facts, ns)) for ns in (found.most_ns, found.least_ns))
    return [f"{said} The GPU is then busy {low} to {high} of the time.", MEASURE]


def estimate(facts: Facts, found: Unslowed) -> str:
    """How long a step takes without the profiler, as a part of a sentence."""
    whole_ns, what = facts.step_time.median, "a step"
    if not whole_ns:
        whole_ns, what = float(facts.window.duration_ns), "the recorded time"
    low, high = (time_ns(round(whole_ns * ns / found.recorded_ns)) for ns in (found.least_ns, found.most_ns))
    return f"without the profiler {what} probably takes {low} to {high} instead of {time_ns(round(whole_ns))}"


def _lost_lead(lead: LostLead) -> str:
    return (
        "The recording itself probably slows the host: when it began, the host was "
        f"{time_ns(lead.lead_ns)} ahead of the GPU, and in later steps the GPU waits for it "
        f"{share(lead.starved_share)} of the time."
    )


def without_promise(finding: Finding) -> Finding:
    """Return a finding about the host's own work that promises no saving."""
    return replace(
        finding,
        summary=f"{finding.summary} The recording itself probably slows the host (GD908): what a fix saves "
        "without the profiler is not known.",
        saving=None,
        removable=None,
        sure=False,
    )
