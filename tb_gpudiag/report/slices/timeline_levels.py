"""Levels of detail: rows of boxes, merged ever more coarsely, so that any range at any zoom can be cut out
cheaply.

At level L, boxes that are shorter than the level's resolution and begin in the same cell of that length are
one box. A box is stored once, with the level at which it first exists (`birth`) and the level at which it is
merged into another box (`death`). All levels together have at most twice as many boxes as there are events.
At most about three boxes per cell of level d - 1 die at level d. A slice at level L takes the boxes with
birth <= L < death. It finds them by binary search, and their number depends on the slice's width in pixels,
not on the trace.

Boxes of a row never overlap.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Bool, Int32, Int64, UInt8
from tb_gpudiag.facts.core.intervals import expand
from tb_gpudiag.frozen import dataclass

_Integers = npt.NDArray[np.integer[Any]]

# Resolution of level 1, far below what a screen shows at the deepest zoom. A power of two.
FINEST_NS = 256
_FINEST_BITS = FINEST_NS.bit_length() - 1

# Rows are not merged beyond this many cells: no screen shows a trace on fewer pixels.
FEWEST_CELLS = 16

# The search key packs segment and time into one int64.
_KEY_BITS = 62


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes, shape (b,) each.

    A merged box has the name that takes more than half of its time, if there is one, else one of the names
    that take most. Its kind and number are those of an event of that name. Its duration is the sum of its
    events' durations.
    """

    row: Int32
    start_ns: Int64
    duration_ns: Int64
    name: Int32
    kind: UInt8
    number: Int32  # of the event; in gap lanes of the gap on its device
    count: Int32

    def __len__(self) -> int:
        return len(self.row)

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        return tuple(getattr(self, column.name) for column in fields(self))

    def take(self, index: Int64 | Bool) -> Boxes:
        return Boxes(*(column[index] for column in self.columns))

    @staticmethod
    def of(
        row: _Integers, start_ns: Int64, end_ns: Int64, name: _Integers, kind: _Integers, number: Int64
    ) -> Boxes:
        return Boxes(
            row.astype(np.int32),
            start_ns,
            end_ns - start_ns,
            name.astype(np.int32),
            kind.astype(np.uint8),
            number.astype(np.int32),
            np.ones(len(row), np.int32),
        )

    @staticmethod
    def join(parts: list[Boxes]) -> Boxes:
        if not parts:
            none, none32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
            return Boxes(none32, none, none, none32, np.zeros(0, np.uint8), none32, none32)
        return Boxes(*map(np.concatenate, zip(*(part.columns for part in parts), strict=True)))


@dataclass(frozen=True, eq=False)
class Levels:
    """Boxes of all levels, sorted by segment and start. A segment is the boxes of one row that die at the
    same level. Arrays have shape (b,), except `first`.

    key: segment * stride + ((start - origin) >> shift), ascending. Encodes row, death and start of a box. The
        shift is 0 except for recordings of many hours.
    first: where each segment begins, shape (segments + 1,). A segment's number is death * rows + row, with
        death from 1 to last + 1.
    """

    key: Int64
    birth: UInt8
    duration_ns: Int64
    name: Int32
    kind: UInt8
    number: Int32
    count: Int32
    first: Int64
    rows: int
    last: int  # the coarsest level
    origin_ns: int
    stride: int
    shift: int

    def boxes(self, index: Int64, segment: Int64) -> Boxes:
        return Boxes(
            (segment % self.rows).astype(np.int32),
            ((self.key[index] - segment * self.stride) << self.shift) + self.origin_ns,
            self.duration_ns[index],
            self.name[index],
            self.kind[index],
            self.number[index],
            self.count[index],
        )


