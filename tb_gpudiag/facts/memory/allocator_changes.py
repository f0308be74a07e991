"""Changes: what a device's allocator did, from a snapshot, so that a model of it can do the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.intervals import groups, numbered
from tb_gpudiag.facts.memory.caching_allocator import SMALL_SEGMENT, CachingAllocator, DoesNotFit
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.vocabulary.recorded import MemoryAction, allocated_bytes

FREED, RETURNED, EMPTIED = 0, -1, -2
"""Sizes of changes that do not allocate. RETURNED: a segment went back to the driver. EMPTIED: that, because
the job emptied the cache; the first segment of several says so."""


class Owners(NamedTuple):
    """Who has blocks of its own: each stream, in the shared pools and in each private pool.

    of_segment: of each of the snapshot's segments, shape (s,). of_event: of each of the curve's, shape (c,).
    private: those that are private pools.
    """

    of_segment: Int64
    of_event: Int64
    private: frozenset[int]


class Start(NamedTuple):
    """What there was when the history began: segments by (address, size, owner), and the blocks in use by
    (number, address, size). private: owners that are private pools."""

    segments: list[tuple[int, int, int]]
    used: list[tuple[int, int, int]]
    private: frozenset[int]

    def is_consistent(self) -> bool:
        """Whether every block lies in a segment, and neither blocks nor segments overlap."""
        segments, used = np.array(self.segments, np.int64), np.array(self.used, np.int64)
        if not len(used):
            return True
        if not len(segments) or not _are_apart(segments[:, 0], segments[:, 1]):
            return False
        at = np.searchsorted(segments[:, 0], used[:, 1], side="right") - 1
        ends = segments[at, :2].sum(axis=1)
        inside = bool((at >= 0).all() and (used[:, 1:].sum(axis=1) <= ends).all())
        return inside and _are_apart(*used.T[1:])

    def allocator(
        self, capacity: int, addresses: Iterable[int] = (), *, expandable: bool = False
    ) -> CachingAllocator:
        """Return the model of the allocator as it was then; with expandable segments, without gaps."""
        allocator = CachingAllocator(capacity, addresses, self.private, expandable=expandable)
        begins = np.array([begin for begin, _, _ in self.segments], np.int64)
        at = np.searchsorted(begins, [address for _, address, _ in self.used], side="right") - 1
        if expandable:
            for (number, _, size), segment in zip(self.used, at.tolist(), strict=True):
                allocator.allocate(number, size, self.segments[segment][2])
            return allocator
        inside: list[list[tuple[int, int, int]]] = [[] for _ in self.segments]
        for block, segment in zip(self.used, at.tolist(), strict=True):
            inside[segment].append(block)
        for (begin, size, owner), used in zip(self.segments, inside, strict=True):
            allocator.add_segment(begin, size, small=size == SMALL_SEGMENT, used=used, owner=owner)
        return allocator


def _are_apart(begins: Int64, sizes: Int64) -> bool:
    return bool((sizes > 0).all() and (begins >= 0).all() and (begins[:-1] + sizes[:-1] <= begins[1:]).all())


class AllocatorChanges(NamedTuple):
    """Allocations (`size` > 0) and other changes in order, shape (c,) each.

    number: of the allocation; of the request that failed, len(Allocations). address: recorded. position: of
    its event in the curve. reserved: recorded after each; NONE for the request that failed. owner: see
    Owners; of changes that do not allocate, any.
    """

    number: Int64
    size: Int64
    address: Int64
    position: Int64
    reserved: Int64
    owner: Int64

    def replay(self, allocator: CachingAllocator) -> None:
        """Make these changes. Raises DoesNotFit."""
        rows = zip(self.number.tolist(), self.size.tolist(), self.owner.tolist(), strict=True)
        for number, size, owner in rows:
            if size > 0:
                allocator.allocate(number, size, owner)
            elif size == FREED:
                allocator.free(number)
            elif size == EMPTIED:
                allocator.return_cached()


def most_allocated(start: Start, changes: AllocatorChanges) -> int:
    """Return the most that is allocated, in bytes as the allocator takes them, but for rests of blocks."""
    allocates, frees = changes.size > 0, changes.size == FREED
    number = np.r_[[block[0] for block in start.used], changes.number[allocates]].astype(np.int64)
    size = np.r_[[block[2] for block in start.used], allocated_bytes(changes.size[allocates])].astype(
        np.int64
    )
    order = np.argsort(number, kind="stable")
    at = np.searchsorted(number[order], changes.number[frees])
    delta = np.zeros(len(changes.size), np.int64)
    delta[allocates], delta[frees] = size[len(start.used) :], -size[order[at]]
    before = int(size[: len(start.used)].sum())
    return before + max(0, int(np.cumsum(delta).max(initial=0)))


def fits(start: Start, changes: AllocatorChanges, capacity: int, *, expandable: bool = False) -> bool:
    """Whether all of it fits into this much memory. What was free before goes back first."""
    try:
        allocator = start.allocator(capacity, expandable=expandable)
        allocator.return_cached()
        if allocator.reserved_bytes > capacity:
            return False
        changes.replay(allocator)
    except DoesNotFit:
        return False
    return True


def owners_of(allocations: Allocations, segments: Segments, own: Bool) -> Owners:
    """Say whose each segment and each event is. own: mask of the device's segments.

    An event says its stream. A private pool is known by the segment that is there in the end: what such a
    pool returned before that counts as the stream's.
    """
    curve, memory = allocations.curve, allocations.memory
    event = curve.event
    stream = memory.stream[event] if memory.stream is not None else np.zeros(len(event), np.int64)
    chosen = np.flatnonzero(own)
    chosen = chosen[np.argsort(segments.address[chosen], kind="stable")]
    pool = np.zeros(len(event), np.int64)
    if len(chosen):
        address = memory.address[event]
        at = chosen[np.maximum(np.searchsorted(segments.address[chosen], address, side="right") - 1, 0)]
        begins = segments.address[at]
        inside = (address >= begins) & (address - begins < segments.bytes[at].astype(np.uint64))
        pool[inside] = segments.pool[at[inside]]
    ids = np.r_[segments.stream, stream], np.r_[segments.pool, pool]  # a stream's is an address
    codes, first = groups(*(numbered(one)[1].reshape(-1) for one in ids))
    private = np.flatnonzero(np.r_[segments.pool, pool][first] > 0)
    return Owners(codes[: len(own)], codes[len(own) :], frozenset(private.tolist()))


def start_of(allocations: Allocations, segments: Segments, own: Bool, owners: Owners) -> Start:
    """Return what there was when the history began. own: mask of the device's segments."""
    curve, memory = allocations.curve, allocations.memory
    action = memory.action[curve.event]
    moved = curve.event[(action == MemoryAction.GROW) | (action == MemoryAction.SHRINK)]
    kept = own & ~np.isin(segments.address, memory.address[moved])
    # The driver gives an address again. A segment that goes before any comes to its address was there.
    gone = moved[np.sort(np.unique(memory.address[moved], return_index=True)[1])]
    gone = gone[memory.action[gone] == MemoryAction.SHRINK]
    begins = np.r_[segments.address[kept], memory.address[gone]].astype(np.int64)
    sizes = np.r_[segments.bytes[kept], -memory.bytes[gone]]
    whose = np.r_[owners.of_segment[kept], owners.of_event[np.isin(curve.event, gone)]]
    found = np.flatnonzero(allocations.found)
    early = curve.event[allocations.early_free]
    address = np.r_[memory.address[allocations.event[found]], memory.address[early]].astype(np.int64)
    size = allocated_bytes(np.r_[allocations.bytes[found], -memory.bytes[early]])
    number = np.r_[found, -2 - np.arange(len(early))]
    # A block may be larger than its allocation: what was left was not split off.
    blocks = np.flatnonzero(segments.block_used & own[segments.block_segment])
    of_block = dict(
        zip(
            segments.block_address[blocks].astype(np.int64).tolist(),
            segments.block_bytes[blocks].tolist(),
            strict=True,
        )
    )
    rows = zip(number.tolist(), address.tolist(), size.tolist(), strict=True)
    used = [(n, a, of_block.get(a, s) if n >= 0 else s) for n, a, s in rows]
    return Start(
        sorted(zip(begins.tolist(), sizes.tolist(), whose.tolist(), strict=True)),
        sorted(used, key=lambda block: block[1]),
        owners.private,
    )


