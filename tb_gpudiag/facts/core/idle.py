"""The idle ledger: every nanosecond of a device's idle time, with exactly one cause.

A gap ends with a GPU event k, launched by host call L. Either L had returned before the gap began, so the
work was queued. Or the host was late: then the gap is cut at L's start and return, and the part before L is
attributed to what the launching thread did. Between two nodes of one graph launch, the host has no part in
it. The segments of a device never overlap, and they add up to its idle time to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64, Numbers, UInt8
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause, CauseSpans, Trigger, repaint
from tb_gpudiag.facts.core.handover import HostTime
from tb_gpudiag.facts.core.intervals import Intervals, Window, complement, coverage
from tb_gpudiag.facts.core.launches import TURNAROUND_NS, UNRECORDED_NS, Work
from tb_gpudiag.facts.core.ledger import Busy, Gaps, GpuTime, Ledger
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.api_calls import COPY_CALL, GRAPH_LAUNCH_BY_NODE

# A few microseconds of recorded work, such as a kernel on another stream, do not show that the GPU had
# finished its earlier work.
LITTLE_BUSY = levels.SLIGHT

# A wait as the recording begins that is not this many times as long as any later one is a wait like others:
# queued work stalls for a millisecond or two on some systems, whatever came before.
TIMES_LATER = 2

# Old traces cut starts and durations to whole microseconds, so a call that ended when its gap began may seem
# to have ended up to 2 us before it.
TIMESTAMP_NOISE_NS = 2_000

# A drained gap consists of time with these causes. Without the drain, the host would have spent it ahead of
# the GPU.
_REFILL = np.array([Cause.SYNC, *BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY], np.uint8)


def find_gpu_times(
    devices: Sequence[Busy], work: Work, window: Window, host_time: HostTime, lost: Intervals
) -> list[GpuTime]:
    """Explain the idle time of each device, in the same order.

    window: idle time is found in it and in the GPU span. lost: when work may have run that the trace has only
    the launch of."""
    return [GpuTime(busy, _build_ledger(work, busy, window, host_time, lost)) for busy in devices]


def _build_ledger(work: Work, busy: Busy, window: Window, host: HostTime, lost: Intervals) -> Ledger:
    """Build the ledger of the device with this busy time. work: of all devices."""
    events = work.events
    span = busy.span
    low, high = min(span.start_ns, window.start_ns), max(span.end_ns, window.end_ns)
    start, end = complement(busy.all, low, high)
    ended_by, launch = _ended_by(work, busy, end)
    known = launch != NONE
    called = _at(events.start_ns, launch, end)
    returned = _at(events.end_ns, launch, end)
    trailing = ended_by == NONE
    unlinked = ~trailing & ~known
    nodes = _between_nodes(work, launch, start, end, returned)
    there = nodes | (known & (returned <= start))
    late = trailing | (known & ~there)

    def spans_of(chosen: Bool, start: Int64, end: Int64, cause: UInt8) -> CauseSpans:
        """Attribute these parts of the chosen gaps to the launches that ended them."""
        some = np.flatnonzero(chosen & (end > start))
        event = launch[some].astype(np.int32)
        thread = _at(events.thread, event, event).astype(np.int32)
        return CauseSpans(start[some], end[some], cause[some], some.astype(np.int32), event, thread)

    in_call, issued = (np.maximum(start, called), np.minimum(returned, end)), np.maximum(start, returned)
    after = _after_launch(start, end, work.turnaround_ns)
    fixed = [
        spans_of(unlinked, start, end, np.full(len(start), Cause.UNLINKED, np.uint8)),
        spans_of(there, start, end, np.where(nodes, np.uint8(Cause.GRAPH), after)),
        spans_of(known & late, *in_call, _in_call(launch, work, host)),
        spans_of(known & late, issued, end, _after_launch(issued, end, work.turnaround_ns)),
    ]
    until = np.where(trailing, end, np.minimum(called, end))
    thread = _at(events.thread, launch, np.full(len(start), host.main)).astype(np.int32)
    waiting = late & (until > start)
    hosted = host.explain(start[waiting], until[waiting], thread[waiting], np.flatnonzero(waiting))
    spans = host.profiled(CauseSpans.join([*fixed, hosted]))
    spans = repaint(spans, lost, Cause.UNRECORDED, np.ones_like(spans.cause, np.bool_))
    spans = spans.in_order()
    in_lost = spans.cause == Cause.UNRECORDED
    spans = _mark_unrecorded(spans, busy, events)

    blocked_in, blocked = host.blocked_before(start, end, TIMESTAMP_NOISE_NS)
    held = late & (blocked > TIMESTAMP_NOISE_NS)  # a call that returned at once had nothing to wait for
    blocked_in, blocked = np.where(held, blocked_in, NONE), np.where(held, blocked, 0)
    trigger = np.full(len(start), Trigger.STARVED, np.uint8)
    trigger[blocked > 0] = Trigger.DRAINED
    trigger[there] = Trigger.QUEUED
    trigger[unlinked | (trailing & (blocked == 0))] = Trigger.UNKNOWN
    blocked = np.where(trailing, 0, blocked)  # after the last work, no queue fills up again
    gaps = Gaps(start, end, trigger, ended_by, launch, blocked_in, blocked)
    drained = _drained(spans, gaps)
    gap, event = spans.gap.astype(np.int64), spans.event.astype(np.int64)
    return Ledger(spans.start_ns, spans.end_ns, spans.cause, gap, event, drained, in_lost, gaps)


def _ended_by(work: Work, busy: Busy, end: Int64) -> tuple[Int64, Int64]:
    """Find the GPU event that starts as each gap ends (a linked one, if several start together), and its
    launch."""
    events = work.events
    launch_of = np.full(len(events), NONE, np.int64)
    launch_of[work.event] = work.launch
    own = busy.work[np.lexsort((launch_of[busy.work] == NONE, events.start_ns[busy.work]))]
    own = own[events.duration_ns[own] > 0]
    ended_by = np.full(len(end), NONE, np.int64)
    if len(own):
        starts = events.start_ns[own]
        at = np.minimum(np.searchsorted(starts, end, side="left"), len(own) - 1)
        found = starts[at] == end
        ended_by[found] = own[at[found]]
    return ended_by, _at(launch_of, ended_by, ended_by)


def _at(column: npt.NDArray[Any], index: Numbers, otherwise: Numbers) -> Int64:
    """Return column[index], or the other value where the index is NONE."""
    found = otherwise.astype(np.int64)
    some = index != NONE
    found[some] = column[index[some]]
    return found


def _between_nodes(work: Work, launch: Int64, start: Int64, end: Int64, returned: Int64) -> Bool:
    """Mask of the gaps that are a bare turnaround between two nodes of one graph launch. A longer one waited
    for something. While a call hands over nodes one by one, the gap is the host's.

    launch: of the work that ended each gap. returned: when that call did."""
    begun = _at(work.graph_begun_ns, launch, np.full_like(start, NONE))
    found: Bool = (begun != NONE) & (begun < start) & (end - start <= TURNAROUND_NS)
    found[found] &= (returned[found] <= start[found]) | ~match_some(
        work.events, GRAPH_LAUNCH_BY_NODE, launch[found]
    )
    return found


def _in_call(launch: Int64, work: Work, host: HostTime) -> UInt8:
    """Return the cause of the time inside each launch call, shape of `launch`.

    A call that blocked on a full queue had work before it that waited for something. Another long call, if it
    is the kernel's first use, loaded the kernel's module (CUDA loads lazily since 11.7). The length of the
    call decides, not the idle time in it: loading may begin while earlier work runs.
    """
    none = np.zeros(len(launch), np.int64)
    loading = _at(work.loads_module, launch, none) > 0
    cause: UInt8 = np.where(loading, np.uint8(Cause.COMPILE), np.uint8(Cause.LAUNCH))
    cause[_at(host.first_run, launch, none) > 0] = Cause.INITIALIZATION
    cause[np.isin(launch, host.full_queue.call)] = Cause.QUEUED
    return cause


def _after_launch(start: Int64, end: Int64, turnaround_ns: int) -> UInt8:
    """Return the cause of the time between each launch and its work: a bare turnaround is latency; longer
    work waited for something."""
    return np.where(end - start <= turnaround_ns, np.uint8(Cause.LATENCY), np.uint8(Cause.QUEUED))


def _mark_unrecorded(spans: CauseSpans, busy: Busy, events: Events) -> CauseSpans:
    """Mark waits for a GPU that may still have run work from before the recording: queued work does not
    start, or a call blocks, while nothing recorded runs. If later waits are as long, it is one of them."""
    before = coverage(busy.all, np.full_like(spans.start_ns, np.iinfo(np.int64).min), spans.start_ns)
    length = spans.end_ns - spans.start_ns
    waits = np.isin(spans.cause, np.array([Cause.QUEUED, Cause.SYNC], np.uint8))
    copies = spans.event != NONE
    copies[copies] = match_some(events, COPY_CALL, spans.event[copies])
    waits |= copies & (spans.cause == Cause.LAUNCH)
    first = before <= LITTLE_BUSY * length
    later_ns = int(length[waits & ~first].max(initial=0))
    found = waits & first & (length >= max(UNRECORDED_NS, TIMES_LATER * later_ns))
    return spans._replace(cause=np.where(found, np.uint8(Cause.UNRECORDED), spans.cause))


def _drained(spans: CauseSpans, gaps: Gaps) -> Int64:
    """Return how much of each span refills a drained queue: in order of time, as much of each gap as the host
    had been blocked for."""
    eligible = np.isin(spans.cause, _REFILL)
    length = np.where(eligible, spans.end_ns - spans.start_ns, 0)
    total = np.cumsum(length) - length
    first = np.searchsorted(spans.gap, spans.gap, side="left")
    before = total - total[first] if len(total) else total
    return np.where(eligible, np.clip(gaps.blocked_ns[spans.gap] - before, 0, length), 0)
