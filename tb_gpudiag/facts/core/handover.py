"""Host time by cause: what a launching thread did, or what the thread that it waited for did."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, Numbers, marked, mask_of
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause, CauseSpans, repaint
from tb_gpudiag.facts.core.host import UNDECIDED, Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, expand, places_of_each, union
from tb_gpudiag.facts.core.known_stretches import Captures, LoaderStarts, RequestWaits
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.core.queue_depth import FullQueue, full_queue
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.threads import NOTHING
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import levels
from tb_gpudiag.vocabulary.api_calls import BLOCKING_CALL, COMMAND_BUFFER_FULL, LAZY_LOADING
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

# With CUDA_LAUNCH_BLOCKING=1, all 1,998 launches of a recorded job return after their kernel has ended; in
# 118 other recordings, at most 2% do.
_LAUNCHES_BLOCK = levels.MOST

# A launching thread that waits hands over to another launching thread. Jobs have one or two launching threads
# per device; looking at more threads only costs time.
_MOST_THREADS = 8

_OWN_TIME = np.array(
    (
        *(*BETWEEN_CALLS, Cause.DISPATCH, Cause.LAUNCH, Cause.ALLOCATOR),
        *(Cause.SYNC, Cause.COMPILE, Cause.COLLECTIVE),
    ),
    np.uint8,
)
"""Causes of the host's own time."""

# Kinds of CUPTI overhead (Kineto's `overhead` events) that the profiler does not cause. Kernels are loaded at
# their first use without the profiler as well. A full command buffer is a full launch queue.
_NOT_OVERHEAD = LAZY_LOADING | {COMMAND_BUFFER_FULL}


@dataclass(frozen=True, eq=False)
class FirstRun:
    """One-off work. events: mask of host events that are first-run work or happen inside it, shape (n,).
    loader: when the main thread started a loader."""

    events: Bool
    loader: LoaderStarts


