"""Host threads: spans nested by time, and each thread as a sequence of innermost activities.

Spans of a trace should nest, but timestamps cut to whole microseconds let some cross by one. Starts and ends
are read as brackets: where two spans cross, the inner one closes first. So every instant of a thread has
exactly one innermost span, and no time is lost or counted twice.

Marks that Python sets (`with record_function(...)`) really cross: they begin within the call that sets them
and outlive it. In the tree, such a mark begins when that call has returned, and the calls around it that the
mark outlives.

A call into the driver encloses no operator. One that seems to begin just before an operator that it ends in
begins with that operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64
from tb_gpudiag.facts.core.intervals import Intervals, covered_before, distinct
from tb_gpudiag.facts.core.nesting import Descent, nest, segments
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, HOST_CATEGORIES, Category

# Of spans that begin and end together, the outer kind comes first: user annotations enclose Python functions,
# which enclose operators; calls into the driver are innermost.
_OUTER_FIRST = np.full(max(Category) + 1, 9, np.uint8)
_OUTER_FIRST[
    [Category.USER_ANNOTATION, Category.PYTHON_FUNCTION, Category.CPU_OP, Category.RUNTIME, Category.DRIVER]
] = range(5)


# Old traces cut starts and durations to whole microseconds: a mark that ends with the call around it may seem
# to outlive it by this much.
_CLOCK_NS = 2_000

# Calls are timed by another clock than operators: in a public trace it is 3 us behind, so a call that takes
# 80 ms begins before its operator. Of a call that is not many times as long, it is not known which it is in.
_SKEW_NS = 10_000
_TIMES_SKEW = 10

# Twice as many places as this, and one more, fit 64 bits: nesting doubles them.
_MOST_PLACES = 2**61
_MOST_THREADS = 2**31


@dataclass(frozen=True, eq=False)
class Activity:
    """One thread as segments in order of time, each with its innermost span. Shape (s,) each."""

    borders_ns: Int64  # where each segment begins, and where the last one ends, shape (s + 1,)
    event: Int32  # the innermost event, or NONE between outermost spans

    @property
    def start_ns(self) -> Int64:
        return self.borders_ns[:-1]

    @property
    def end_ns(self) -> Int64:
        return self.borders_ns[1:]

    def during(self, time: Intervals) -> Int64:
        """Return how much of each segment these intervals cover."""
        return np.diff(covered_before(time, self.borders_ns))


NOTHING = Activity(np.zeros(0, np.int64), np.zeros(0, np.int32))
"""Activity of a thread without spans that have a duration."""


def innermost(activities: Mapping[int, Activity], thread: Int32, time_ns: Int64) -> Int64:
    """Return the innermost span on each of these threads at each time, or NONE, shape of `time_ns`."""
    found = np.full(len(time_ns), NONE, np.int64)
    order = np.argsort(thread, kind="stable")
    cuts = np.flatnonzero(np.diff(thread[order])) + 1
    for own in np.split(order, cuts) if len(order) else []:
        activity = activities.get(int(thread[own[0]]), NOTHING)
        if len(activity.event):
            at = np.searchsorted(activity.start_ns, time_ns[own], side="right") - 1
            inside = (at >= 0) & (time_ns[own] < activity.end_ns[np.maximum(at, 0)])
            found[own[inside]] = activity.event[at[inside]]
    return found


class HostTree:
    """The host spans of a trace, nested. `parent`, `depth` and `start_ns` have shape (n,) over all events.

    parent: the event that encloses this one on its thread, or NONE.
    depth: 0 for an outermost span; NONE for events that are not host spans or have no duration.
    start_ns: the event's start; of a mark that Python set, when the call that set it returned; of a call into
    the driver, not before its operator's.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        n = len(events)
        self.start_ns = _within_operators(events, _entered(events))
        self.spans = _in_nesting_order(events, self.start_ns, _host_spans(events))
        starts, ends, self._axis = _on_one_axis(events, self.start_ns, self.spans)
        self._nesting = nesting = nest(starts, ends)
        self.depth: Int32 = np.full(n, NONE, np.int32)
        self.depth[self.spans] = nesting.depth
        self.parent: Int32 = np.full(n, NONE, np.int32)
        around = self.spans[nesting.parents] if len(self.spans) else self.spans
        around[nesting.parents == NONE] = NONE
        self.parent[self.spans] = around
        self._descent = Descent(self.spans, nesting.depth, self.parent)

    @cached_property
    def end_ns(self) -> Int64:
        """When each host span is left, shape (n,): not after the span around it. NONE for other events."""
        end: Int64 = np.full(len(self.depth), NONE, np.int64)
        end[self.spans[self._nesting.opened_by]] = self._axis.times(self._nesting.closes)
        return end

    @cached_property
    def own_ns(self) -> Int64:
        """The time of each event without the spans inside it, shape (n,)."""
        inside = np.flatnonzero(self.parent != NONE)
        own: Int64 = self.events.duration_ns.copy()
        np.subtract.at(own, self.parent[inside], self.events.duration_ns[inside])
        return own

    def activities(self) -> dict[int, Activity]:
        """Return thread index -> its segments, from its first span's start to its last one's end."""
        thread = self.events.thread[self.spans]
        starts_ns = self.start_ns[self.spans]
        threads = len(self.events.threads)
        closes_ns = self._axis.times(self._nesting.closes)
        cut = segments(self._nesting, starts_ns, closes_ns, self.spans, thread, threads)
        found: dict[int, Activity] = {}
        low = 0
        for one in np.flatnonzero(cut.of_thread).tolist():
            high, border = low + int(cut.of_thread[one]), low + len(found)
            found[one] = Activity(cut.borders_ns[border : high + len(found) + 1], cut.innermost[low:high])
            low = high
        return found

    def any_below(self, chosen: Bool) -> Bool:
        """Mask of the host spans that enclose a chosen one, shape (n,)."""
        return self.sum_below(chosen.astype(np.int64)) > 0

    def sum_below(self, values: Int64) -> Int64:
        """Add up what the spans inside of each host span have, shape (n,); 64 bits of a larger sum."""
        before = np.zeros(len(self.spans) + 1, np.int64)
        np.cumsum(values[self.spans], out=before[1:])
        found = np.zeros(len(values), np.int64)
        found[self.spans] = before[self._nesting.last] - before[1:]
        return found

    def count_around(self, chosen: Bool) -> Int64:
        """Return how many chosen spans enclose each host span, shape (n,)."""
        some = np.flatnonzero(chosen[self.spans])
        change = np.zeros(len(self.spans) + 1, np.int64)
        change[some + 1] = 1  # contents follow their span
        np.add.at(change, self._nesting.last[some], -1)
        found = np.zeros(len(chosen), np.int64)
        found[self.spans] = np.cumsum(change)[:-1]
        return found

    def under(self, chosen: Bool) -> Bool:
        """Mask of the host events that are chosen or inside a chosen one, shape (n,)."""
        found: Bool = chosen.copy()
        if chosen.any():
            self._descent.inside(found)
        return found

    def nearest_of(self, chosen: Bool) -> Int32:
        """Return the nearest chosen one among each event and its ancestors, or NONE, shape (n,)."""
        return self.fill(numbers_of(chosen))

    def nearest(self, own: Int32) -> Int32:
        """Return each event's own value or, where it is NONE, the value of the nearest ancestor that has one,
        shape (n,)."""
        return self.fill(own.copy())

    def fill(self, own: Int32) -> Int32:
        """Fill in the values of `own` that are NONE, as `nearest` does, in place."""
        self._descent.nearest(own)
        return own

    def outermost(self, chosen: Bool) -> Int32:
        """Return the outermost chosen one among each event and its ancestors, or NONE, shape (n,)."""
        found = numbers_of(chosen & (self.depth >= 0))
        self._descent.outermost(found)
        return found

    def outermost_of(self, chosen: Bool) -> Bool:
        """Mask of the chosen host spans that are inside no other chosen one, shape (n,)."""
        inside = (self.parent != NONE) & self.under(chosen)[self.parent]
        return chosen & (self.depth >= 0) & ~inside

    def least(self, own: Int64) -> Int64:
        """Set each event's own value to the least one among it and its ancestors, shape (n,), in place."""
        self._descent.least(own)
        return own

    def ancestors(self, event: int) -> list[int]:
        """Return the event and its ancestors, outermost first."""
        chain = []
        while event != NONE:
            chain.append(event)
            event = int(self.parent[event])
        return chain[::-1]


