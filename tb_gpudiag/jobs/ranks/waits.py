"""Who waits for whom: arrivals, waiting and transfer of each matched collective, and why the last rank was
late. Ranks that start to record late are late at their first collective, whatever they do."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.collective_matching import Matching
from tb_gpudiag.jobs.ranks.operations import RankOperations


@dataclass(frozen=True, eq=False)
class Waits:
    """Matched operations, by collective and then by arrival; collectives are in order of their first arrival.

    row: of the operations, shape (m,). collective: shape (m,), 0 to c - 1. bounds: where each collective's
    operations begin, and the end; shape (c + 1,). arrival_ns, end_ns: on the reference clock, shape (m,).
    Members without a known clock are left out of collectives between hosts.
    """

    row: Int64
    collective: Int64
    bounds: Int64
    arrival_ns: Int64
    end_ns: Int64
    member: Int32
    exposed_ns: Int64

    def __len__(self) -> int:
        """Return the number of collectives."""
        return len(self.bounds) - 1

    @cached_property
    def size(self) -> Int64:
        """Members of each collective, shape (c,)."""
        return np.diff(self.bounds)

    @cached_property
    def first_ns(self) -> Int64:
        """First arrival, shape (c,)."""
        return self.arrival_ns[self.bounds[:-1]]

    @cached_property
    def last_ns(self) -> Int64:
        """Last arrival, shape (c,)."""
        return self.arrival_ns[self.bounds[1:] - 1]

    @cached_property
    def middle_ns(self) -> Int64:
        """Median arrival, the earlier one of two; shape (c,)."""
        middle: Int64 = self.bounds[:-1] + (self.size - 1) // 2
        return self.arrival_ns[middle]

    @cached_property
    def skew_ns(self) -> Int64:
        """Last arrival - first arrival, shape (c,)."""
        return self.last_ns - self.first_ns

    @cached_property
    def over_ns(self) -> Int64:
        """Last end, shape (c,)."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.asarray(np.maximum.reduceat(self.end_ns, self.bounds[:-1]), np.int64)

    @cached_property
    def transfer_ns(self) -> Int64:
        """Last end - last arrival, shape (c,)."""
        return np.asarray(np.maximum(0, self.over_ns - self.last_ns), np.int64)

    @cached_property
    def last_member(self) -> Int32:
        """Member that arrived last, shape (c,)."""
        return self.member[self.bounds[1:] - 1]

    @cached_property
    def first_member(self) -> Int32:
        """Member that arrived first, shape (c,)."""
        return self.member[self.bounds[:-1]]

    @cached_property
    def last_row(self) -> Int64:
        """Operation of the member that arrived last, shape (c,)."""
        return self.row[self.bounds[1:] - 1]

    @cached_property
    def waiting_ns(self) -> Int64:
        """Time until the last arrival, at most to its own end; shape (m,)."""
        until = np.minimum(self.last_ns[self.collective], self.end_ns)
        return np.asarray(np.maximum(0, until - self.arrival_ns), np.int64)

    @cached_property
    def transferring_ns(self) -> Int64:
        """Time from the last arrival to its own end, shape (m,)."""
        return np.asarray(np.maximum(0, self.end_ns - self.last_ns[self.collective]), np.int64)

    def waiting_by(self, group: Int64, groups: int) -> Int64:
        """How long the operations of each group were waiting, shape (groups,). What overlaps counts once.

        group: of each operation, or NONE; shape (m,).
        """
        until = np.minimum(self.last_ns[self.collective], self.end_ns)
        return _covered(self.arrival_ns, until, group, groups)

    def under_way_by(self, group: Int64, groups: int) -> Int64:
        """How long the operations of each group waited or transferred, shape (groups,)."""
        return _covered(self.arrival_ns, self.end_ns, group, groups)

    @cached_property
    def exposed_waiting_ns(self) -> Int64:
        """Waiting while nothing computes, at most; shape (m,).

        The exposed part of an operation counts as waiting first: computing that overlaps with the operation
        was launched before."""
        return np.asarray(np.minimum(self.waiting_ns, self.exposed_ns), np.int64)

    def waiting_for_each(self, members: int) -> Float64:
        """How long the others wait for each member that arrives last, while nothing computes: mean over them,
        shape (members,), in ns."""
        of = self.last_member[self.collective]
        others = np.maximum(1, self.size - 1)[self.collective]
        return np.asarray(np.bincount(of, self.exposed_waiting_ns / others, members), np.float64)

    @cached_property
    def exposed_transfer_ns(self) -> Int64:
        """Transfer while nothing computes, at least; shape (m,)."""
        return np.asarray(np.clip(self.exposed_ns - self.waiting_ns, 0, self.transferring_ns), np.int64)


