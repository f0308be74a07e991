"""How fast collectives transfer, compared with others of the same kind and size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_gpudiag.jobs.ranks.channels import Channels
from tb_gpudiag.jobs.ranks.clocks import Clocks, Float64
from tb_gpudiag.jobs.ranks.operations import RankOperations
from tb_gpudiag.jobs.ranks.row_groups import row_groups
from tb_gpudiag.jobs.ranks.waits import Waits
from tb_gpudiag.trace.events import Int64


def bus_factor(kind: str, ranks: int) -> float:
    """Bus bandwidth by algorithm bandwidth, as nccl-tests define them: what each link carries, independent of
    the number of ranks. `bytes` of a collective are the larger of what goes in and what comes out."""
    if ranks < 2:
        return 0.0
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


@dataclass(frozen=True)
class Link:
    """Collectives of one kind and size in one channel. members: who takes part. times: number of them."""

    channel: int
    kind: str
    bytes: int
    members: tuple[int, ...]
    hosts: int
    count: int
    transfer_ns: float  # median
    total_ns: int  # sum over all of them


@dataclass(frozen=True)
class SizeClass:
    """Links that are alike: same kind, size, number of ranks, and on one host or over several."""

    kind: str
    bytes: int
    ranks: int
    hosts: int
    links: tuple[Link, ...]
    transfer_ns: float  # median over the links
    slowest_ns: float  # of any collective
    total_ns: int

    @property
    def count(self) -> int:
        return sum(link.count for link in self.links)

    def algorithm_gb_per_s(self, transfer_ns: float) -> float:
        """Bytes by time; 0 if the trace does not say the size."""
        return self.bytes / transfer_ns if self.bytes > 0 and transfer_ns > 0 else 0.0

    def bus_gb_per_s(self, transfer_ns: float) -> float:
        """As nccl-tests define it."""
        return self.algorithm_gb_per_s(transfer_ns) * bus_factor(self.kind, self.ranks)


# Classes of jobs with ragged messages, most transfer first.
_MOST_CLASSES: Final = 5_000


def size_classes(
    operations: RankOperations, channels: Channels, waits: Waits, clocks: Clocks
) -> list[SizeClass]:
    """Sort collectives by kind, size, ranks and hosts; most transfer time first.

    Some collectives transfer while the last ranks still arrive, so only a link's median counts.
    """
    if not len(waits):
        return []
    row = waits.last_row
    kind, size, channel = operations.kind.code[row], operations.bytes[row], _channel(channels, row)
    columns = (channel, kind.astype(np.int64), size)
    first, inverse = row_groups(*columns)
    distinct = np.stack([column[first] for column in columns], axis=1)
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    transfer = waits.transfer_ns
    found: dict[tuple[str, int, int, int], list[Link]] = {}
    slowest: dict[tuple[str, int, int, int], float] = {}
    for i, (one, kind_code, bytes_) in enumerate(distinct.tolist()):
        times = transfer[order[bounds[i] : bounds[i + 1]]]
        members = channels.channels[one].members
        hosts = len(set(clocks.host[list(members)].tolist()))
        name = operations.kind.texts[kind_code]
        link = Link(one, name, bytes_, members, hosts, len(times), float(np.median(times)), int(times.sum()))
        key = (name, bytes_, channels.channels[one].size, hosts)
        found.setdefault(key, []).append(link)
        slowest[key] = max(slowest.get(key, 0.0), float(times.max()))
    classes = [
        SizeClass(
            *key,
            tuple(links),
            float(np.median([link.transfer_ns for link in links])),
            slowest[key],
            sum(link.total_ns for link in links),
        )
        for key, links in found.items()
    ]
    classes.sort(key=lambda one: -one.total_ns)
    return classes[:_MOST_CLASSES]


def _channel(channels: Channels, row: Int64) -> Int64:
    return channels.of[row].astype(np.int64)


def slowness(link: Link, peers: SizeClass) -> float:
    """How many times as long a link takes as the others like it; 1 if there is no other."""
    others: Float64 = np.array([one.transfer_ns for one in peers.links if one is not link])
    usual = float(np.median(others)) if len(others) else link.transfer_ns
    return link.transfer_ns / usual if usual > 0 else 1.0