def build_levels(boxes: Boxes, rows: int) -> Levels:
    """Merge boxes, one per event, in any order. There are at most 65,536 rows. If two boxes of a row overlap,
    the earlier one is cut short."""
    alive = boxes.take(np.argsort(boxes.start_ns, kind="stable"))
    alive = alive.take(np.argsort(alive.row.astype(np.uint16), kind="stable"))
    end = alive.start_ns + alive.duration_ns
    same_row = alive.row[1:] == alive.row[:-1]
    end[:-1] = np.where(same_row, np.minimum(end[:-1], alive.start_ns[1:]), end[:-1])
    alive = replace(alive, duration_ns=end - alive.start_ns)
    birth = np.zeros(len(alive), np.uint8)
    votes = alive.duration_ns
    low = int(alive.start_ns.min()) if len(alive) else 0
    span = int(end.max()) - low if len(alive) else 0
    last = max(0, (span // (FEWEST_CELLS * FINEST_NS)).bit_length())
    done: list[tuple[Boxes, UInt8, int]] = []
    for level in range(1, last + 1):
        # Mask of boxes that are merged with the box before them, shape (b - 1,).
        bits = _FINEST_BITS + level - 1
        small = end - alive.start_ns < 1 << bits
        cell = (alive.start_ns - low) >> bits
        join = small[1:] & small[:-1] & (cell[1:] == cell[:-1]) & (alive.row[1:] == alive.row[:-1])
        if not join.any():
            continue
        group = np.cumsum(np.r_[True, ~join]) - 1
        size = np.bincount(group)
        merged = size >= 2
        member = merged[group]
        done.append((alive.take(member), birth[member], level))
        first = np.flatnonzero(np.r_[True, ~join])
        end = np.maximum.reduceat(end, first)
        whole, won = _merge(alive.take(member), votes[member], np.cumsum(merged)[group[member]] - 1)
        columns = tuple(column.copy() for column in alive.take(first).columns)
        for column, new in zip(columns, whole.columns, strict=True):
            column[merged] = new
        alive, birth, votes = Boxes(*columns), birth[first], votes[first]
        birth[merged], votes[merged] = level, won
    done.append((alive, birth, last + 1))
    return _indexed(done, rows, last)


def _merge(members: Boxes, votes: Int64, group: Int64) -> tuple[Boxes, Int64]:
    """Merge each group into one box, and return the votes for its name. Groups are numbered from 0, and
    members are sorted by group.

    Majority vote: the name with most votes wins and keeps its lead over the second. So a name with more than
    half of all time cannot lose, in whatever order boxes are merged.
    """
    first = np.searchsorted(group, np.arange(int(group[-1]) + 1))
    order = np.lexsort((-members.duration_ns, members.name, group))
    sorted_group, sorted_name = group[order], members.name[order]
    run = np.flatnonzero(
        np.r_[True, (sorted_group[1:] != sorted_group[:-1]) | (sorted_name[1:] != sorted_name[:-1])]
    )
    for_name, of_group = np.add.reduceat(votes[order], run), sorted_group[run]
    ranked = np.lexsort((-for_name, of_group))
    winner = np.searchsorted(of_group[ranked], np.arange(len(first)))
    second = np.minimum(winner + 1, len(ranked) - 1)
    contested = (of_group[ranked[second]] == np.arange(len(first))) & (second > winner)
    lead = for_name[ranked[winner]] - np.where(contested, for_name[ranked[second]], 0)
    longest = order[run[ranked[winner]]]
    merged = Boxes(
        members.row[first],
        members.start_ns[first],
        np.add.reduceat(members.duration_ns, first),
        members.name[longest],
        members.kind[longest],
        members.number[longest],
        np.add.reduceat(members.count, first),
    )
    return merged, lead


def _indexed(done: list[tuple[Boxes, UInt8, int]], rows: int, last: int) -> Levels:
    """Build the search index. done: for each level in ascending order the boxes that die there, sorted by
    row and start, their births, and the level."""
    boxes = Boxes.join([part for part, _, _ in done])
    death = np.repeat([level for _, _, level in done], [len(part) for part, _, _ in done])
    segment = death * rows + boxes.row
    origin = int(boxes.start_ns.min()) if len(boxes) else 0
    reach = int(boxes.start_ns.max()) - origin if len(boxes) else 0
    segments = (last + 2) * rows
    shift = 0
    while ((reach >> shift) + 2) * max(segments, 1) >= 1 << _KEY_BITS:
        shift += 1
    stride = (reach >> shift) + 2
    return Levels(
        key=segment * stride + ((boxes.start_ns - origin) >> shift),
        birth=np.concatenate([part for _, part, _ in done]),
        duration_ns=boxes.duration_ns,
        name=boxes.name,
        kind=boxes.kind,
        number=boxes.number,
        count=boxes.count,
        first=np.searchsorted(segment, np.arange(segments + 1)).astype(np.int64),
        rows=rows,
        last=last,
        origin_ns=origin,
        stride=stride,
        shift=shift,
    )


def slice_levels(levels: Levels, start_ns: int, end_ns: int, width: int, most: int) -> Boxes:
    """Return the boxes of [start, end) on `width` pixels, sorted by row and start: a few per pixel and row,
    and not many more than `most` in total. If that is too few for all rows, the fullest rows are merged more
    coarsely.
    """
    rows, last = levels.rows, levels.last
    if not len(levels.key):
        return Boxes.join([])
    pixel_ns = max(1, (end_ns - start_ns) // width)
    finest = min(last, max(0, pixel_ns.bit_length() - _FINEST_BITS))
    segment = np.arange((finest + 1) * rows, (last + 2) * rows)
    low, high = segment_ranges(levels, segment, start_ns, end_ns)
    level = _level_of_rows((high - low).reshape(-1, rows), finest, most)
    wanted = segment // rows > np.tile(level, len(segment) // rows)
    owner, index = expand(low[wanted], high[wanted])
    found = levels.boxes(index, segment[wanted][owner])
    shows = (
        (levels.birth[index] <= level[found.row])
        & (found.start_ns < end_ns)
        & ((found.start_ns + found.duration_ns > start_ns) | (found.start_ns >= start_ns))
    )
    found = found.take(shows)
    return found.take(np.lexsort((found.start_ns, found.row)))


def segment_ranges(levels: Levels, segment: Int64, start_ns: int, end_ns: int) -> tuple[Int64, Int64]:
    """Where the boxes of the range are in each segment, from the last box that begins before the range."""

    def at(time_ns: int) -> int:
        return min(max((time_ns - levels.origin_ns) >> levels.shift, 0), levels.stride - 1)

    base = segment * levels.stride
    low = np.searchsorted(levels.key, base + at(start_ns), side="left") - 1
    low = np.maximum(low, levels.first[segment])
    high = np.searchsorted(levels.key, base + at(end_ns), side="right")
    return low.astype(np.int64), np.maximum(high, low).astype(np.int64)


def _level_of_rows(found: Int64, finest: int, most: int) -> Int64:
    """Level of detail of each row, shape (rows,). found: number of boxes that die at the level above each
    level from `finest`, shape (levels, rows)."""
    at_level = np.cumsum(found[::-1], axis=0)[::-1]
    share = most
    while True:
        fits = at_level <= share
        # Counts fall with the level, so the first level that fits is the finest. If none fits, take the
        # coarsest.
        step = np.where(fits.any(axis=0), fits.argmax(axis=0), len(found) - 1)
        total = int(at_level[step, np.arange(found.shape[1])].sum())
        if total <= most or share == 0:
            return np.asarray(finest + step, np.int64)
        share //= 2
