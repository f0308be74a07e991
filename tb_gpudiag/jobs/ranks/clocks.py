"""Clocks of the ranks. Ranks of a host share a clock. Between hosts, collectives that all ranks leave
together show how much the clocks differ; without such collectives, messages in both directions do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int32, Int64
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.channels import RECEIVE, SEND
from tb_gpudiag.jobs.ranks.collective_matching import Matching
from tb_gpudiag.jobs.ranks.operations import RankOperations

ONE_HOST: Final = "ONE_HOST"
COLLECTIVES: Final = "COLLECTIVES"
NO_CLOCK: Final = "NONE"

# No rank can leave these before all have arrived. Others, such as a broadcast, let the sender go.
BLOCKING: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})

# A drift is the slope between the first and the last third of the recording: fewer collectives do not show
# it.
_LEAST_FOR_DRIFT: Final = 24
# Quartz oscillators of servers are off by some tens of ppm. More is not a drift.
_MOST_DRIFT: Final = 500e-6
# Hosts without a name share a clock if their ends differ by no more than ends on one host do. In a public
# job, ends of eight GPUs differ by 1 to 7 µs.
_SAME_CLOCK_NS: Final = 50_000


@dataclass(frozen=True, eq=False)
class Clocks:
    """How to put the times of all members on one reference clock. Columns have shape (members,).

    basis: ONE_HOST, COLLECTIVES or NONE. host: number of each member's clock. offset_ns: added to a member's
    times. known: mask of the members with a known offset. drift: added as well, per ns since `middle_ns` on
    the reference clock. residual_ns: after correction, the ends of 90% of the collectives agree within this.
    NaN without collectives.
    """

    basis: str
    host: Int32
    offset_ns: Int64
    drift: Float64
    middle_ns: int
    known: Bool
    residual_ns: float

    def corrected(self, operations: RankOperations, times: Int64) -> Int64:
        """Return times of operations on the reference clock, shape (n,)."""
        return self.of_members(times, operations.member)

    def of_members(self, times: Int64, member: Int32 | Int64) -> Int64:
        """Return times of members on the reference clock, shape of both."""
        shifted = times + self.offset_ns[member]
        return shifted + np.rint(self.drift[member] * (shifted - self.middle_ns)).astype(np.int64)


def clocks_of(members: Sequence[Digest], operations: RankOperations, matching: Matching) -> Clocks:
    """Find each host's offset from the clock of the first member's host."""
    named = [member.about.host for member in members]
    hosts = list(dict.fromkeys(name or f"?{i}" for i, name in enumerate(named)))
    host = np.array([hosts.index(name or f"?{i}") for i, name in enumerate(named)], np.int32)
    rows = np.flatnonzero((matching.collective != NONE) & operations.of_kinds(BLOCKING))
    ends = _Ends(host, operations, matching, rows)
    middle = int(np.median(operations.end_ns[rows])) if len(rows) else 0
    zero = _same_clock(host, len(members), middle)
    if len(hosts) == 1:
        return _with_residual(zero, ends)
    messages = _Messages(host, operations, matching)
    offset, known = _offsets(ends, messages, len(hosts))
    if len(rows):
        middle = int(np.median(operations.end_ns[rows] + offset[host[operations.member[rows]]]))
    found = Clocks(COLLECTIVES, host, offset[host], np.zeros(len(members)), middle, known[host], float("nan"))
    unnamed = not any(named)
    is_one = int(np.abs(found.offset_ns).max(initial=0)) <= _SAME_CLOCK_NS and len(ends.rows) > 0
    if unnamed and known.all() and is_one:
        return _with_residual(_same_clock(np.zeros(len(members), np.int32), len(members), middle), ends)
    if known.sum() < 2:
        none = np.zeros(len(members), np.bool_)
        return _with_residual(replace(zero, basis=NO_CLOCK, known=none), ends)
    return _with_residual(_with_drift(found, ends, len(hosts)), ends, messages.used_rows)


def _same_clock(host: Int32, members: int, middle: int) -> Clocks:
    return Clocks(
        ONE_HOST,
        host,
        np.zeros(members, np.int64),
        np.zeros(members),
        middle,
        np.ones(members, np.bool_),
        float("nan"),
    )


class _Ends:
    """Ends of blocking collectives by host: the median of the host's ranks. Shape (h,) each."""

    def __init__(self, host: Int32, operations: RankOperations, matching: Matching, rows: Int64) -> None:
        self.operations, self.matching, self.rows = operations, matching, rows
        hosts = int(host.max(initial=0)) + 1
        key = matching.collective[rows].astype(np.int64) * hosts + host[operations.member[rows]]
        order = np.lexsort((operations.end_ns[rows], key))
        distinct, first, count = np.unique(key[order], return_index=True, return_counts=True)
        self.collective, self.host = distinct // hosts, distinct % hosts
        self.end_ns: Int64 = operations.end_ns[rows[order[first + (count - 1) // 2]]]
        self.collectives = len(matching)


class _Messages:
    """Matched sends and receives between hosts, by row: `send` and `receive`, shape (m,) each."""

    def __init__(self, host: Int32, operations: RankOperations, matching: Matching) -> None:
        self._operations = operations
        self.send, self.receive = (_row_of_kind(operations, matching, kind) for kind in (SEND, RECEIVE))
        both = np.flatnonzero((self.send != NONE) & (self.receive != NONE))
        self.send, self.receive = self.send[both], self.receive[both]
        self.source, self.target = host[operations.member[self.send]], host[operations.member[self.receive]]
        self._used = np.zeros(len(both), np.bool_)

    @property
    def used_rows(self) -> Int64:
        """Operations that have given an offset."""
        return np.concatenate([self.send[self._used], self.receive[self._used]])

    def offset(self, offset: Int64, known: Bool) -> tuple[int, int] | None:
        """Return a host without a known offset, and its offset; None without messages in both directions.

        A receive ends some delay after its send. The offset is half of the difference between the least
        delays in the two directions, as in NTP (RFC 5905, section 8, with its clock filter).
        """
        ends = self._operations.end_ns
        for host in np.setdiff1d(np.union1d(self.source, self.target), np.flatnonzero(known)).tolist():
            there = np.flatnonzero(known[self.source] & (self.target == host))
            back = np.flatnonzero(known[self.target] & (self.source == host))
            if not len(there) or not len(back):
                continue
            sent = ends[self.send[there]] + offset[self.source[there]]
            received = ends[self.receive[back]] + offset[self.target[back]]
            least_there = int((ends[self.receive[there]] - sent).min())
            least_back = int((received - ends[self.send[back]]).min())
            self._used[there] = self._used[back] = True
            return host, (least_back - least_there) // 2
        return None


def _row_of_kind(operations: RankOperations, matching: Matching, kind: str) -> Int64:
    """Return each collective's operation of a kind, or NONE; shape (collectives,)."""
    rows = np.flatnonzero((matching.collective != NONE) & operations.of_kinds({kind}))
    found = np.full(len(matching), NONE, np.int64)
    found[matching.collective[rows]] = rows
    return found


def _offsets(ends: _Ends, messages: _Messages, hosts: int) -> tuple[Int64, Bool]:
    """Find the offsets of hosts that share collectives or messages with the first host, directly or through
    other hosts."""
    offset = np.zeros(hosts, np.int64)
    known = np.zeros(hosts, np.bool_)
    known[0] = True
    while True:
        _add_by_collectives(ends, offset, known)
        found = messages.offset(offset, known)
        if found is None:
            return offset, known
        host, offset_ns = found
        offset[host], known[host] = offset_ns, True


def _add_by_collectives(ends: _Ends, offset: Int64, known: Bool) -> None:
    while True:
        reference = _reference(ends, offset, known)
        usable = reference[ends.collective] != np.iinfo(np.int64).min
        new = np.flatnonzero(usable & ~known[ends.host])
        if not len(new):
            return
        for host in np.unique(ends.host[new]).tolist():
            own = new[ends.host[new] == host]
            offset[host] = int(np.median(reference[ends.collective[own]] - ends.end_ns[own]))
        known[np.unique(ends.host[new])] = True


def _reference(ends: _Ends, offset: Int64, known: Bool) -> Int64:
    """Return the end of each collective on the reference clock: the earliest of the known hosts' ends, or the
    lowest int64."""
    lowest = np.iinfo(np.int64).min
    first = np.full(ends.collectives, np.iinfo(np.int64).max)
    have = known[ends.host]
    np.minimum.at(first, ends.collective[have], ends.end_ns[have] + offset[ends.host[have]])
    return np.where(first == np.iinfo(np.int64).max, lowest, first)


def _with_drift(found: Clocks, ends: _Ends, hosts: int) -> Clocks:
    """Add the drifts of hosts whose collectives show one that is larger than their scatter."""
    offset = np.zeros(hosts, np.int64)
    offset[found.host] = found.offset_ns
    known = np.zeros(hosts, np.bool_)
    known[found.host] = found.known
    only_first = np.zeros(hosts, np.bool_)
    only_first[0] = True
    drift = np.zeros(hosts)
    reference = _reference(ends, offset, only_first)
    for host in np.flatnonzero(known)[1:].tolist():
        own = np.flatnonzero((ends.host == host) & (reference[ends.collective] != np.iinfo(np.int64).min))
        if len(own) < _LEAST_FOR_DRIFT:
            continue
        shifted = ends.end_ns[own] + offset[host]
        time = shifted - found.middle_ns
        differs = (reference[ends.collective[own]] - shifted).astype(np.float64)
        slope, level = _slope(time.astype(np.float64), differs)
        if slope:
            drift[host] = slope
            offset[host] += round(level)
    return replace(found, offset_ns=offset[found.host], drift=drift[found.host])


def _slope(time: Float64, differs: Float64) -> tuple[float, float]:
    """Fit a line through the medians of the first and the last third. Return its slope and level; 0 if they
    are only scatter."""
    order = np.argsort(time)
    third = len(time) // 3
    first, last = order[:third], order[-third:]
    across = float(np.median(time[last]) - np.median(time[first]))
    rise = float(np.median(differs[last]) - np.median(differs[first]))
    if across <= 0 or abs(rise / across) > _MOST_DRIFT:
        return 0.0, 0.0
    slope = rise / across
    rest = differs - slope * time
    level = float(np.median(rest))
    scatter = float(np.median(np.abs(rest - level)))
    certain = 3 * 1.4826 * scatter * np.sqrt(2 * np.pi / 2 / third)  # of a difference of two medians
    return (slope, level) if abs(rise) > certain else (0.0, 0.0)


def _with_residual(clocks: Clocks, ends: _Ends, messages: Int64 | None = None) -> Clocks:
    """Add the spread of the ends of each collective, or of the messages if offsets come from messages."""
    operations = ends.operations
    rows = messages if messages is not None and len(messages) else ends.rows
    rows = rows[clocks.known[operations.member[rows]]]
    if not len(rows):
        return clocks
    collective = ends.matching.collective[rows]
    end = clocks.corrected(operations, operations.end_ns)[rows]
    order = np.argsort(collective, kind="stable")
    bounds = np.flatnonzero(np.diff(collective[order], prepend=-1))
    spread = np.maximum.reduceat(end[order], bounds) - np.minimum.reduceat(end[order], bounds)
    return replace(clocks, residual_ns=float(np.percentile(spread, 90)))