class ThreadAxis:
    """Gives each thread a stretch of the axis, and each of the given times a place in every stretch.

    Places are times since the first one. If the stretches of all threads do not fit 64 bits, because events
    are years apart, places are ranks of times: a trace has fewer than 2**31 threads and times.
    """

    def __init__(self, *times_ns: Int64, threads: int = _MOST_THREADS) -> None:
        """threads: more than the highest thread number."""
        filled = [times for times in times_ns if len(times)]
        self._first_ns = min((int(times.min()) for times in filled), default=0)
        self.stride = max((int(times.max()) for times in filled), default=-1) - self._first_ns + 1
        """Length of each thread's stretch."""
        self._ranked_ns: Int64 | None = None
        if self.stride * threads > _MOST_PLACES:
            self._ranked_ns = distinct(np.concatenate(filled))
            self.stride = len(self._ranked_ns)

    def places(self, thread: Int32, time_ns: Int64) -> Int64:
        """Return the places of times of these threads. The times must be among those of the axis."""
        if self._ranked_ns is None:
            within = time_ns - self._first_ns
        else:
            within = np.searchsorted(self._ranked_ns, time_ns)
        places: Int64 = thread.astype(np.int64)
        places *= self.stride
        places += within
        return places

    def times(self, places: Int64) -> Int64:
        times: Int64 = places % max(self.stride, 1)
        if self._ranked_ns is not None:
            return self._ranked_ns[times]
        times += self._first_ns
        return times