class HostTime:
    """Activities of the launching threads, and which thread waits for which.

    A thread whose innermost activity is UNDECIDED (nothing at all, an annotation, or the wait for autograd's
    engine) may be waiting. Before its first operator, autograd's thread waits for the thread that called
    backward(); after that call, the caller waits for autograd's thread. So an UNDECIDED stretch takes the
    cause of what another launching thread did in it. What remains UNDECIDED is user code between operators;
    inside the wait for the engine it is the engine's own dispatch.
    """

    def __init__(
        self, host: Host, work: Work, main: int, once: FirstRun, captures: Captures, waits: RequestWaits
    ) -> None:
        self.main = main
        self.host = host
        self._events = host.events
        self._threads = [main, *busiest_threads(work.events, work.launch, main)][:_MOST_THREADS]
        # Event indices of the calls that waited for the GPU, in order of their end.
        waiting = _waiting_launches(work)
        self.launches_block = bool(len(waiting))  # CUDA_LAUNCH_BLOCKING=1
        self.blocking: Int64 = _blocking_calls(work, waiting)
        # A copy call that returned only when the copy ended was a wait, whatever its name says.
        self._cause = host.cause.copy()
        self._cause[self.blocking[host.cause[self.blocking] == Cause.LAUNCH]] = Cause.SYNC
        # Blocking on a full queue is not launching either: the GPU of that queue has enough work.
        self.full_queue: FullQueue = full_queue(work, self.blocking)
        held = self.full_queue.call
        self._cause[held[host.cause[held] == Cause.LAUNCH]] = Cause.QUEUED
        self.first_run = once.events
        self._cause[once.events] = Cause.INITIALIZATION
        self._loading = Cause.INITIALIZATION if once.events.any() else Cause.COMPILE
        self._loader = once.loader
        seen = host.events.among(Category.CPU_OP, Category.PYTHON_FUNCTION, Category.USER_ANNOTATION).any()
        self._between = Cause.PYTHON if seen else Cause.HOST
        self._captures = captures
        self._waits = waits

    def explain(self, start: Int64, end: Int64, thread: Int32, gap: Int64) -> CauseSpans:
        """Cut the stretches [start, end) of these threads into spans that cover them exactly.

        Shape (q,) each; stretches do not overlap. gap: copied to the spans.
        """
        asked = _asked(start, end, thread, gap)
        spans = CauseSpans.join([self._cut(asked.take(own), one) for one, own in places_of_each(thread)])
        for other in self._threads:
            asks = (spans.cause == UNDECIDED) & (spans.thread != other)
            if not asks.any():
                continue
            spans = CauseSpans.join([spans.take(~asks), self._handed_to(spans.take(asks), other)])
        spans = self._settle(spans)
        spans = repaint(spans, self._loader.once, Cause.INITIALIZATION, spans.thread == self._loader.thread)
        return repaint(spans, self._loader.again, Cause.INPUT, spans.thread == self._loader.thread)

    def spans_of(self, time: Intervals, thread: int) -> CauseSpans:
        """Return what a thread did in these stretches, as far as that alone says: spans that cover them."""
        count = len(time.start)
        own = np.full(count, thread, np.int32)
        return self._cut(_asked(time.start, time.end, own, np.arange(count)), thread)

    def main_thread_spans(self, window: Window) -> CauseSpans:
        """Return what the main thread did in the window: spans in order of time that cover it exactly; none
        without a main thread or for an empty window."""
        if self.main == NONE or not window.duration_ns:
            return CauseSpans.join([])
        start, end = np.array([window.start_ns]), np.array([window.end_ns])
        main = np.array([self.main], np.int32)
        spans = self.profiled(self.explain(start, end, main, np.zeros(1, np.int64)).in_order())
        borders_ns = np.append(spans.start_ns, window.end_ns)
        return spans._replace(start_ns=borders_ns[:-1], end_ns=borders_ns[1:])

    def _cut(self, queries: CauseSpans, thread: int) -> CauseSpans:
        """Cut queries at the borders of one thread's activities."""
        activity = self.host.activities.get(thread, NOTHING)
        borders = activity.borders_ns
        if not len(borders):
            count = len(queries.start_ns)
            return queries._replace(
                event=np.full(count, NONE, np.int32), thread=np.full(count, thread, np.int32)
            )
        # Segment i ends at border i. Before the first border and after the last one, the thread does nothing.
        left = np.searchsorted(borders, queries.start_ns, side="right")
        right = np.maximum(np.searchsorted(borders, queries.end_ns, side="left") + 1, left)
        owner, inner = expand(left, right)
        start, end = queries.start_ns[owner], queries.end_ns[owner]
        begun, ends = inner > 0, inner < len(borders)
        np.maximum(start, borders[inner - 1], out=start, where=begun)
        np.minimum(end, borders.take(inner, mode="clip"), out=end, where=ends)
        event = np.where(begun & ends, activity.event.take(inner - 1, mode="clip"), NONE)
        cause = np.where(event == NONE, UNDECIDED, self._cause[event])
        thread_of = np.full(len(owner), thread, np.int32)
        return CauseSpans(start, end, cause, queries.gap[owner], event, thread_of)

    def _handed_to(self, spans: CauseSpans, other: int) -> CauseSpans:
        """Cut UNDECIDED spans by another thread's activity.

        Where that thread is UNDECIDED too, the span remains with its own thread, unless the other one waits
        for autograd's engine: then this thread is the engine's.
        """
        cut = self._cut(spans, other)
        still = cut.cause == UNDECIDED
        order = np.argsort(spans.start_ns, kind="stable")
        origin = order[np.searchsorted(spans.start_ns[order], cut.start_ns, side="right") - 1]
        keep = still & ~self._waits_for_engine(cut.event)
        event = np.where(keep, spans.event[origin], cut.event)
        thread = np.where(keep, spans.thread[origin], cut.thread).astype(np.int32)
        return CauseSpans(cut.start_ns, cut.end_ns, cut.cause, cut.gap, event, thread)

    def _settle(self, spans: CauseSpans) -> CauseSpans:
        """Give the spans that are still UNDECIDED a cause: dispatch inside the wait for the engine, else user
        code between operators, or the host where neither code nor operators were recorded."""
        cause = spans.cause.copy()
        still = np.flatnonzero(cause == UNDECIDED)
        engine = self._waits_for_engine(spans.event[still])
        cause[still] = np.where(engine, np.uint8(Cause.DISPATCH), np.uint8(self._between))
        return spans._replace(cause=cause)

    def _waits_for_engine(self, event: Numbers) -> Bool:
        return marked(self.host.engine_wait, event)

    def profiled(self, spans: CauseSpans) -> CauseSpans:
        """Split spans where the profiler or lazy loading ran, whose events have no thread of their own; where
        the host captured a graph: nothing that it launches then is meant to run; and where an inference
        engine had nothing to run."""
        capturing = Cause.COMPILE if self._captures.recur else Cause.INITIALIZATION
        own = np.isin(spans.cause, _OWN_TIME)
        spans = repaint(spans, self._captures.times, capturing, own)
        for thread, times in self._waits.by_thread.items():
            own = np.isin(spans.cause, _OWN_TIME) & (spans.thread == thread)
            spans = repaint(spans, times, Cause.REQUESTS, own)
        events = self._events
        overhead = np.flatnonzero(events.category == Category.OVERHEAD)
        lazy = np.array([events.names[i] in LAZY_LOADING for i in events.name[overhead]], np.bool_)
        ours = np.array([events.names[i] not in _NOT_OVERHEAD for i in events.name[overhead]], np.bool_)
        for chosen, cause in ((overhead[lazy], self._loading), (overhead[ours], Cause.PROFILER)):
            time = union(events.start_ns[chosen], events.end_ns[chosen])
            spans = repaint(spans, time, cause)
        return spans

    def blocked_before(self, start: Int64, end: Int64, noise_ns: int) -> tuple[Int64, Int64]:
        """For each gap [start, end), find the blocking call that was running when the gap began and returned
        within it: (event or NONE, ns that the host had been blocked by then).

        noise_ns: how much later than recorded a call may have ended.
        """
        begun, returned = (column[self.blocking] for column in (self._events.start_ns, self._events.end_ns))
        found, event = np.zeros(len(start), np.int64), np.full(len(start), NONE, np.int64)
        if not len(begun):
            return event, found
        at = np.searchsorted(returned, start - noise_ns, side="right")
        # An asynchronous copy that blocked and the synchronization after it are one wait: two calls.
        for step in range(2):
            index = np.minimum(at + step, len(begun) - 1)
            held = (returned[index] > start - noise_ns) & (returned[index] < end) & (begun[index] < start)
            waited = np.minimum(returned[index], start + noise_ns) - begun[index]
            longer = held & (waited > found)
            found = np.where(longer, waited, found)
            event = np.where(longer, self.blocking[index], event)
        return event, found