def _covered(start: Int64, end: Int64, group: Int64, groups: int) -> Int64:
    """Return how much time the intervals [start, end) of each group cover, shape (groups,)."""
    order = np.lexsort((start, group))
    order = order[group[order] != NONE]
    start, end, group = start[order], np.maximum(start, end)[order], group[order]
    # Ranks of ends, behind the group's number: their maximum so far never comes from an earlier group.
    ends, rank = np.unique(end, return_inverse=True)
    latest = np.maximum.accumulate(group * len(ends) + rank.reshape(-1))
    before = np.r_[start[:1], ends[latest[:-1] % max(1, len(ends))]]
    before = np.where(np.diff(group, prepend=NONE) != 0, start, before)
    found = np.zeros(groups, np.int64)
    np.add.at(found, group, np.maximum(0, end - np.maximum(start, before)))
    return found


def waits_of(operations: RankOperations, matching: Matching, clocks: Clocks) -> Waits:
    """Put the matched operations on one clock, and sort them by collective and arrival."""
    start = clocks.corrected(operations, operations.start_ns)
    end = clocks.corrected(operations, operations.end_ns)
    row = np.flatnonzero(matching.collective != NONE)
    # Mask of the operations whose times can be compared within their collective.
    collective = matching.collective[row]
    member = operations.member[row]
    host = clocks.host[member]
    low = np.full(len(matching), np.iinfo(np.int32).max, np.int32)
    high = np.full(len(matching), -1, np.int32)
    np.minimum.at(low, collective, host)
    np.maximum.at(high, collective, host)
    row = row[np.asarray(clocks.known[member] | (low == high)[collective], np.bool_)]
    count = np.bincount(matching.collective[row], minlength=len(matching))
    row = row[count[matching.collective[row]] > 1]
    own = matching.collective[row]
    first = np.full(len(matching), np.iinfo(np.int64).max)
    np.minimum.at(first, own, start[row])
    order = np.lexsort((start[row], own, first[own]))
    row = row[order]
    own = matching.collective[row]
    new = np.diff(own, prepend=-1) != 0 if len(own) else np.zeros(0, np.bool_)
    begins = np.flatnonzero(new)
    return Waits(
        row=row,
        collective=np.cumsum(new) - 1,
        bounds=np.r_[begins, len(row)].astype(np.int64),
        arrival_ns=start[row],
        end_ns=end[row],
        member=operations.member[row],
        exposed_ns=operations.exposed_ns[row],
    )


@dataclass(frozen=True, eq=False)
class Starts:
    """When the recordings began.

    start_ns: on the reference clock, shape (members,). first: mask of the collectives that are the first one
    of at least one member, shape (collectives,). later_ns: by how much the recording of the last member to
    arrive began after that of the first member to arrive, shape (collectives,).
    """

    start_ns: Int64
    first: Bool
    later_ns: Int64

    def explained(self, waits: Waits, unexplained: float) -> int:
        """Return the first collective with most waiting among those that the starts explain, up to this share
        of the waiting; NONE if there is none."""
        rest = np.abs(waits.skew_ns - self.later_ns)
        found = np.flatnonzero(self.first & (self.later_ns > 0) & (rest <= unexplained * waits.skew_ns))
        return int(found[waits.skew_ns[found].argmax()]) if len(found) else NONE


