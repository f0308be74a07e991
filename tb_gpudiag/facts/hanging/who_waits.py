"""Who waits for whom in a job that hangs.

An operation ends when all ranks that it needs have called it. So a rank waits in the first operation that
others have not called, and it waits for them. A rank that others wait for and
that does not wait itself is what holds up the job. If there is none, ranks wait for each other.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from functools import cached_property

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.flight_recorder.read_dump import FlightDump, Operation, Progress, Signature


class HangReason(IntEnum):
    """Why a job hangs. Numbered as in report.proto."""

    CANNOT_TELL = 0
    NO_HANG = 1  # every operation of every dump has ended
    NOT_CALLED = 2  # ranks have not called what others wait in
    MISMATCH = 3  # ranks called different operations in the same place of the order
    CYCLE = 4  # ranks wait for each other in different groups
    NOT_BEGUN = 5  # all have called it, and on some ranks it has not begun on the GPU
    TRANSFER = 6  # all ranks are in it
    NO_DUMP = 7  # ranks without a dump are waited for
    EMPTY = 8  # no dump has an operation


@dataclass(frozen=True, eq=False)
class GroupMembers:
    """A process group, as all dumps together know it. ranks: its members, or those that used it if no dump
    says. is_known: a dump says which ranks are its members. There is one of each group."""

    name: str
    description: str
    ranks: tuple[int, ...]
    is_known: bool


@dataclass(frozen=True)
class Waiting:
    """An operation that has not ended on a rank. waits_for: ranks that have not called it, one
    set for all who wait for the same."""

    rank: int
    group: GroupMembers
    operation: Operation
    waits_for: frozenset[int]


@dataclass(frozen=True)
class CalledDifferently:
    """The first operation of a group that ranks do not agree on. called: by rank."""

    group: GroupMembers
    sequence: int
    called: dict[int, Operation]


@dataclass(frozen=True)
class Hang:
    """Why the ranks of a job hang.

    culprits: ranks that hold up the job; of a cycle, the ranks in it. waiting: of each rank that waits. last:
    the last operation of each rank whose dump has one. empty: ranks whose dump has none. ranks: of the job,
    as far as is known.
    """

    why: HangReason
    culprits: tuple[int, ...]
    waiting: dict[int, Waiting]
    last: dict[int, Operation]
    empty: frozenset[int]
    mismatch: CalledDifferently | None
    ranks: tuple[int, ...]
    groups: dict[tuple[int, str], GroupMembers] = field(repr=False)

    def group_of(self, rank: int, operation: Operation) -> GroupMembers:
        return self.groups[rank, operation.group]


def find_hang(dumps: Sequence[FlightDump]) -> Hang:
    """Find out who waits for whom. dumps: one of each rank, from the same moment."""
    with_dump = frozenset(dump.rank for dump in dumps)
    groups = _groups(dumps, with_dump)
    called = {group: _Calls(group, with_dump) for group in groups.values()}
    for dump in dumps:
        for operation in dump.operations:
            called[groups[dump.rank, operation.group]].add(dump.rank, operation)
    waiting = {}
    for dump in dumps:
        found = _first_waiting(dump, groups, called)
        if found is not None:
            waiting[dump.rank] = found
    last_called = {dump.rank: dump.operations[-1] for dump in dumps if dump.operations}
    why, culprits = _why(waiting, with_dump) if last_called else (HangReason.EMPTY, ())
    last: dict[GroupMembers, int] = {}
    for found in waiting.values():
        last[found.group] = max(found.operation.sequence, last.get(found.group, -1))
    mismatch = next(
        filter(None, (_mismatch(calls, last.get(calls.group, -1)) for calls in called.values())), None
    )
    if mismatch is not None:
        why, culprits = HangReason.MISMATCH, _minority(mismatch)
    return Hang(
        why,
        culprits,
        waiting,
        last_called,
        with_dump.difference(last_called),
        mismatch,
        tuple(sorted(with_dump.union(*(group.ranks for group in called)))),
        groups,
    )


class _Calls:
    """What the ranks of a group called. No rank is looked for in a list: a group may have all ranks of a
    large job."""

    def __init__(self, group: GroupMembers, with_dump: frozenset[int]) -> None:
        self.group = group
        self.by_sequence: dict[int, dict[int, Operation]] = {}  # collectives, by rank
        self._with_dump = with_dump
        self._latest: dict[int, int] = {}  # collective of each rank that called one
        self._missing: dict[int, frozenset[int]] = {}  # by how many ranks they are
        self._ended: set[int] = set()
        # By rank and peer, of what it sends or not; ascending.
        self._numbers: dict[tuple[int, int, bool], list[int]] = {}

    def add(self, rank: int, operation: Operation) -> None:
        if operation.is_collective:
            self.by_sequence.setdefault(operation.sequence, {}).setdefault(rank, operation)
            self._latest[rank] = max(self._latest.get(rank, -1), operation.sequence)
            if operation.progress is Progress.DONE:
                self._ended.add(operation.sequence)
        else:
            self._numbers.setdefault((rank, *_peer(operation)), []).append(operation.number)

    @cached_property
    def _reached(self) -> list[int]:
        """The latest collective of each member, ascending."""
        return sorted(self._latest.get(rank, -1) for rank in self.group.ranks)

    @cached_property
    def called_by_dumps(self) -> int:
        """The last collective that all members with a dump have called."""
        with_dump = self._with_dump.intersection(self.group.ranks)
        return min((self._latest.get(rank, -1) for rank in with_dump), default=sys.maxsize)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {rank: place for place, rank in enumerate(self.group.ranks)}

    def has_ended(self, operation: Operation) -> bool:
        """Whether a collective that all have called has ended on a rank: on the others, it ends now."""
        return operation.sequence <= self._reached[0] and operation.sequence in self._ended

    def missing(self, rank: int, operation: Operation) -> frozenset[int]:
        """Return the ranks of the group that have not called this operation of a rank."""
        if operation.is_collective:
            count = bisect_left(self._reached, operation.sequence)
            if count not in self._missing:
                before = (r for r in self.group.ranks if self._latest.get(r, -1) < operation.sequence)
                self._missing[count] = frozenset(before)
            return self._missing[count]
        peer, sends = _peer(operation)
        if not self.group.is_known or peer >= len(self.group.ranks):
            return frozenset()
        other = self.group.ranks[peer]
        theirs = self._numbers.get((other, self._places.get(rank, -1), not sends), [])
        place = bisect_left(self._numbers[rank, peer, sends], operation.number)
        return frozenset() if place < len(theirs) else frozenset({other})


def _peer(operation: Operation) -> tuple[int, bool]:
    """The other rank of a send or receive, and whether it is a send."""
    return max(operation.sends_to, operation.receives_from), operation.sends_to >= 0


def _first_waiting(
    dump: FlightDump, groups: Mapping[tuple[int, str], GroupMembers], called: Mapping[GroupMembers, _Calls]
) -> Waiting | None:
    """Find the first operation of a rank that others have not called; if there is none, the first that has
    not ended: at the moment of a dump, operations that all have called may be under way."""
    under_way = None
    for operation in dump.operations:
        group = groups[dump.rank, operation.group]
        calls = called[group]
        # Gloo calls an operation retired that has failed.
        if operation.progress is Progress.DONE and (
            not operation.is_collective
            or operation.signature.kind in _ONE_WAY
            or operation.sequence <= calls.called_by_dumps
        ):
            continue
        if operation.is_collective and calls.has_ended(operation):
            continue
        missing = calls.missing(dump.rank, operation)
        if missing:
            return Waiting(dump.rank, group, operation, missing)
        under_way = under_way or Waiting(dump.rank, group, operation, missing)
    return under_way


def _groups(dumps: Sequence[FlightDump], with_dump: frozenset[int]) -> dict[tuple[int, str], GroupMembers]:
    """Return the group that each rank means by each name. Groups of different ranks may have one name."""
    named = _named_members(dumps, with_dump)
    used: dict[str, set[int]] = {}
    for dump in dumps:
        for name in dump.groups:
            used.setdefault(name, set()).add(dump.rank)
    groups = {}
    known: dict[tuple[str, str, tuple[int, ...]], GroupMembers] = {}
    for dump in dumps:
        for name, group in dump.groups.items():
            ranks = named.get((dump.rank, name), ())
            key = name, group.description, ranks
            if key not in known:
                known[key] = GroupMembers(*key[:2], ranks or tuple(sorted(used[name])), bool(ranks))
            groups[dump.rank, name] = known[key]
    return groups


def _named_members(
    dumps: Sequence[FlightDump], with_dump: frozenset[int]
) -> dict[tuple[int, str], tuple[int, ...]]:
    """Return the members of each rank's groups, as its own dump or that of another member names them."""
    named: dict[tuple[int, str], tuple[int, ...]] = {}
    seen = set()
    for dump in dumps:
        for name, group in dump.groups.items():
            if (name, group.ranks) not in seen:
                seen.add((name, group.ranks))
                for rank in with_dump.intersection(group.ranks):
                    named.setdefault((rank, name), group.ranks)
    for dump in dumps:  # its own dump knows best
        named.update({(dump.rank, name): group.ranks for name, group in dump.groups.items() if group.ranks})
    return named


