"""How far ahead of the GPU the host is when the recording begins, and later."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause, Trigger
from tb_gpudiag.facts.core.intervals import coverage, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass

# Of fewer steps, none shows how the job goes on after the host's lead is used up.
_FEWEST_STEPS = 3

# The first launches of a step show how far ahead the host is: this many, or a quarter of them.
_LAUNCHES = 20

_HOST = np.array((*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH), np.uint8)


@dataclass(frozen=True)
class HostLead:
    """How far ahead of the GPU the host was in the first recorded step, and in the median later one; and for
    which share of the first and of a later step the GPU then had nothing to do, because the host had launched
    nothing."""

    lead_ns: int
    later_ns: int
    first_starved: float
    starved_share: float
    step_ns: int  # the median later step


def find_host_lead(steps: Steps, work: Work, time: GpuTime) -> HostLead | None:
    """Measure it; None if the steps cannot be compared. steps: in order, as the host ran them."""
    own = work.by_launch[work.device[work.by_launch] == time.device]
    if len(steps) < _FEWEST_STEPS or not len(own):
        return None
    start, end = steps.start_ns, np.r_[steps.start_ns[1:], steps.end_ns[-1:]]
    first = np.searchsorted(work.launch_start_ns[own], start)
    if first[-1] >= len(own) or _other_work_first(work, own, first):
        return None
    waits = work.start_ns[own] - work.launch_end_ns[own]
    each = np.clip(np.diff(np.r_[first, len(own)]) // 4, 1, _LAUNCHES)
    lead = np.array(
        [float(np.median(waits[at : at + n])) for at, n in zip(first.tolist(), each.tolist(), strict=True)]
    )
    starved = _starved_share(start, end, time)
    step_ns, later_ns = float(np.median((end - start)[1:])), float(np.median(lead[1:]))
    later_share = float(np.median(starved[1:]))
    first_ns = round(float(lead[0]))
    return HostLead(first_ns, max(0, round(later_ns)), float(starved[0]), later_share, round(step_ns))


def _other_work_first(work: Work, own: Int64, first: Int64) -> bool:
    """Whether the steps follow work that was launched in the recording and takes longer than one of them,
    such as the prefill before a server's decode steps: any host is ahead then, whether slowed or not.

    own: rows of work in the order of their launches. first: of each step, in own."""
    took_ns = np.r_[0, np.cumsum(work.end_ns[own] - work.start_ns[own])]
    of_steps = np.diff(took_ns[np.r_[first, len(own)]])
    return bool(took_ns[first[0]] > np.median(of_steps[1:]))


def _starved_share(start_ns: Int64, end_ns: Int64, time: GpuTime) -> Float64:
    """The share of each stretch in which the GPU waited for the host, and no wait had emptied the queue."""
    ledger = time.ledger
    some = (ledger.gaps.trigger[ledger.gap] == Trigger.STARVED) & np.isin(ledger.cause, _HOST)
    idle = union(ledger.start_ns[some], ledger.end_ns[some])
    return coverage(idle, start_ns, end_ns) / np.maximum(end_ns - start_ns, 1)