def _asked(start: Int64, end: Int64, thread: Int32, gap: Int64) -> CauseSpans:
    no_event = np.full(len(start), NONE, np.int32)
    undecided = np.full(len(start), UNDECIDED, np.uint8)
    return CauseSpans(start, end, undecided, gap.astype(np.int32), no_event, thread)


def find_main_thread(host: Host, steps: Steps, work: Work) -> int:
    """Return the index of the thread that runs the steps; NONE if there is none.

    Without steps it is the thread that launches most. Without launches it is the one with most operators
    outside of backward, which may run on a thread of its own; without those, the one with most spans: a
    notebook's threads have more frames than the one that computes.
    """
    events, spans = host.events, host.tree.spans
    marks = spans[events.category[spans] == Category.USER_ANNOTATION]
    step_marks = marks[np.isin(events.start_ns[marks], steps.start_ns)]
    launches = work.launch[work.linked]
    operators = spans[(events.category[spans] == Category.CPU_OP) & ~host.in_backward[spans]]
    for chosen in (step_marks, launches, operators, spans):
        if len(chosen):
            return int(np.bincount(events.thread[chosen]).argmax())
    return NONE


def busiest_threads(events: Events, launch: Int64, main: int) -> list[int]:
    """Return the other threads that launch work, or else run operators, most first. launch: event index of
    each launch, or NONE."""
    working = launch[launch != NONE]
    if not len(working):
        working = events.where(Category.CPU_OP)
    threads, count = np.unique(events.thread[working], return_counts=True)
    return [int(t) for t in threads[np.argsort(-count, kind="stable")] if t != main]


def _waiting_launches(work: Work) -> Int64:
    """Launches that returned only when their kernel was done, where nearly all do so; those of graphs may
    still run on."""
    kernels = (work.events.category[work.event] == Category.KERNEL) & work.linked & ~work.in_graph
    waited = kernels & (work.launch_end_ns >= work.end_ns)
    return work.launch[waited] if waited.sum() >= _LAUNCHES_BLOCK * kernels.sum() else work.launch[:0]


def _blocking_calls(work: Work, launches: Int64) -> Int64:
    """Find the calls that waited for the GPU, in order of their end: those that block by name, copies that
    returned only when the copy was done (to or from pageable memory), and these launches."""
    events = work.events
    calls = events.where(*CALL_CATEGORIES)
    blocking = mask_of(calls[match_some(events, BLOCKING_CALL, calls)], len(events))
    copies = (events.category[work.event] == Category.MEMCPY) & work.linked
    waited = copies & (work.launch_end_ns >= work.end_ns)
    blocking[work.launch[waited]] = True
    blocking[launches] = True
    calls = np.flatnonzero(blocking)
    return calls[np.argsort(events.end_ns[calls], kind="stable")]
