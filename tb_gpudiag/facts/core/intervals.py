"""Sets of half-open intervals [start, end) as pairs of int64 arrays. Pure: no trace, no units beyond "the
same"."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.trace.events import Bool, Int64


class Intervals(NamedTuple):
    """Shape (k,) each. Where a function says "a set", they are sorted, disjoint, not touching and not
    empty."""

    start: Int64
    end: Int64

    @property
    def total(self) -> int:
        """The sum of the lengths."""
        return int((self.end - self.start).sum())


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: Int64, end: Int64) -> Intervals:
    """The set covered by any intervals, in any order; empty ones vanish."""
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.r_[True, start[1:] > reach[:-1]]
    return Intervals(start[first], reach[np.r_[first[1:], True]])


def complement(intervals: Intervals, low: int, high: int) -> Intervals:
    """What of [low, high) the set leaves uncovered."""
    inside = clip(intervals, low, high)
    start, end = np.r_[np.int64(low), inside.end], np.r_[inside.start, np.int64(max(high, low))]
    keep = end > start
    return Intervals(start[keep], end[keep])


def clip(intervals: Intervals, low: int, high: int) -> Intervals:
    """The part of the set inside [low, high)."""
    start, end = np.maximum(intervals.start, low), np.minimum(intervals.end, high)
    keep = end > start
    return Intervals(start[keep], end[keep])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The part of set `a` that set `b` does not cover."""
    if not len(a.start) or not len(b.start):
        return a
    low, high = int(a.start[0]), int(a.end[-1])
    return intersect(a, complement(b, low, high))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The set that both sets cover."""
    left, right = overlapping(b, a.start, a.end)
    owner, inner = expand(left, right)
    start = np.maximum(a.start[owner], b.start[inner])
    end = np.minimum(a.end[owner], b.end[inner])
    return Intervals(start, end)


def overlapping(intervals: Intervals, start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """For each query [start, end): the range left:right of members that it overlaps. Members are sorted and
    disjoint."""
    left = np.searchsorted(intervals.end, start, side="right")
    right = np.maximum(np.searchsorted(intervals.start, end, side="left"), left)
    return left.astype(np.int64), right.astype(np.int64)


def expand(left: Int64, right: Int64) -> tuple[Int64, Int64]:
    """Ranges left:right written out: (owner, index), e.g. [2:4, 7:8] -> ([0, 0, 1], [2, 3, 7])."""
    count = right - left
    owner = np.repeat(np.arange(len(left), dtype=np.int64), count)
    first = np.cumsum(count) - count
    return owner, np.arange(len(owner), dtype=np.int64) - first[owner] + left[owner]


def coverage(intervals: Intervals, start: Int64, end: Int64) -> Int64:
    """How much of each query [start, end) the set covers. Shape of `start`."""
    if not len(intervals.start):
        return np.zeros(len(start), np.int64)
    return _measure_before(intervals, end) - _measure_before(intervals, start)


def _measure_before(intervals: Intervals, at: Int64) -> Int64:
    length = intervals.end - intervals.start
    before = np.cumsum(length) - length
    index = np.searchsorted(intervals.start, at, side="right") - 1
    safe = np.maximum(index, 0)
    inside = np.minimum(at - intervals.start[safe], length[safe])
    return np.where(index < 0, 0, before[safe] + inside)


def contains(intervals: Intervals, at: Int64) -> Bool:
    """Whether each point lies in the set. Shape of `at`."""
    if not len(intervals.start):
        return np.zeros(len(at), np.bool_)
    index = np.searchsorted(intervals.start, at, side="right") - 1
    return (index >= 0) & (at < intervals.end[np.maximum(index, 0)])
