"""The idle ledger: every nanosecond that a device sat idle, with exactly one cause.

A gap is ended by a GPU event k, launched by host call L. Either the work was there (L had returned before the
gap began), or the host was late: then the gap is cut at L's start and return, and what comes before L is put
down to what the launching thread did. Segments of a device never overlap and add up to its idle time, to the
nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.facts.core.busy import Busy
from tb_gpudiag.facts.core.causes import Cause, Trigger
from tb_gpudiag.facts.core.first_run import LOADING_CALL_NS
from tb_gpudiag.facts.core.handover import CauseSpans, HostTime
from tb_gpudiag.facts.core.intervals import complement, coverage
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.trace.events import NONE, Bool, Events, Int32, Int64, UInt8
from tb_gpudiag.trace.vocabulary.api_calls import COPY_CALL

# Work that was queued starts this soon after the work before it, or after its launch returned, on every GPU
# in the public traces unless it waits for something: back-to-back kernels follow in 1-3 us, dependent ones
# across streams and copy engines in up to about 10 us, launches reach an idle GPU in 2-15 us.
TURNAROUND_NS = 20_000

# Before the recording's own work, a wait of this length is not a launch's latency: the GPU was busy with work
# that was not recorded. Waits for an idle GPU return within about 20 us.
UNRECORDED_NS = 1_000_000

# A few microseconds of recorded work, such as a kernel that slipped in on another stream, do not tell that
# the GPU had finished its earlier work.
LITTLE_BUSY = 0.01

# Old traces cut starts and durations to whole microseconds, so a call that ended with its gap's beginning may
# seem to have ended up to 2 us before it.
STAMP_NOISE_NS = 2_000

# Without the drain the host would have been ahead: these are what the drained gap then consists of.
_REFILL = np.array([Cause.SYNC, Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY], np.uint8)


@dataclass(frozen=True)
class Gaps:
    """The stretches in which one device had no work, in order of time. Shape (g,) each."""

    start_ns: Int64
    end_ns: Int64
    trigger: UInt8  # Trigger
    ended_by: Int64  # event index of the work that ended it, or NONE at the window's end
    launch: Int64  # event index of that work's launch, or NONE
    blocked_in: Int64  # event index of the call that drained the queue, or NONE
    blocked_ns: Int64  # how long the host had sat in it; 0 where none did

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True)
class Ledger:
    """One device's idle time over the GPU span and the step window together. Segment arrays have shape (s,).

    event: the innermost host event that the segment is put down to, or NONE.
    thread: the host thread it is on, or NONE.
    drained_ns: the part of the segment that would not be there, at most, had the host not been held in the
    blocking call that drained the queue: without it the host would have been that much earlier. Never more
    than the segment.
    """

    start_ns: Int64
    end_ns: Int64
    cause: UInt8  # Cause
    gap: Int64  # index into gaps
    event: Int64
    thread: Int32
    drained_ns: Int64
    gaps: Gaps

    def __len__(self) -> int:
        return len(self.start_ns)

    def inside(self, window: Window) -> Int64:
        """Shape (s,): how much of each segment lies in the window."""
        length: Int64 = np.minimum(self.end_ns, window.end_ns) - np.maximum(self.start_ns, window.start_ns)
        return np.maximum(length, 0)

    def idle_ns(self, window: Window) -> int:
        return int(self.inside(window).sum())

    def by_cause(self, window: Window) -> dict[Cause, int]:
        """cause -> ns inside the window, in the order of Cause; causes that did not occur are left out."""
        total = np.zeros(len(Cause), np.int64)
        np.add.at(total, self.cause, self.inside(window))
        return {cause: int(total[cause]) for cause in Cause if total[cause]}

    def by_trigger(self, window: Window) -> dict[Trigger, int]:
        """trigger -> ns inside the window."""
        total = np.zeros(len(Trigger), np.int64)
        np.add.at(total, self.gaps.trigger[self.gap], self.inside(window))
        return {trigger: int(total[trigger]) for trigger in Trigger if total[trigger]}

    def gaps_in(self, window: Window) -> int:
        """How many gaps lie, in part at least, in the window."""
        return int(((self.gaps.start_ns < window.end_ns) & (self.gaps.end_ns > window.start_ns)).sum())


def build_ledger(events: Events, work: Work, busy: Busy, window: Window, host: HostTime) -> Ledger:
    """The ledger of one device. `work` may hold other devices' work too: only `busy.work` counts."""
    span = busy.span
    if not len(busy.work):
        span = Window(window.start_ns, window.start_ns)
    low, high = min(span.start_ns, window.start_ns), max(span.end_ns, window.end_ns)
    start, end = complement(busy.all, low, high)
    ended_by, launch = _who_ended(events, work, busy, end)
    known = launch != NONE
    called = _at(events.start_ns, launch, end)
    returned = _at(events.end_ns, launch, end)
    trailing = ended_by == NONE
    unlinked = ~trailing & ~known
    there = known & (returned <= start)
    late = trailing | (known & ~there)

    fixed = [
        _piece(start, end, unlinked, Cause.UNLINKED, launch, events),
        _by_turnaround(start, end, there, launch, events),
        _in_call(
            np.maximum(start, called),
            np.minimum(returned, end),
            known & late,
            launch,
            events,
            work,
            host,
        ),
        _by_turnaround(np.maximum(start, returned), end, known & late, launch, events),
    ]
    until = np.where(trailing, end, np.minimum(called, end))
    thread = _at(events.thread, launch, np.full(len(start), host.main)).astype(np.int32)
    waiting = late & (until > start)
    hosted = host.explain(start[waiting], until[waiting], thread[waiting], np.flatnonzero(waiting))
    pieces = host.profiled(CauseSpans.join([*fixed, hosted]))
    order = np.argsort(pieces.start_ns, kind="stable")
    pieces = _mark_unrecorded(pieces.take(order), busy, events)

    blocked_in, blocked = host.blocked_before(start, end, STAMP_NOISE_NS)
    held = late & (blocked > STAMP_NOISE_NS)  # a call that was over at once found nothing to wait for
    blocked_in, blocked = np.where(held, blocked_in, NONE), np.where(held, blocked, 0)
    trigger = np.full(len(start), Trigger.STARVED, np.uint8)
    trigger[blocked > 0] = Trigger.DRAINED
    trigger[there] = Trigger.QUEUED
    trigger[unlinked | (trailing & (blocked == 0))] = Trigger.UNKNOWN
    gaps = Gaps(start, end, trigger, ended_by, launch, blocked_in, blocked)
    drained = _drained(pieces, gaps)
    return Ledger(
        pieces.start_ns, pieces.end_ns, pieces.cause, pieces.gap, pieces.event, pieces.thread, drained, gaps
    )


