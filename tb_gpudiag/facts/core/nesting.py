"""Nesting: spans on one axis as a tree, found by sorting and searching by depth."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, Numbers
from tb_gpudiag.frozen import dataclass


@dataclass(frozen=True, eq=False)
class Nesting:
    """Spans in nesting order: by start, the outer one first. Shape (k,) each; spans are given by their place.

    Starts and ends are brackets: where two spans cross, the inner one closes first. None is empty.
    """

    closes: Int64  # ends of all spans, sorted
    depth: Int32  # 0 for an outermost span
    parents: Int32  # the span around each, or NONE
    opened_by: Int32  # the span that each of `closes` ends
    last: Int32  # the first span after each that it does not enclose


def nest(starts: Int64, ends: Int64) -> Nesting:
    closes = np.sort(ends, kind="stable")  # ends are nearly in order, which only this kind makes use of
    places = np.arange(len(starts))
    depth = places - np.searchsorted(closes, starts, side="right")
    by_depth = _order(depth)
    # The k-th opening of a depth is closed by the k-th closing of that depth.
    begun = np.searchsorted(starts, closes, side="left")
    opened_by, last = np.empty(len(starts), np.int32), np.empty(len(starts), np.int32)
    opened_by[_order(begun - places - 1)] = by_depth
    last[opened_by] = begun
    return Nesting(closes, depth.astype(np.int32), _parents(depth, by_depth), opened_by, last)


def _parents(depth: Int64, by_depth: Int64) -> Int32:
    """Return the last span before each that is one level up, or NONE. Spans are in nesting order."""
    count = len(depth)
    parents = np.empty(count, np.int32)
    if not count:
        return parents
    keys = depth[by_depth] * count + by_depth
    above = by_depth[np.maximum(np.searchsorted(keys, keys - count) - 1, 0)]
    parents[by_depth] = above
    parents[depth == 0] = NONE
    return parents


def _order(depth: Numbers) -> Int64:
    """Sort depths, which are small: NumPy sorts 16 bits in linear time."""
    small = depth.astype(np.int16) if depth.max(initial=0) < 1 << 15 else depth
    return np.argsort(small, kind="stable")


@dataclass(frozen=True, eq=False)
class ThreadSegments:
    """Threads cut where a span starts or ends, one thread after the other.

    borders_ns: of each thread's segments, one more than it has. innermost: event of each segment's innermost
    span, or NONE between outermost spans. of_thread: how many segments each thread has.
    """

    borders_ns: Int64
    innermost: Int32
    of_thread: Int64


def segments(
    nesting: Nesting, starts_ns: Int64, closes_ns: Int64, events: Int64, thread: Int32, threads: int
) -> ThreadSegments:
    """Cut the threads where their spans start and end.

    starts_ns, closes_ns: the times of these places. events, thread: of each span; threads ascend and are
    below `threads`.
    """
    count = len(thread)
    # Place of each bracket in the merged order: closings before openings at the same instant.
    places = np.arange(count)
    open_at, close_at = 2 * places - nesting.depth, places + nesting.last[nesting.opened_by]
    time = np.empty(2 * count, np.int64)
    span, inner = np.empty(2 * count, np.int32), np.empty(2 * count, np.int32)
    time[open_at], time[close_at] = starts_ns, closes_ns
    span[open_at], span[close_at] = places, nesting.opened_by
    inner[open_at], inner[close_at] = places, nesting.parents[nesting.opened_by]
    on = thread[span]
    same = on[1:] == on[:-1]
    longer = time[1:] > time[:-1]
    innermost = inner[:-1][longer & same]
    if count:
        innermost = np.where(innermost == NONE, np.int32(NONE), events.astype(np.int32)[innermost])
        time = time[np.r_[True, longer | ~same]]
    return ThreadSegments(time, innermost, np.bincount(on[:-1][longer & same], minlength=threads))


class Descent:
    """Passes values from spans to the spans inside them. Values have shape (n,) over all events, and are
    changed in place.

    spans: in nesting order, shape (k,). depth: of each, shape (k,). parent: the event around each event, or
    NONE, shape (n,).
    """

    def __init__(self, spans: Int64, depth: Numbers, parent: Numbers) -> None:
        self._spans, self._depth, self._parent = spans, depth, parent

    def nearest(self, found: Numbers) -> None:
        """Replace NONE by the value of the nearest span around it."""
        for here in self._by_depth:
            here = here[found[here] == NONE]
            found[here] = found[self._parent[here]]

    def inside(self, found: Bool) -> None:
        """Set what is inside a set span."""
        for here in self._by_depth:
            found[here] |= found[self._parent[here]]

    def outermost(self, found: Numbers) -> None:
        """Replace every value by that of the outermost span around it with one."""
        for here in self._by_depth:
            above = found[self._parent[here]]
            found[here] = np.where(above == NONE, found[here], above)

    def least(self, found: Int64) -> None:
        """Replace every value by the least one of the span and those around it."""
        for here in self._by_depth:
            found[here] = np.minimum(found[here], found[self._parent[here]])

    @cached_property
    def _by_depth(self) -> list[Int64]:
        """Spans with a parent, level by level from the outside."""
        order = _order(self._depth)
        levels = np.searchsorted(self._depth[order], np.arange(int(self._depth.max(initial=0)) + 2))
        spans = self._spans[order]
        return [spans[low:high] for low, high in pairwise(levels[1:].tolist())]