def changes_of(allocations: Allocations, owners: Owners) -> AllocatorChanges:
    """Return what the allocator did, up to the last request that failed."""
    curve, memory = allocations.curve, allocations.memory
    action = memory.action[curve.event]
    made, ended = np.flatnonzero(~allocations.found), np.flatnonzero(allocations.freed != NONE)
    early, back = allocations.early_free, np.flatnonzero(action == MemoryAction.SHRINK)
    failed = allocations.failures[-1:]
    position = np.r_[allocations.position[made], allocations.freed[ended], early, back, failed]
    number = np.r_[made, ended, -2 - np.arange(len(early)), back, np.full(len(failed), len(allocations))]
    size = np.r_[
        allocations.bytes[made],
        np.full(len(ended) + len(early), FREED),
        np.where(_empties(allocations, back), EMPTIED, RETURNED),
        np.maximum(memory.bytes[curve.event[failed]], 1),
    ]
    order = np.argsort(position, kind="stable")
    if len(failed):
        order = order[position[order] <= failed[0]]
    at = position[order]
    reserved = np.where(action[at] == MemoryAction.OUT_OF_MEMORY, NONE, curve.reserved[at])
    return AllocatorChanges(
        number[order],
        size[order],
        memory.address[curve.event[at]].astype(np.int64),
        at,
        reserved,
        owners.of_event[at],
    )


def _empties(allocations: Allocations, back: Int64) -> Bool:
    """Of these positions at which a segment was returned, mask of those at which the job emptied the cache:
    the first of each run that no new segment for the same call follows."""
    if not len(back):
        return np.zeros(0, np.bool_)
    curve, memory = allocations.curve, allocations.memory
    first = np.flatnonzero(np.r_[True, np.diff(back) > 1])
    after = np.r_[back[first[1:] - 1], back[-1]] + 1
    known = after < len(curve)
    event = curve.event[np.minimum(after, len(curve) - 1)]
    retried = known & (memory.action[event] == MemoryAction.GROW)
    retried &= memory.stack[event] == memory.stack[curve.event[back[first]]]
    found = np.zeros(len(back), np.bool_)
    found[first] = ~retried
    return found
