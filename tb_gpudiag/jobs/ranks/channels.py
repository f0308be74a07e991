"""Channels: process groups, and pairs of a sender and a receiver. Operations match within a channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.operations import RankOperations, row_groups

SEND = "send"
RECEIVE = "recv"

_Name = tuple[object, ...]


@dataclass(frozen=True)
class Channel:
    """A process group, or a sender and a receiver.

    members: those that take part, ascending. Where the trace does not say who does, the members that have
    such operations.
    """

    group: str  # name of the process group, or ""
    members: tuple[int, ...]
    size: int  # ranks of the group, missing ones included
    pair: tuple[int, int] | None  # ranks: sender, receiver


@dataclass(frozen=True, eq=False)
class Channels:
    """All channels of a job. of: each operation's channel, or NONE; shape (n,)."""

    of: Int32
    channels: list[Channel]

    @property
    def is_pair(self) -> Bool:
        """Mask of the channels of a sender and a receiver, shape (channels,)."""
        return np.array([channel.pair is not None for channel in self.channels], np.bool_)

    @property
    def is_pipeline(self) -> bool:
        """Whether ranks send to one later rank each, as stages do. A server sends to many, or only gets."""
        later = [sender for sender, receiver in self._pairs if sender < receiver]
        return bool(later) and max(Counter(later).values()) == 1 and not self.is_ring

    @property
    def is_ring(self) -> bool:
        """Whether ranks send to one other each, the last one to the first, and nothing goes back, as keys go
        in ring attention. A pipeline with a backward pass sends in both directions."""
        pairs = self._pairs
        once = len({sender for sender, _ in pairs}) == len({receiver for _, receiver in pairs}) == len(pairs)
        around = any(sender > receiver for sender, receiver in pairs)
        return around and once and not any((receiver, sender) in pairs for sender, receiver in pairs)

    @property
    def _pairs(self) -> set[tuple[int, int]]:
        return {one.pair for one in self.channels if one.pair is not None}


def channels_of(operations: RankOperations, members: Sequence[Digest]) -> Channels:
    """Find the channel of each operation.

    Each process counts up the names of its process groups: two tensor-parallel groups can have the same name
    on different ranks, so a name and the lowest rank identify a group. Operations without a group belong to
    the world, if their rank is in no other group, by kind: on several streams, kinds have no common order.
    """
    ranks = [member.about.rank for member in members]
    index_of = {rank: index for index, rank in enumerate(ranks)}
    listed = _listed_groups(members)
    world = max((member.about.world_size for member in members), default=0) or len(ranks)
    columns = (
        operations.member.astype(np.int64),
        operations.group.code.astype(np.int64),
        operations.kind.code.astype(np.int64),
        operations.source,
        operations.destination,
    )
    first, inverse = row_groups(*columns)
    distinct = np.stack([column[first] for column in columns], axis=1)
    # Some back ends name no group. Where a rank is in several, such an operation may be of any.
    apart = {rank for (_, rank), among in listed.items() if 1 < len(among) < world}
    numbers: dict[_Name, int] = {}
    channels: list[Channel] = []
    taking_part: list[_TakingPart] = []
    assigned = np.full(len(distinct), NONE, np.int32)
    for i, (member, group_code, kind_code, source, destination) in enumerate(distinct.tolist()):
        group, kind = operations.group.texts[group_code], operations.kind.texts[kind_code]
        one = _of_operation(ranks[member], group, kind, (source, destination), listed, world)
        if one is None or (one.name[0] == "world" and ranks[member] in apart):
            continue
        assigned[i] = number = numbers.setdefault(one.name, len(channels))
        if number == len(channels):
            channels.append(Channel(group, (), one.size, one.pair))
            taking_part.append(_TakingPart())
        taking_part[number].add(member, one.ranks, index_of)
    of = assigned[inverse]
    whole = [
        replace(channel, members=tuple(sorted(own.members)), size=max(channel.size, len(own.members)))
        for channel, own in zip(channels, taking_part, strict=True)
    ]
    return Channels(of.astype(np.int32), whole)


@dataclass
class _TakingPart:
    """Members that take part in a channel. said: ranks, as an operation said it last."""

    members: set[int] = field(default_factory=set)
    said: Sequence[int] = ()

    def add(self, member: int, ranks: Sequence[int], index_of: Mapping[int, int]) -> None:
        self.members.add(member)
        if ranks is not self.said:  # mostly all members share one list
            self.said = ranks
            self.members.update(index_of[rank] for rank in ranks if rank in index_of)


class _OfOperation(NamedTuple):
    """The channel of an operation as its rank knows it. ranks: those known to take part."""

    name: _Name
    size: int
    pair: tuple[int, int] | None
    ranks: Sequence[int]


def _of_operation(
    rank: int,
    group: str,
    kind: str,
    ends: tuple[int, int],
    listed: Mapping[tuple[str, int], Sequence[int]],
    world: int,
) -> _OfOperation | None:
    """Return None for an operation between two ranks that does not say which."""
    if kind in (SEND, RECEIVE):
        here = rank, _other_of_two(rank, listed.get((group, rank), ()) if group else range(world))
        known = here if kind == SEND else here[::-1]
        source, destination = (end if end != NONE else own for end, own in zip(ends, known, strict=True))
        if NONE in (source, destination) or source == destination:
            return None
        pair = (source, destination)
        return _OfOperation(("pair", group, *pair), 2, pair, pair)
    if group:
        own = listed.get((group, rank), ())
        return _OfOperation(("group", group, own[0] if own else NONE), len(own) or world, None, own)
    return _OfOperation(("world", kind), world, None, ())


def _other_of_two(rank: int, ranks: Sequence[int]) -> int:
    """Return the other rank of a group of two, or NONE: gloo does not record the peer."""
    return int(sum(ranks)) - rank if len(ranks) == 2 and rank in ranks else NONE


def _listed_groups(members: Sequence[Digest]) -> dict[tuple[str, int], Sequence[int]]:
    """Return the ranks of each process group, by its name and a rank in it: the longest list of any rank."""
    lists: dict[tuple[str, int], Sequence[int]] = {}
    for member in members:
        for group, ranks in member.about.groups.items():
            if ranks and len(ranks) > len(lists.get((group, ranks[0]), ())):
                lists[group, ranks[0]] = ranks
    return {(group, rank): ranks for (group, _), ranks in lists.items() for rank in ranks}
