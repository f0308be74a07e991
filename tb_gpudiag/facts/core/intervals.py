"""Sets of half-open intervals [start, end) as pairs of int64 arrays, in any unit. Pure: no trace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64, Numbers, mask_of
from tb_gpudiag.frozen import dataclass


class Intervals(NamedTuple):
    """Intervals [start, end), shape (k,) each. Those of a "set" are sorted, not empty, and do not touch."""

    start: Int64
    end: Int64

    @property
    def total(self) -> int:
        """The sum of the lengths."""
        return int((self.end - self.start).sum())


@dataclass(frozen=True)
class Window:
    """A stretch of the trace, [start_ns, end_ns)."""

    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    def contains(self, time_ns: Int64) -> Bool:
        """Mask of the times in it, shape of `time_ns`."""
        return (time_ns >= self.start_ns) & (time_ns < self.end_ns)


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def distinct(values: Numbers) -> Int64:
    """Return the different values, ascending. If most differ, np.unique is 10 times slower (NumPy 2.3)."""
    low, size = _span(values)
    if size <= _few(values):
        return np.flatnonzero(mask_of(values - low, size)) + low
    ordered = np.sort(values.astype(np.int64), kind="stable")  # fast for values that are nearly in order
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def numbered(values: Numbers) -> tuple[Int64, Int64]:
    """Return the different values, ascending, and where each value is among them. For numbers close to each
    other this needs no sort, as np.unique does."""
    low, size = _span(values)
    if size > _few(values):
        return np.unique(values.astype(np.int64), return_inverse=True)
    used = mask_of(values - low, size)
    different = np.flatnonzero(used) + low
    return different, (np.cumsum(used) - 1)[values - low]


def _span(values: Numbers) -> tuple[int, int]:
    """Return the least of the values and 0, and how many whole numbers there are from it to the greatest."""
    low = int(values.min(initial=0))
    return low, int(values.max(initial=0)) - low + 1


def _few(values: Numbers) -> int:
    """Return up to how many whole numbers a mask of them takes less time than a sort of the values."""
    return max(4 * len(values), 1_000)


def groups(*columns: Int64) -> tuple[Int64, Int64]:
    """Group equal rows of codes (NONE or more): (the group of each row, the first row of each group)."""
    rows = len(columns[0])
    number = np.zeros(rows, np.int64)
    for column in columns:
        # Numbers of groups are small, so a product of two codes does not overflow.
        both = number * (int(column.max(initial=0)) + 2) + column + 1
        number = numbered(both)[1].reshape(-1)
    first = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    first[number[::-1]] = np.arange(rows - 1, -1, -1)  # of several rows the last one stays
    return number, first


def places_of_each(values: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, Int64]]:
    """Yield each different value, ascending, with the indices at which it is, ascending. One sort finds all:
    to compare the array with each value takes quadratic time where a trace has many threads or streams."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(values)])
    for low, high in pairwise([*first.tolist(), len(values)]):
        yield int(ordered[low]), order[low:high]


def union(start: Int64, end: Int64) -> Intervals:
    """Return the set that any intervals cover. They may overlap, be empty and be in any order."""
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.r_[True, start[1:] > reach[:-1]]
    return Intervals(start[first], reach[np.r_[first[1:], True]])


def running_maximum(values: Int64, group: Int64) -> Int64:
    """Return the greatest value so far within each group, shape of `values`: whole numbers from 0 that are
    small, as indices are. Groups follow one another, numbered in that order."""
    above = group * (int(values.max(initial=0)) + 1)
    return np.maximum.accumulate(above + values) - above


def lengths_of_each(start: Int64, end: Int64, group: Int64) -> Int64:
    """Return how much the intervals of each group cover together, for the groups that cover something, in
    their order. They may overlap, be empty and be in any order."""
    keep = end > start
    start, end, group = start[keep], end[keep], group[keep]
    order = np.lexsort((start, group))
    start, group = start[order], numbered(group[order])[1]
    ends, place = numbered(end)
    reach = ends[running_maximum(place[order], group)]
    first = np.flatnonzero(np.diff(group, prepend=NONE))
    covered_to = np.r_[start[:1], reach[:-1]]
    covered_to[first] = start[first]
    new = reach - np.maximum(start, covered_to)
    return np.add.reduceat(new, first) if len(first) else new


