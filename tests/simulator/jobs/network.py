"""Network: the collectives of a job. Ranks of a group meet in the order in which each of them calls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulator.jobs.links import NAMES, Group, Kind, Links
from tests.simulator.jobs.rank import Rank
from tests.simulator.jobs.settings import DistributedJob
from tests.simulator.jobs.solver import Meeting, Work

DTYPE, BYTES = "BFloat16", 2
TRANSFER_NOISE = 0.02
LISTED_RANKS = 30
"""c10d lists that many ranks of a group, the last one after three dots."""


@dataclass(frozen=True)
class Called:
    """One collective. number: its place among the group's collectives, from 0.

    passes: it passes links of the kind that a fault slows; slowed: it passes that link.
    """

    group: Group
    kind: Kind
    number: int
    bytes: int
    step: int
    meeting: Meeting
    passes: bool
    slowed: bool


class Network:
    """See the module."""

    def __init__(self, job: DistributedJob, seed: str) -> None:
        self.job = job
        self.called: list[Called] = []
        self._seed = seed
        self._links = Links(job)
        self._meetings: dict[tuple[Any, ...], Called] = {}
        self._counts: Counter[tuple[Any, ...]] = Counter()

    def collective(
        self,
        rank: Rank,
        kind: Kind,
        group: Group,
        elements: float,
        *,
        stream: int,
        after_compute: bool = True,
        told: float = 1.0,
    ) -> Work:
        """Launch a rank's part of a collective. elements: of the full tensor.

        told: factor on the recorded size.
        """
        called = self._next_of(rank, kind, group, elements)
        full = round(elements * told)
        shard = full // len(group.ranks)
        into = shard if kind == "all_gather" else full
        out = shard if kind == "reduce_scatter" else full
        recorded = self._recorded(kind, group, into, out, called.number + 1)
        return self._launch(rank, kind, called, stream, recorded, after_compute=after_compute)

    def all_to_all(
        self, rank: Rank, group: Group, sends: Sequence[int], receives: Sequence[int], *, stream: int
    ) -> Work:
        """Launch a rank's part of an all-to-all. sends, receives: elements, by place in the group."""
        called = self._next_of(rank, "all_to_all", group, max(sum(sends), sum(receives)))
        recorded = self._recorded("all_to_all", group, sum(sends), sum(receives), called.number + 1)
        if self.job.with_groups:
            recorded |= {"In split size": str(list(sends)), "Out split size": str(list(receives))}
        return self._launch(rank, "all_to_all", called, stream, recorded)

    def _next_of(self, rank: Rank, kind: Kind, group: Group, elements: float) -> Called:
        """Return the next collective that the rank calls in the group."""
        number = self._next((rank.number, group.name))
        return self._meet((group.name, number), kind, group, number, elements, rank.step, group.ranks)

    def _launch(
        self,
        rank: Rank,
        kind: Kind,
        called: Called,
        stream: int,
        recorded: dict[str, Any],
        *,
        after_compute: bool = True,
    ) -> Work:
        work = Work(rank.number, 0, 0, called.meeting)
        return rank.collective(kind, work, stream, recorded, after_compute=after_compute)

    def send_or_receive(
        self, rank: Rank, kind: Kind, group: Group, peer: int, elements: float, *, stream: int
    ) -> Work:
        """Launch a send to a peer, or a receive from it. Both wait for the other side."""
        pair = (rank.number, peer) if kind == "send" else (peer, rank.number)
        number = self._next((rank.number, group.name, "pair", pair))
        key = (group.name, "pair", pair, number)
        called = self._meet(key, "send", group, number, elements, rank.step, pair)
        own = self._next((rank.number, group.name, "p2p"))  # c10d counts each rank's own
        size = round(elements)
        recorded = self._recorded(kind, group, size, size, own + 1)
        if self.job.with_groups:
            recorded["Dst Rank" if kind == "send" else "Src Rank"] = peer
        return self._launch(rank, kind, called, stream, recorded)

    def _next(self, key: tuple[Any, ...]) -> int:
        self._counts[key] += 1
        return self._counts[key] - 1

    def _meet(
        self,
        key: tuple[Any, ...],
        kind: Kind,
        group: Group,
        number: int,
        elements: float,
        step: int,
        ranks: tuple[int, ...],
    ) -> Called:
        """Return the collective, new for the first rank that calls it."""
        if key not in self._meetings:
            size = round(elements * BYTES)
            draw = random.Random(f"{self._seed} {key}")
            noise = max(0.7, 1 + TRANSFER_NOISE * draw.gauss(0, 1))
            transfer = round(self._links.transfer_ns(kind, ranks, size, step) * noise)
            meeting = Meeting(ranks, transfer, self._links.jitter_ns(ranks), draw)
            self._meetings[key] = Called(
                group,
                kind,
                number,
                size,
                step,
                meeting,
                passes=self._links.pass_links(ranks),
                slowed=self._links.are_slow(ranks, step),
            )
            self.called.append(self._meetings[key])
        return self._meetings[key]

    def _recorded(self, kind: Kind, group: Group, into: int, out: int, sequence: int) -> dict[str, Any]:
        """Return the arguments of `record_param_comms`, which the kernel has too."""
        if not self.job.with_groups:
            return {
                "Input Dims": [[into], [], [], [], [], [], []],
                "Input type": ["c10::BFloat16"] + [""] * 6,
            }
        recorded: dict[str, Any] = {
            "Collective name": NAMES[kind].recorded,
            "In msg nelems": into,
            "Out msg nelems": out,
            "Group size": len(group.ranks),
            "dtype": DTYPE,
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": group.name,
            "Process Group Description": group.description,
            "Process Group Ranks": _listed(group.ranks),
        }
        if self.job.with_sequence:
            recorded["Seq"] = sequence
        return recorded


def _listed(ranks: tuple[int, ...]) -> str:
    if len(ranks) > LISTED_RANKS:
        return f"[{', '.join(map(str, ranks[: LISTED_RANKS - 1]))}, ..., {ranks[-1]}]"
    return f"[{', '.join(map(str, ranks))}]"
