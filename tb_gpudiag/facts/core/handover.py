"""Host time put down to causes: what a launching thread did, or whom it was waiting for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import UNDECIDED, Host
from tb_gpudiag.facts.core.intervals import Intervals, expand, overlapping, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.queue_depth import FullQueue, full_queue
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.facts.core.threads import NOTHING, Activity
from tb_gpudiag.trace.events import CALL_CATEGORIES, NONE, Bool, Category, Events, Int32, Int64, UInt8
from tb_gpudiag.trace.vocabulary.api_calls import BLOCKING_CALL, COMMAND_BUFFER_FULL, LAZY_LOADING

# A launching thread that waits hands over to another launching thread. Jobs have one or two of them a device;
# more than these few only cost time.
_MOST_THREADS = 8

# CUPTI's own kinds of overhead (Kineto's `overhead` events). The first is the driver loading a kernel at its
# first use: the user pays for it without the profiler too. A full command buffer is the launch queue's bound:
# nothing to explain.
_NOT_OVERHEAD = frozenset({LAZY_LOADING, COMMAND_BUFFER_FULL})


@dataclass(frozen=True)
class CauseSpans:
    """Stretches of gaps with a cause. Shape (p,) each; columns as in idle.Ledger."""

    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    gap: Int64
    event: Int64
    thread: Int32

    def take(self, index: Int64 | Bool) -> CauseSpans:
        return CauseSpans(
            self.start_ns[index],
            self.end_ns[index],
            self.cause[index],
            self.gap[index],
            self.event[index],
            self.thread[index],
        )

    @staticmethod
    def join(parts: Sequence[CauseSpans]) -> CauseSpans:
        """One after another; of no parts, none."""
        if not parts:
            none = np.zeros(0, np.int64)
            return CauseSpans(none, none, none.astype(np.uint8), none, none, none.astype(np.int32))
        return CauseSpans(
            np.concatenate([p.start_ns for p in parts]),
            np.concatenate([p.end_ns for p in parts]),
            np.concatenate([p.cause for p in parts]),
            np.concatenate([p.gap for p in parts]),
            np.concatenate([p.event for p in parts]),
            np.concatenate([p.thread for p in parts]),
        )


class HostTime:
    """The launching threads' activities, and the rule of handing over.

    A thread whose innermost activity is UNDECIDED (nothing at all, an annotation, or the wait for autograd's
    engine) may be waiting. Before its first operator, autograd's thread waits for the thread that called
    backward(); after that call, the caller waits for autograd's thread. So an UNDECIDED stretch takes the
    cause of what another launching thread did in it. What remains UNDECIDED is user code between operators;
    inside the wait for the engine it is the engine's own dispatch.
    """

    def __init__(self, host: Host, work: Work, main: int, first_run: Bool) -> None:
        self.main = main
        self._host = host
        self._events = host.events
        self._threads = _launching_threads(host.events, work, main)
        self._blocking, self._blocking_event = _blocking_calls(host.events, work)
        # A copy call that returned only with the copy's end was a wait, whatever its name says.
        self._cause = host.cause.copy()
        waited = self._blocking_event[host.cause[self._blocking_event] == Cause.LAUNCH]
        self._cause[waited] = Cause.SYNC
        # Nor is waiting for a place in a full queue launching: the GPU whose queue that is has work enough.
        self.full_queue: FullQueue = full_queue(host.events, work, self._blocking_event)
        held = self.full_queue.call
        self._cause[held[host.cause[held] == Cause.LAUNCH]] = Cause.QUEUED
        self.first_run = first_run
        self._cause[first_run] = Cause.INITIALIZATION
        self._loading = Cause.INITIALIZATION if first_run.any() else Cause.COMPILE

    @property
    def blocking(self) -> Int64:
        """Event indices of the calls that waited for the GPU, in order of their end."""
        return self._blocking_event

    def explain(self, start: Int64, end: Int64, thread: Int32, gap: Int64) -> CauseSpans:
        """The queries [start, end) on their threads, cut into pieces that cover them exactly. Queries do not
        overlap."""
        nobody = np.full(len(start), NONE, np.int64)
        pieces = CauseSpans(
            start, end, np.full(len(start), UNDECIDED, np.uint8), gap.astype(np.int64), nobody, thread
        )
        done = [self._on_threads(pieces)]
        for other in self._threads:
            last = done.pop()
            is_open = last.cause == UNDECIDED
            ask = is_open & (last.thread != other)
            done.append(last.take(~ask))
            done.append(self._handed_to(last.take(ask), other))
            done = [CauseSpans.join(done)]
        return self._settle(done[0])

    def main_thread_spans(self, window: Window) -> CauseSpans:
        """Return what the main thread did in the window: spans in order of time that cover it exactly; none
        without a main thread or for an empty window."""
        if self.main == NONE or not window.duration_ns:
            return CauseSpans.join([])
        start, end = np.array([window.start_ns]), np.array([window.end_ns])
        spans = self.explain(start, end, np.array([self.main], np.int32), np.zeros(1, np.int64))
        return spans.take(np.argsort(spans.start_ns, kind="stable"))

    def _on_threads(self, queries: CauseSpans) -> CauseSpans:
        parts = [self._cut(queries.take(queries.thread == t), int(t)) for t in np.unique(queries.thread)]
        return CauseSpans.join(parts)

    def _cut(self, queries: CauseSpans, thread: int) -> CauseSpans:
        """Queries cut at the borders of one thread's activities."""
        activity = self._everywhere(thread)
        left, right = overlapping(activity.intervals, queries.start_ns, queries.end_ns)
        owner, inner = expand(left, right)
        event = activity.event[inner]
        cause = np.full(len(event), UNDECIDED, np.uint8)
        cause[event != NONE] = self._cause[event[event != NONE]]
        return CauseSpans(
            np.maximum(queries.start_ns[owner], activity.start_ns[inner]),
            np.minimum(queries.end_ns[owner], activity.end_ns[inner]),
            cause,
            queries.gap[owner],
            event,
            np.full(len(owner), thread, np.int32),
        )

    def _everywhere(self, thread: int) -> Activity:
        """A thread's activity, extended to all time."""
        far = np.iinfo(np.int64)
        own = self._host.activities.get(thread, NOTHING)
        if not len(own.start_ns):
            return Activity(np.array([far.min]), np.array([far.max]), np.array([NONE]))
        return Activity(
            np.r_[far.min, own.start_ns, own.end_ns[-1]],
            np.r_[own.start_ns[0], own.end_ns, far.max],
            np.r_[NONE, own.event, NONE],
        )

    def _handed_to(self, pieces: CauseSpans, other: int) -> CauseSpans:
        """Cut UNDECIDED pieces by another thread's activity.

        Where that thread is UNDECIDED too, the piece remains with its own thread, unless the other one waits
        for autograd's engine: then this thread is the engine's.
        """
        cut = self._cut(pieces, other)
        still = cut.cause == UNDECIDED
        if not len(still):
            return cut
        order = np.argsort(pieces.start_ns, kind="stable")
        origin = order[np.searchsorted(pieces.start_ns[order], cut.start_ns, side="right") - 1]
        keep = still & ~self._waits_for_engine(cut.event)
        event = np.where(keep, pieces.event[origin], cut.event)
        thread = np.where(keep, pieces.thread[origin], cut.thread).astype(np.int32)
        return CauseSpans(cut.start_ns, cut.end_ns, cut.cause, cut.gap, event, thread)

    def _settle(self, pieces: CauseSpans) -> CauseSpans:
        """What nobody explained: inside the wait for the engine it is dispatch, else user code between
        operators."""
        cause = pieces.cause.copy()
        still = np.flatnonzero(cause == UNDECIDED)
        engine = self._waits_for_engine(pieces.event[still])
        cause[still] = np.where(engine, np.uint8(Cause.DISPATCH), np.uint8(Cause.PYTHON))
        return CauseSpans(pieces.start_ns, pieces.end_ns, cause, pieces.gap, pieces.event, pieces.thread)

    def _waits_for_engine(self, event: Int64) -> Bool:
        found: Bool = event != NONE
        found[found] = self._host.engine_wait[event[found]]
        return found

    def profiled(self, pieces: CauseSpans) -> CauseSpans:
        """CauseSpans on the way to a launch, split where the profiler or lazy loading held the thread (their
        events have no thread of their own)."""
        events = self._events
        overhead = np.flatnonzero(events.category == Category.OVERHEAD)
        if not len(overhead):
            return pieces
        lazy = np.array([events.names[i] == LAZY_LOADING for i in events.name[overhead]], np.bool_)
        ours = np.array([events.names[i] not in _NOT_OVERHEAD for i in events.name[overhead]], np.bool_)
        for chosen, cause in ((overhead[lazy], self._loading), (overhead[ours], Cause.PROFILER)):
            spans = union(events.start_ns[chosen], events.end_ns[chosen])
            pieces = _repaint(pieces, spans, cause)
        return pieces

    def blocked_before(self, start: Int64, end: Int64, noise_ns: int) -> tuple[Int64, Int64]:
        """For each gap [start, end): the blocking call that was running when it began and returned within it,
        or NONE, and how long the host had sat in it by then. A call that found nothing to wait for drained
        nothing."""
        calls = self._blocking
        found, event = np.zeros(len(start), np.int64), np.full(len(start), NONE, np.int64)
        if not len(calls.start):
            return event, found
        at = np.searchsorted(calls.end, start - noise_ns, side="right")
        for step in range(
            2
        ):  # an asynchronous copy that blocked and the synchronisation after it are one wait
            index = np.minimum(at + step, len(calls.end) - 1)
            held = (
                (calls.end[index] > start - noise_ns)
                & (calls.end[index] < end)
                & (calls.start[index] < start)
            )
            waited = np.minimum(calls.end[index], start + noise_ns) - calls.start[index]
            longer = held & (waited > found)
            found = np.where(longer, waited, found)
            event = np.where(longer, self._blocking_event[index], event)
        return event, found