def _mismatch(calls: _Calls, last: int) -> CalledDifferently | None:
    """Find the first collective that the ranks of a group do not agree on, if ranks wait in it, or in a later
    one of the group. last: the last one that a rank waits in."""
    for sequence in sorted(calls.by_sequence):
        by_rank = calls.by_sequence[sequence]
        if sequence <= last and len({operation.signature for operation in by_rank.values()}) > 1:
            return CalledDifferently(calls.group, sequence, by_rank)
    return None


# The root of these ends without waiting for the others.
_ONE_WAY = frozenset({"broadcast", "reduce", "scatter", "gather", "coalesced"})


def _why(waiting: Mapping[int, Waiting], with_dump: frozenset[int]) -> tuple[HangReason, tuple[int, ...]]:
    """Follow who waits for whom to those who wait for nobody."""
    if not waiting:
        return HangReason.NO_HANG, ()
    awaited = frozenset[int]().union(*{found.waits_for for found in waiting.values()})
    if not awaited:
        return _all_have_called(waiting)
    without_dump = sorted(awaited - with_dump)
    free = sorted((awaited & with_dump) - set(waiting))
    if free:
        return HangReason.NOT_CALLED, tuple(free)
    if without_dump:
        return HangReason.NO_DUMP, tuple(without_dump)
    stuck = sorted(rank for rank in awaited if not waiting[rank].waits_for)
    if stuck:  # in an operation whose other ranks are not known, or that all have called
        return _all_have_called({rank: waiting[rank] for rank in stuck})
    return HangReason.CYCLE, _cycle(waiting)