def numbers_of(chosen: Bool) -> Int32:
    """Return the number of each chosen event; NONE for the others."""
    found = np.full(len(chosen), NONE, np.int32)
    some = np.flatnonzero(chosen)
    found[some] = some
    return found


def _host_spans(events: Events) -> Int64:
    host = events.among(*HOST_CATEGORIES) & (events.duration_ns > 0)
    return np.flatnonzero(host).astype(np.int64)


def _entered(events: Events) -> Int64:
    """Compute HostTree.start_ns, shape (n,)."""
    start = events.start_ns
    spans = _host_spans(events)
    spans = spans[
        np.isin(
            events.category[spans], np.array([Category.USER_ANNOTATION, Category.PYTHON_FUNCTION], np.uint8)
        )
    ]
    is_mark = events.category[spans] == Category.USER_ANNOTATION
    if not is_mark.any() or is_mark.all():
        return start
    # Few calls have a mark that begins within them: only these are nested here.
    opens, closes, _ = _on_one_axis(events, start, spans)
    marks = np.sort(opens[is_mark])
    has_mark = np.searchsorted(marks, opens, side="right") < np.searchsorted(marks, closes, side="left")
    spans = _in_nesting_order(events, start, spans[is_mark | has_mark])
    opens, closes, _ = _on_one_axis(events, start, spans)
    # Only calls nest: a mark that ends in the call that sets the next one crosses them. So marks are an
    # instant long here. Doubled, the axis has a place for the end of that instant.
    is_mark = events.category[spans] == Category.USER_ANNOTATION
    parents = nest(2 * opens, np.where(is_mark, 2 * opens + 1, 2 * closes)).parents
    begins_ns, ends_ns = start[spans], events.end_ns[spans]
    left_ns = np.where(is_mark, begins_ns, ends_ns)
    mark = np.flatnonzero(is_mark)
    entered = begins_ns.copy()
    above = parents[mark]
    while len(mark):
        outlived = (above >= 0) & (left_ns[above] + _CLOCK_NS < ends_ns[mark])
        mark, above = mark[outlived], above[outlived]
        entered[mark] = np.maximum(entered[mark], left_ns[above])
        above = parents[above]
    moved: Int64 = start.copy()
    moved[spans] = entered
    return moved


def _within_operators(events: Events, start_ns: Int64) -> Int64:
    """Return the starts, shape (n,), with those of calls into the driver moved to the start of the operator
    that they end in, if that begins within _SKEW_NS."""
    calls, operators = events.where(*CALL_CATEGORIES), events.where(Category.CPU_OP)
    calls = calls[events.duration_ns[calls] > _TIMES_SKEW * 1_000]
    if not len(calls) or not len(operators):
        return start_ns
    axis = ThreadAxis(start_ns[calls], start_ns[operators], threads=len(events.threads))
    opens = axis.places(events.thread[operators], start_ns[operators])
    order = np.argsort(opens, kind="stable")
    at = np.searchsorted(opens[order], axis.places(events.thread[calls], start_ns[calls]), side="right")
    around = operators[order[np.minimum(at, len(order) - 1)]]
    early_ns = start_ns[around] - start_ns[calls]
    inside = (events.thread[around] == events.thread[calls]) & (early_ns > 0) & (early_ns <= _SKEW_NS)
    inside &= events.duration_ns[calls] >= _TIMES_SKEW * early_ns
    inside &= events.end_ns[calls] <= events.end_ns[around] + _SKEW_NS
    moved: Int64 = start_ns.copy()
    moved[calls[inside]] = start_ns[around[inside]]
    return moved


def _on_one_axis(events: Events, start_ns: Int64, spans: Int64) -> tuple[Int64, Int64, ThreadAxis]:
    """Return the places of starts and ends on an axis where each thread has a stretch of its own, and that
    axis."""
    start, end, thread = start_ns[spans], events.end_ns[spans], events.thread[spans]
    axis = ThreadAxis(start, end, threads=len(events.threads))
    return axis.places(thread, start), axis.places(thread, end), axis


def _in_nesting_order(events: Events, start_ns: Int64, spans: Int64) -> Int64:
    """Sort the spans by thread, then start; of spans that start together, the outer one comes first."""
    spans = spans[np.argsort(start_ns[spans], kind="stable")]
    spans = spans[np.argsort(events.thread[spans], kind="stable")]
    start, thread = start_ns[spans], events.thread[spans]
    same = np.r_[False, (start[1:] == start[:-1]) & (thread[1:] == thread[:-1])]
    tied = np.flatnonzero(same | np.r_[same[1:], False])
    if len(tied):
        some = spans[tied]
        group = np.cumsum(~same)[tied]
        length = events.end_ns[some] - start_ns[some]
        is_call = np.isin(events.category[some], np.array(CALL_CATEGORIES, np.uint8))
        order = np.lexsort((_OUTER_FIRST[events.category[some]], -length, is_call, group))
        spans[tied] = some[order]
    return spans