def merged(*parts: Intervals) -> Intervals:
    """Return the union of these."""
    return union(np.concatenate([p.start for p in parts]), np.concatenate([p.end for p in parts]))


def complement(intervals: Intervals, low: int, high: int) -> Intervals:
    """Return the part of [low, high) that the set does not cover."""
    inside = clip(intervals, low, high)
    start, end = np.r_[np.int64(low), inside.end], np.r_[inside.start, np.int64(max(high, low))]
    keep = end > start
    return Intervals(start[keep], end[keep])


def clip(intervals: Intervals, low: int, high: int) -> Intervals:
    """Return the part of the set in [low, high)."""
    start, end = np.maximum(intervals.start, low), np.minimum(intervals.end, high)
    keep = end > start
    return Intervals(start[keep], end[keep])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Return the part of set `a` that set `b` does not cover."""
    if not len(a.start):
        return a
    low, high = int(a.start[0]), int(a.end[-1])
    return intersect(a, complement(b, low, high))


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Return the set that both sets cover."""
    left, right = overlapping(b, a.start, a.end)
    owner, inner = expand(left, right)
    start = np.maximum(a.start[owner], b.start[inner])
    end = np.minimum(a.end[owner], b.end[inner])
    return Intervals(start, end)


def overlapping(intervals: Intervals, start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Return the range left:right of the intervals that each query [start, end) overlaps. The intervals are
    sorted and disjoint."""
    left = np.searchsorted(intervals.end, start, side="right")
    right = np.maximum(np.searchsorted(intervals.start, end, side="left"), left)
    return left.astype(np.int64), right.astype(np.int64)


def expand(left: Int64, right: Int64) -> tuple[Int64, Int64]:
    """Write out the ranges left:right as (owner, index), e.g. [2:4, 7:8] -> ([0, 0, 1], [2, 3, 7])."""
    count = right - left
    owner = np.repeat(np.arange(len(left), dtype=np.int64), count)
    first = np.cumsum(count) - count
    return owner, np.arange(len(owner), dtype=np.int64) - first[owner] + left[owner]


def coverage(intervals: Intervals, start: Int64, end: Int64) -> Int64:
    """Return how much of each query [start, end) the set covers, shape of `start`."""
    return covered_before(intervals, end) - covered_before(intervals, start)


def covered_before(intervals: Intervals, at: Int64) -> Int64:
    """Return how much the set covers before each of these times, shape of `at`."""
    if not len(intervals.start):
        return np.zeros(len(at), np.int64)
    length = intervals.end - intervals.start
    before = np.cumsum(length) - length
    index = np.searchsorted(intervals.start, at, side="right") - 1
    safe = np.maximum(index, 0)
    inside = np.minimum(at - intervals.start[safe], length[safe])
    return np.where(index < 0, 0, before[safe] + inside)


MOST_RANGES = 5
"""Enough for one row of a table."""


class ShownRanges(NamedTuple):
    """At most MOST_RANGES stretches [start, end). Shape (r,) each. device: the GPU, or NONE for the host."""

    start_ns: Int64
    end_ns: Int64
    device: Int64


def longest(start_ns: Int64, end_ns: Int64, device: int = NONE) -> ShownRanges:
    """Return the longest of these stretches, longest first; of equally long ones the first."""
    some = heaviest(end_ns - start_ns)
    return ShownRanges(start_ns[some], end_ns[some], np.full(len(some), device, np.int64))


def heaviest(weight: Int64) -> Int64:
    """Return the indices of the MOST_RANGES greatest weights, greatest first; of equal weights the first."""
    some = np.arange(len(weight))
    if len(weight) > MOST_RANGES:
        least = np.partition(weight, len(weight) - MOST_RANGES)[len(weight) - MOST_RANGES]
        above, equal = np.flatnonzero(weight > least), np.flatnonzero(weight == least)
        some = np.r_[above, equal[: MOST_RANGES - len(above)]]
    return some[np.argsort(-weight[some], kind="stable")]