def _all_have_called(waiting: Mapping[int, Waiting]) -> tuple[HangReason, tuple[int, ...]]:
    if not all(found.group.is_known for found in waiting.values()):
        return HangReason.CANNOT_TELL, ()
    called = sorted(r for r, found in waiting.items() if found.operation.progress is Progress.CALLED)
    if called and len(called) < len(waiting):
        return HangReason.NOT_BEGUN, tuple(called)
    return HangReason.TRANSFER, tuple(sorted(waiting))


def _cycle(waiting: Mapping[int, Waiting]) -> tuple[int, ...]:
    """Return ranks that wait for each other in a circle."""
    first = {ranks: min(ranks) for ranks in {found.waits_for for found in waiting.values()} if ranks}
    rank, seen = min(waiting), dict[int, int]()
    while rank not in seen:
        seen[rank] = len(seen)
        rank = first[waiting[rank].waits_for]
    return tuple(sorted(list(seen)[seen[rank] :]))


def _minority(mismatch: CalledDifferently) -> tuple[int, ...]:
    """Return the ranks that did not call what most others called; all of them if there is no majority."""
    by_signature: dict[Signature, list[int]] = {}
    for rank, operation in sorted(mismatch.called.items()):
        by_signature.setdefault(operation.signature, []).append(rank)
    most = max(by_signature.values(), key=len)
    if 2 * len(most) <= len(mismatch.called):
        return tuple(sorted(mismatch.called))
    return tuple(sorted(mismatch.called.keys() - most))