def _who_ended(events: Events, work: Work, busy: Busy, end: Int64) -> tuple[Int64, Int64]:
    """The GPU event that starts as each gap ends (a linked one, where several start together) and its
    launch."""
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


def _at(column: npt.NDArray[Any], index: Int64, otherwise: Int64) -> Int64:
    """column[index] where there is an index, else the other value."""
    found = otherwise.astype(np.int64)
    some = index != NONE
    found[some] = column[index[some]]
    return found


def _piece(
    start: Int64, end: Int64, chosen: Bool, cause: Cause | UInt8, launch: Int64, events: Events
) -> CauseSpans:
    some = np.flatnonzero(chosen & (end > start))
    event = launch[some]
    cause_of = np.full(len(start), cause, np.uint8) if isinstance(cause, Cause) else cause
    thread = _at(events.thread, event, event).astype(np.int32)
    return CauseSpans(start[some], end[some], cause_of[some], some.astype(np.int64), event, thread)


def _in_call(
    start: Int64, end: Int64, chosen: Bool, launch: Int64, events: Events, work: Work, host: HostTime
) -> CauseSpans:
    """Inside the launch call. One that waited for a place in a full queue had work before it that waited for
    something. Another long one, if it is a kernel's first use, loaded the kernel's module (CUDA loads lazily
    from 11.7 on). How long it took counts, not how much of it the GPU had nothing to do: the loading may
    begin beside earlier work."""
    first_use = np.zeros(len(events), np.bool_)
    first_use[work.launch[work.first_use & (work.launch != NONE)]] = True
    none = np.zeros(len(launch), np.int64)
    loading = (_at(events.duration_ns, launch, none) > LOADING_CALL_NS) & (_at(first_use, launch, none) > 0)
    cause = np.where(loading, np.uint8(Cause.COMPILE), np.uint8(Cause.LAUNCH)).astype(np.uint8)
    cause[_at(host.first_run, launch, none) > 0] = Cause.INITIALIZATION
    cause[np.isin(launch, host.full_queue.call)] = Cause.QUEUED
    return _piece(start, end, chosen, cause, launch, events)


def _mark_unrecorded(pieces: CauseSpans, busy: Busy, events: Events) -> CauseSpans:
    """Before the device's own recorded work, waiting for the GPU means that it ran work from before the
    recording: work that is queued does not start, or a call blocks, though nothing recorded runs."""
    before = coverage(busy.all, np.full_like(pieces.start_ns, np.iinfo(np.int64).min), pieces.start_ns)
    length = pieces.end_ns - pieces.start_ns
    waits = np.isin(pieces.cause, np.array([Cause.QUEUED, Cause.SYNC], np.uint8))
    copies = pieces.event != NONE
    copies[copies] = match(events, COPY_CALL)[pieces.event[copies]]
    waits |= copies & (pieces.cause == Cause.LAUNCH)
    found = waits & (length >= UNRECORDED_NS) & (before <= LITTLE_BUSY * length)
    return replace(pieces, cause=np.where(found, np.uint8(Cause.UNRECORDED), pieces.cause))


def _by_turnaround(start: Int64, end: Int64, chosen: Bool, launch: Int64, events: Events) -> CauseSpans:
    """Launched, and not begun: a bare turnaround is latency, more than that waited for something."""
    cause = np.where(end - start <= TURNAROUND_NS, np.uint8(Cause.LATENCY), np.uint8(Cause.QUEUED)).astype(
        np.uint8
    )
    return _piece(start, end, chosen, cause, launch, events)


def _drained(pieces: CauseSpans, gaps: Gaps) -> Int64:
    """Of each gap's re-filling, in order of time, as much as the host had been blocked for."""
    eligible = np.isin(pieces.cause, _REFILL)
    length = np.where(eligible, pieces.end_ns - pieces.start_ns, 0)
    total = np.cumsum(length) - length
    first = np.searchsorted(pieces.gap, pieces.gap, side="left")
    before = total - total[first] if len(total) else total
    return np.where(eligible, np.clip(gaps.blocked_ns[pieces.gap] - before, 0, length), 0)
