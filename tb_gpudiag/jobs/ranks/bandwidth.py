"""How fast collectives transfer, compared with others of the same kind and size; and which links are slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.channels import SEND, Channels
from tb_gpudiag.jobs.ranks.clocks import Clocks
from tb_gpudiag.jobs.ranks.collective_matching import SAME_BYTES
from tb_gpudiag.jobs.ranks.operations import RankOperations, row_groups
from tb_gpudiag.jobs.ranks.waits import Waits

# Sizes in one class differ by at most 19%: batches of different length, not different messages.
_SIZES_PER_DOUBLING: Final = 4

# Transfers of equal size over equal links differ by some 10%. A link at half of its speed, or one that fell
# back to another transport, takes twice as long or more.
TIMES_SLOWER: Final = 1.5

# Smaller messages take as long as their latency, whatever the bandwidth: 64 KiB take 50 us on an Ethernet
# of 10 Gbit/s, which is about its latency.
SMALL_BYTES: Final = 64 << 10

# One long transfer is a collision with something else, not a slow link.
LEAST_COUNT: Final = 3


def bus_factor(kind: str, ranks: int) -> float:
    """Return bus bandwidth divided by algorithm bandwidth, as nccl-tests define them: bus bandwidth is what
    each link carries, whatever the number of ranks. `bytes` of a collective are the larger of its input and
    output."""
    if ranks < 2:
        return 0.0
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


@dataclass(frozen=True, eq=False)
class Link:
    """Collectives of one kind and size in one channel. transfer_ns, step: of each, in order of time."""

    channel: int
    members: tuple[int, ...]
    transfer_ns: Int64
    step: Int64

    @property
    def count(self) -> int:
        return len(self.transfer_ns)

    @property
    def usual_ns(self) -> float:
        """Median transfer."""
        return float(np.median(self.transfer_ns))


@dataclass(frozen=True, eq=False)
class SizeClass:
    """Links with the same kind, number of ranks and number of hosts, and about the same size.

    bytes: median size; NONE if the trace does not say.
    """

    kind: str
    bytes: int
    ranks: int
    hosts: int
    links: tuple[Link, ...]

    @property
    def count(self) -> int:
        return sum(link.count for link in self.links)

    @property
    def whole(self) -> SizeClass:
        """The links whose ranks were all recorded: waiting for a missing rank looks like transfer."""
        links = [link for link in self.links if len(link.members) == self.ranks]
        return replace(self, links=tuple(links))

    @property
    def transfer_ns(self) -> float:
        """Median over the links."""
        return float(np.median([link.usual_ns for link in self.links]))

    @property
    def slowest_ns(self) -> float:
        """The longest transfer of all."""
        return float(max(link.transfer_ns.max() for link in self.links))

    @property
    def total_ns(self) -> int:
        """Sum over all collectives."""
        return sum(int(link.transfer_ns.sum()) for link in self.links)

    def algorithm_gb_per_s(self, transfer_ns: float) -> float:
        """Bytes divided by time; 0 if the trace does not say the size."""
        return self.bytes / transfer_ns if self.bytes > 0 and transfer_ns > 0 else 0.0

    def bus_gb_per_s(self, transfer_ns: float) -> float:
        """As nccl-tests define it."""
        return self.algorithm_gb_per_s(transfer_ns) * bus_factor(self.kind, self.ranks)


def size_classes(
    operations: RankOperations, channels: Channels, waits: Waits, clocks: Clocks
) -> list[SizeClass]:
    """Sort collectives by kind, size, ranks and hosts; most transfer time first.

    Transfers are scaled to the class's size.
    """
    if not len(waits):
        return []
    row = waits.last_row
    channel = channels.of[row].astype(np.int64)
    pair = channels.is_pair[channel]
    # The last rank of a pair can be the sender or the receiver.
    kind = np.where(pair, NONE, operations.kind.code[row])
    # Ranks of an all-to-all can send different amounts: the largest takes longest.
    bytes_ = np.full(len(waits), NONE, np.int64)
    np.maximum.at(bytes_, waits.collective, operations.bytes[waits.row])
    bucket = np.where(bytes_ > 0, np.rint(_SIZES_PER_DOUBLING * np.log2(np.maximum(1, bytes_))), NONE)
    first, inverse = row_groups(channel, kind, bucket.astype(np.int64))
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(first) + 1))
    by_class: dict[tuple[str, int, int, int], list[Int64]] = {}
    for i, one in enumerate(first.tolist()):
        of = channels.channels[int(channel[one])]
        name = SEND if pair[one] else operations.kind.texts[int(kind[one])]
        hosts = len(set(clocks.host[list(of.members)].tolist()))
        key = (name, int(bucket[one]), of.size, hosts)
        by_class.setdefault(key, []).append(order[bounds[i] : bounds[i + 1]])
    found = []
    for (name, _, ranks, hosts), parts in by_class.items():
        usual = int(np.median(bytes_[np.concatenate(parts)]))
        links = []
        for own in parts:
            scale = usual / np.maximum(1, bytes_[own]) if usual > 0 else 1.0
            of = channels.channels[int(channel[own[0]])]
            links.append(
                Link(
                    int(channel[own[0]]),
                    of.members,
                    np.rint(waits.transfer_ns[own] * scale).astype(np.int64),
                    operations.step.code[row[own]].astype(np.int64),
                )
            )
        found.append(SizeClass(name, usual, ranks, hosts, tuple(links)))
    found.sort(key=lambda one: -one.total_ns)
    return found


@dataclass(frozen=True, eq=False)
class Slower:
    """How much slower a link is than usual. slow_ns, usual_ns: median transfers. more_ns: its total cost.

    steps: those in which it is slow; empty if it is slow in all.
    """

    link: Link
    like: SizeClass
    slow_ns: float
    usual_ns: float
    more_ns: int
    steps: tuple[int, ...] = ()

    @property
    def times(self) -> float:
        """How many times as long a transfer takes."""
        return self.slow_ns / self.usual_ns if self.usual_ns > 0 else 1.0


def among_links(link: Link, like: SizeClass) -> Slower:
    """Compare a link with the other links of its class."""
    others = [one.usual_ns for one in like.links if one is not link]
    usual = float(np.median(others)) if others else link.usual_ns
    more = int(np.maximum(0, link.transfer_ns - usual).sum())
    return Slower(link, like, link.usual_ns, usual, more)


def among_steps(link: Link, like: SizeClass) -> Slower:
    """Compare the steps in which a link takes TIMES_SLOWER as long as in its fastest step with the other
    steps."""
    steps = np.unique(link.step)
    middle = np.array([np.median(link.transfer_ns[link.step == step]) for step in steps])
    slow = steps[middle >= TIMES_SLOWER * middle.min()]
    in_slow = np.isin(link.step, slow)
    if not len(slow) or in_slow.all():
        return Slower(link, like, link.usual_ns, link.usual_ns, 0)
    usual = float(np.median(link.transfer_ns[~in_slow]))
    more = int(np.maximum(0, link.transfer_ns[in_slow] - usual).sum())
    return Slower(link, like, float(np.median(link.transfer_ns[in_slow])), usual, more, tuple(slow.tolist()))


def find_slow_links(sizes: Sequence[SizeClass]) -> list[Slower]:
    """Find the links that are slower than others like them, or slower in some steps than in the other
    steps."""
    # Ranks of an all-to-all send different amounts, and each trace has only its own rank's.
    compared = [
        like.whole
        for like in sizes
        if (like.kind in SAME_BYTES or like.kind == SEND) and not 0 < like.bytes <= SMALL_BYTES
    ]
    return [found for like in compared for found in _slow_links(like)]


def _slow_links(like: SizeClass) -> list[Slower]:
    compared = [among_links(link, like) for link in like.links if link.count >= LEAST_COUNT]
    found = [one for one in compared if one.times >= TIMES_SLOWER]
    # Where most links are slow, nothing says what is usual.
    if found and (2 * len(found) < len(like.links) or len(like.links) == 2):
        return found
    by_step = [among_steps(link, like) for link in like.links if link.count >= 2 * LEAST_COUNT]
    return [
        one for one in by_step if one.times >= TIMES_SLOWER and len(one.steps) * LEAST_COUNT <= one.link.count
    ]