def _repaint(pieces: CauseSpans, spans: Intervals, cause: Cause) -> CauseSpans:
    on_the_way = np.isin(pieces.cause, np.array([Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH], np.uint8))
    chosen = pieces.take(on_the_way)
    edges = np.unique(np.concatenate(spans))
    far = np.iinfo(np.int64)
    start, end = np.r_[far.min, edges], np.r_[edges, far.max]
    painted = np.isin(start, spans.start)
    left, right = overlapping(Intervals(start, end), chosen.start_ns, chosen.end_ns)
    owner, inner = expand(left, right)
    split = CauseSpans(
        np.maximum(chosen.start_ns[owner], start[inner]),
        np.minimum(chosen.end_ns[owner], end[inner]),
        np.where(painted[inner], np.uint8(cause), chosen.cause[owner]).astype(np.uint8),
        chosen.gap[owner],
        chosen.event[owner],
        chosen.thread[owner],
    )
    return CauseSpans.join([pieces.take(~on_the_way), split])


def _launching_threads(events: Events, work: Work, main: int) -> list[int]:
    """Threads to hand over to: the main one first, then those with most launches (without a GPU, with most
    operators)."""
    working = work.launch[work.launch != NONE]
    if not len(working):
        working = events.where(Category.CPU_OP)
    threads, count = np.unique(events.thread[working], return_counts=True)
    busiest = [int(t) for t in threads[np.argsort(-count, kind="stable")] if t != main]
    return [main, *busiest][:_MOST_THREADS]


def _blocking_calls(events: Events, work: Work) -> tuple[Intervals, Int64]:
    """Calls that waited for the GPU, in order of their end: blocking ones by name, and copies that returned
    only when the copy was done (to or from pageable memory)."""
    is_call = np.isin(events.category, np.array(CALL_CATEGORIES, np.uint8))
    blocking = is_call & match(events, BLOCKING_CALL)
    copies = (events.category[work.event] == Category.MEMCPY) & (work.launch != NONE)
    waited = copies & (work.launch_end_ns >= events.end_ns[work.event])
    blocking[work.launch[waited]] = True
    calls = np.flatnonzero(blocking)
    calls = calls[np.argsort(events.end_ns[calls], kind="stable")]
    return Intervals(events.start_ns[calls], events.end_ns[calls]), calls
