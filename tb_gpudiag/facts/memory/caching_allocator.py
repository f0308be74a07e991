# cython: annotation_typing=False, boundscheck=True
"""CachingAllocator: torch's caching allocator for a GPU.

It follows c10/cuda/CUDACachingAllocator.cpp: sizes in multiples of 512 bytes, a pool for small blocks and one
for large ones, best fit, blocks that are split and merged, segments that are freed when the driver refuses,
and expandable segments that are mapped and unmapped in parts.

It is compiled where there is a compiler (caching_allocator.pxd has the types), and then takes a third of the
time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import pairwise

from tb_gpudiag.arrays import NONE
from tb_gpudiag.vocabulary.recorded import ALLOCATOR_UNIT, allocated_bytes

MIB = 1 << 20
SMALL_BYTES = MIB
"""Requests up to this size come from the pool of small blocks."""

SMALL_SEGMENT, LARGE_SEGMENT, LEAST_OWN_SEGMENT, ROUND_SEGMENT = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB
LEAST_LARGE_REST = MIB
"""A large block is split if more than this is left."""

ENDLESS = 1 << 58
_PAST = 5 << 56
"""Addresses of segments that a replay adds are behind all recorded ones of a process."""

_ROOM = 1 << 50
"""Addresses of an expandable segment: torch reserves more than the device has."""


class DoesNotFit(Exception):
    """The driver has no memory left, although all cached segments were returned."""


class _Block:
    def __init__(
        self, address: int, size: int, pool: _Pool, *, mapped: bool = True, before: _Block | None = None
    ) -> None:
        self.address, self.size, self.pool = address, size, pool
        self.used, self.mapped = False, mapped  # not mapped: a hole in an expandable segment
        self.before = before
        self.after: _Block | None = None

    def is_whole(self) -> bool:
        """Whether it is all of its segment."""
        return self.before is None and self.after is None

    def room(self) -> int:
        """Its size with the hole behind it."""
        behind = self.after
        return self.size + (behind.size if behind is not None and not behind.mapped else 0)


class _Pool:
    def __init__(self, small: bool) -> None:
        self.small = small
        self.free: list[tuple[int, int, _Block]] = []  # size, address: best fit is the first that fits
        self.holes: list[tuple[int, _Block]] = []  # address; in expandable segments
        # What the driver is asked for at least; expandable segments are mapped in parts of this size.
        self.part = SMALL_SEGMENT if small else LARGE_SEGMENT


class CachingAllocator:
    """Allocations are known by the number that the caller gives them.

    Each stream has blocks of its own, and so has each private pool, as CUDA graphs have them: `owner` is the
    number that the caller gives to one of both. private: owners that keep what they cached.
    capacity_bytes: what the driver has for it. expandable: whether segments are, as PYTORCH_CUDA_ALLOC_CONF
    sets. addresses: of the segments that the driver gives, in order.
    """

    def __init__(
        self,
        capacity_bytes: int,
        addresses: Iterable[int] = (),
        private: frozenset[int] = frozenset(),
        *,
        expandable: bool = False,
    ) -> None:
        self.capacity_bytes, self.expandable = capacity_bytes, expandable
        self.reserved_bytes = self.allocated_bytes = 0
        self._private = private
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._first: dict[int, _Block] = {}  # of each segment, by address
        self._used: dict[int, _Block] = {}
        self._addresses, self._next = iter(addresses), _PAST

    def _pool(self, owner: int, *, small: bool) -> _Pool:
        pool = self._pools.get((owner, small))
        if pool is None:
            pool = self._pools[owner, small] = _Pool(small)
            if self.expandable:
                self._add_hole(_Block(0, _ROOM - _ROOM % pool.part, pool))
        return pool

    def add_segment(
        self, address: int, size: int, *, small: bool, used: list[tuple[int, int, int]], owner: int = 0
    ) -> None:
        """Add a segment that the allocator has already. used: (number, address, size) of blocks in use."""
        pool, at = self._pool(owner, small=small), address
        blocks: list[_Block] = []
        for number, begin, length in [*used, (NONE, address + size, 0)]:
            if begin > at:
                blocks.append(_Block(at, begin - at, pool))
            if length:
                blocks.append(_Block(begin, length, pool))
                blocks[-1].used = True
                self._used[number] = blocks[-1]
            at = begin + length
        self._first[address] = blocks[0]
        for before, after in pairwise(blocks):
            before.after, after.before = after, before
        for block in blocks:
            if block.used:
                self.allocated_bytes += block.size
            else:
                self._add_free(block)
        self.reserved_bytes += size

    def allocate(self, number: int, requested: int, owner: int = 0) -> int:
        """Return the address. Raises DoesNotFit."""
        size = max(ALLOCATOR_UNIT, allocated_bytes(requested))
        pool = self._pool(owner, small=size <= SMALL_BYTES)
        block = self._best(pool, size) or self._new(pool, size)
        if self._splits(pool, block.size - size):
            self._add_free(self._split(block, size))
        block.used = True
        self._used[number] = block
        self.allocated_bytes += block.size
        return block.address

    def free(self, number: int) -> None:
        block = self._used.pop(number)
        block.used = False
        self.allocated_bytes -= block.size
        self._add_free(self._merged(block))

    def return_cached(self) -> None:
        """Return whole free segments to the driver, and of expandable ones the free parts, as
        torch.cuda.empty_cache() does."""
        for pool in [pool for (owner, _), pool in self._pools.items() if owner not in self._private]:
            for _, _, block in list(pool.free):
                if self.expandable:
                    self._unmap(block)
                elif block.is_whole():
                    self._release(block)

    def return_segment(self, address: int) -> None:
        """Return the segment that begins there, if it is free as a whole."""
        block = self._first.get(address)
        if block is not None and not block.used and block.is_whole():
            self._release(block)

    def _splits(self, pool: _Pool, rest: int) -> bool:
        if pool.small or self.expandable:
            return rest >= ALLOCATOR_UNIT
        return rest > LEAST_LARGE_REST

    def _best(self, pool: _Pool, size: int) -> _Block | None:
        at = bisect_left(pool.free, (size, 0))
        if at == len(pool.free):
            return None
        block = pool.free[at][2]
        if self.expandable:
            # A block that can grow counts as large as it can become, so that others are used up first.
            for place in range(at + 1, len(pool.free)):
                other = pool.free[place][2]
                if other.room() >= block.room():
                    break
                block = other
        self._take_free(block)
        return block

    def _new(self, pool: _Pool, size: int) -> _Block:
        block = self._from_driver(pool, size)
        if block is None:
            self.return_cached()
            block = self._from_driver(pool, size)
        if block is None:
            raise DoesNotFit
        return block

    def _from_driver(self, pool: _Pool, size: int) -> _Block | None:
        if self.expandable:
            return self._grown(pool, size)
        wanted = pool.part
        if not pool.small and size >= LEAST_OWN_SEGMENT:
            wanted = -(-size // ROUND_SEGMENT) * ROUND_SEGMENT
        if self.reserved_bytes + wanted > self.capacity_bytes:
            return None
        address = next(self._addresses, self._next)
        self._next += wanted + ROUND_SEGMENT
        self.reserved_bytes += wanted
        block = self._first[address] = _Block(address, wanted, pool)
        return block

    def _grown(self, pool: _Pool, size: int) -> _Block | None:
        """Map as many parts as are missing in the first place of an expandable segment with room for it."""
        block: _Block | None = None
        for _, hole in pool.holes:
            block = self._place(hole, size)
            if block is not None:
                break
        if block is not None and not block.mapped:
            block = self._map(block, size)
        while block is not None and block.size < size:
            assert block.after is not None  # there is room
            block = self._map(block.after, size - block.size)
        if block is not None:
            self._take_free(block)
        return block

    def _place(self, first: _Block, size: int) -> _Block | None:
        """Return the first of the free blocks and holes around a hole, if they have room for it."""
        if first.before is not None and not first.before.used:
            first = first.before
        room = 0
        block: _Block | None = first
        while room < size and block is not None and not block.used:
            room += block.size
            block = block.after
        return first if room >= size else None

    def _map(self, hole: _Block, size: int) -> _Block | None:
        """Map the parts of a hole with its first bytes; None if the driver has not enough memory."""
        wanted = min(hole.size, -(-size // hole.pool.part) * hole.pool.part)
        if self.reserved_bytes + wanted > self.capacity_bytes:
            return None
        self._take_hole(hole)
        if wanted < hole.size:
            self._add_hole(self._split(hole, wanted))
        hole.mapped = True
        self.reserved_bytes += wanted
        block = self._merged(hole)
        self._add_free(block)
        return block

    def _unmap(self, block: _Block) -> None:
        """Unmap the whole parts of a free block."""
        part = block.pool.part
        begin = -(-block.address // part) * part
        end = (block.address + block.size) // part * part
        if begin >= end:
            return
        self._take_free(block)
        if begin > block.address:
            hole = self._split(block, begin - block.address)
            self._add_free(block)
            block = hole
        if block.address + block.size > end:
            self._add_free(self._split(block, end - block.address))
        self.reserved_bytes -= block.size
        block.mapped = False
        self._add_hole(self._merged(block))

    def _release(self, block: _Block) -> None:
        self._take_free(block)
        self.reserved_bytes -= block.size
        self._first.pop(block.address, None)

    def _split(self, block: _Block, size: int) -> _Block:
        """Shorten a block to this size, and return the rest as a block of its own."""
        rest = _Block(block.address + size, block.size - size, block.pool, mapped=block.mapped, before=block)
        rest.after, block.after, block.size = block.after, rest, size
        if rest.after is not None:
            rest.after.before = rest
        return rest

    def _merged(self, block: _Block) -> _Block:
        """Join a block with its free neighbors, or a hole with holes."""
        for other in (block.before, block.after):
            if other is None or other.used or other.mapped != block.mapped:
                continue
            if other.mapped:
                self._take_free(other)
            else:
                self._take_hole(other)
            first, second = (other, block) if other is block.before else (block, other)
            first.size, first.after = first.size + second.size, second.after
            if second.after is not None:
                second.after.before = first
            block = first
        return block

    def _add_free(self, block: _Block) -> None:
        insort(block.pool.free, (block.size, block.address, block))

    def _take_free(self, block: _Block) -> None:
        del block.pool.free[bisect_left(block.pool.free, (block.size, block.address))]

    def _add_hole(self, block: _Block) -> None:
        block.mapped = False
        insort(block.pool.holes, (block.address, block))

    def _take_hole(self, block: _Block) -> None:
        del block.pool.holes[bisect_left(block.pool.holes, (block.address,))]