def starts_of(operations: RankOperations, clocks: Clocks, waits: Waits) -> Starts:
    """Find the first collectives, and when the recordings began."""
    members = len(operations.origin_ns)
    start = clocks.of_members(operations.origin_ns, np.arange(members))
    first = np.zeros(len(waits), np.bool_)
    earliest = np.full(members, len(waits), np.int64)
    np.minimum.at(earliest, waits.member, waits.collective)
    first[earliest[earliest < len(waits)]] = True
    later = start[waits.last_member] - start[waits.first_member]
    return Starts(start, first, later)


# How many operations to look back for the cause of a late arrival.
_BACK: Final = (1, 2, 3, 5, 8, 13)

# A part that explains less of the lateness than this is not its cause.
_LEAST_EXPLAINED: Final = 0.4


@dataclass(frozen=True)
class LateCause:
    """Why a rank was late.

    part: computing, copying or a cause of idle time; "" if no part explains the lateness. place: where the
    rank's host was most of the idle time, or "". waited_for: the earlier collective (index in Waits) in which
    the rank waited more than the others, so that its lateness began there; NONE without one.
    """

    part: str
    time_ns: int
    place: str
    waited_for: int = NONE


class LateCauses:
    """Finds the causes of single collectives."""

    def __init__(self, operations: RankOperations, waits: Waits) -> None:
        self._operations, self._waits = operations, waits
        self._of = np.full(len(operations), NONE, np.int64)
        self._of[waits.row] = waits.collective
        self._waiting = np.zeros(len(operations), np.int64)
        self._waiting[waits.row] = waits.waiting_ns
        self._own = operations.own_parts
        zero = np.zeros((1, operations.parts.shape[1]), np.int64)
        self._before = np.concatenate([zero, np.cumsum(operations.parts, axis=0)])
        self._found: dict[int, LateCause] = {}

    def cause(self, collective: int) -> LateCause:
        """Compare the last rank with the median of the others, over the number of operations that explains
        the lateness best."""
        if collective not in self._found:
            self._found[collective] = self._cause(collective)
        return self._found[collective]

    def _cause(self, collective: int) -> LateCause:
        waits, operations = self._waits, self._operations
        begin, end = int(waits.bounds[collective]), int(waits.bounds[collective + 1])
        rows = waits.row[begin:end]
        late_ns = int(waits.last_ns[collective] - waits.middle_ns[collective])
        if late_ns <= 0:
            return LateCause("", 0, "")
        best: tuple[int, Int64, int] | None = None
        for back in _BACK:
            firsts = rows - back + 1
            if firsts.min() < 0 or (operations.member[firsts] != operations.member[rows]).any():
                break
            spent = self._before[rows + 1] - self._before[firsts]
            more = np.where(self._own, spent[-1] - np.median(spent[:-1], axis=0), 0).astype(np.int64)
            miss = abs(int(more.sum()) - late_ns)
            if best is None or miss < best[0]:
                best = (miss, more, back)
        if best is None:
            return LateCause("", 0, "")
        _, more, back = best
        part = int(more.argmax())
        if more[part] < _LEAST_EXPLAINED * late_ns:
            return LateCause("", 0, "", self._waited_for(int(rows[-1]), rows[:-1], late_ns))
        row = int(rows[-1])
        stretch = np.arange(row - back + 1, row + 1)
        place = stretch[operations.place_ns[stretch].argmax()]
        is_idle = part > 2
        return LateCause(
            operations.part_names[part], int(more[part]), operations.place[int(place)] if is_idle else ""
        )

    def _waited_for(self, row: int, others: Int64, late_ns: int) -> int:
        """Return the rank's previous collective if the rank waited longer there than the others did in
        theirs."""
        before = row - 1
        if before < 0 or self._operations.member[before] != self._operations.member[row]:
            return NONE
        usual = float(np.median(self._waiting[np.maximum(0, others - 1)])) if len(others) else 0.0
        return int(self._of[before]) if self._waiting[before] - usual >= _LEAST_EXPLAINED * late_ns else NONE

    def chain(self, collective: int, most: int = 8) -> list[int]:
        """Return the collectives from this one back to where the lateness began."""
        found = [collective]
        while len(found) < most:
            before = self.cause(found[-1]).waited_for
            if before == NONE or before in found:
                break
            found.append(before)
        return found
