"""CachingAllocator: torch's caching allocator for a GPU, as far as one stream and the shared pools go.

It follows c10/cuda/CUDACachingAllocator.cpp: sizes in multiples of 512 bytes, a pool for small blocks and one
for large ones, best fit, blocks that are split and merged, segments that are freed when the driver refuses.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from tb_gpudiag.arrays import Int64

MIB = 1 << 20
ROUNDED_TO = 512
SMALL_BYTES = MIB
"""Requests up to this size come from the pool of small blocks."""

SMALL_SEGMENT, LARGE_SEGMENT, LEAST_OWN_SEGMENT, ROUND_SEGMENT = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB
LEAST_LARGE_REST = MIB
"""A large block is split if more than this is left."""

_PAST = 1 << 56
"""Addresses of segments that a replay adds: behind all recorded ones of a process."""


class DoesNotFit(Exception):
    """The driver has no memory left, although all cached segments were returned."""


def rounded(size: Int64) -> Int64:
    """Round requests up to what the allocator takes for them."""
    return -(-size // ROUNDED_TO) * ROUNDED_TO


@dataclass
class _Block:
    address: int
    size: int
    pool: _Pool
    used: bool = False
    before: _Block | None = None
    after: _Block | None = None


@dataclass
class _Pool:
    small: bool
    free: list[tuple[int, int]] = field(
        default_factory=list
    )  # size, address: best fit is the first that fits
    last: _Block | None = None  # of an expandable segment

    @property
    def part(self) -> int:
        """What the driver is asked for at least; expandable segments are mapped in parts of this size."""
        return SMALL_SEGMENT if self.small else LARGE_SEGMENT


class CachingAllocator:
    """Allocations are known by the number that the caller gives them.

    capacity_bytes: what the driver has for it. expandable: segments grow in place.
    """

    def __init__(self, capacity_bytes: int, *, expandable: bool = False) -> None:
        self.capacity_bytes, self.expandable = capacity_bytes, expandable
        self.reserved_bytes = self.allocated_bytes = 0
        self._pools = {small: _Pool(small) for small in (True, False)}
        self._blocks: dict[int, _Block] = {}  # free ones, by address
        self._used: dict[int, _Block] = {}
        self._returnable: set[int] = set()  # addresses of free blocks that the driver can have back
        self._next = _PAST

    def add_segment(self, address: int, size: int, *, small: bool, used: list[tuple[int, int, int]]) -> None:
        """Add a segment that the allocator has already. used: (number, address, size) of blocks in use."""
        pool, at = self._pools[small], address
        last: _Block | None = None
        free: list[_Block] = []

        def put(begin: int, length: int, number: int | None) -> None:
            nonlocal last
            block = _Block(begin, length, pool, used=number is not None, before=last)
            if last is not None:
                last.after = block
            last = block
            if number is None:
                free.append(block)
            else:
                self._used[number] = block
                self.allocated_bytes += length

        for number, begin, length in used:
            if begin > at:
                put(at, begin - at, None)
            put(begin, length, number)
            at = begin + length
        if at < address + size:
            put(at, address + size - at, None)
        for block in free:
            self._add_free(block)
        self.reserved_bytes += size

    def change(self, number: int, size: int) -> None:
        """Allocate `size` bytes; free the allocation of this number if it is 0. Raises DoesNotFit."""
        if size:
            self.allocate(number, size)
        else:
            self.free(number)

    def allocate(self, number: int, requested: int) -> int:
        """Return the address. Raises DoesNotFit."""
        size = max(ROUNDED_TO, -(-requested // ROUNDED_TO) * ROUNDED_TO)
        pool = self._pools[size <= SMALL_BYTES]
        block = self._best(pool, size) or self._from_driver(pool, size)
        rest = block.size - size
        if rest >= ROUNDED_TO if pool.small or self.expandable else rest > LEAST_LARGE_REST:
            self._split(block, size)
        block.used = True
        self._used[number] = block
        self.allocated_bytes += block.size
        return block.address

    def free(self, number: int) -> None:
        block = self._used.pop(number)
        block.used = False
        self.allocated_bytes -= block.size
        for other in (block.before, block.after):
            if other is not None and not other.used:
                self._take_free(other)
                block = self._merged(min(block, other, key=lambda b: b.address))
        self._add_free(block)

    def _best(self, pool: _Pool, size: int) -> _Block | None:
        at = bisect_left(pool.free, (size, 0))
        if at == len(pool.free):
            return None
        block = self._blocks[pool.free[at][1]]
        self._take_free(block)
        return block

    def _from_driver(self, pool: _Pool, size: int) -> _Block:
        wanted = pool.part
        if self.expandable:
            return self._grown(pool, size, wanted)
        if not pool.small and size >= LEAST_OWN_SEGMENT:
            wanted = -(-size // ROUND_SEGMENT) * ROUND_SEGMENT
        self._make_room(wanted)
        block = _Block(self._next, wanted, pool)
        self._next += wanted + ROUND_SEGMENT
        self.reserved_bytes += wanted
        return block

    def _grown(self, pool: _Pool, size: int, part: int) -> _Block:
        wanted = self._missing(pool, size, part)
        self._make_room(wanted)
        if (wanted := self._missing(pool, size, part)) and self.reserved_bytes + wanted > self.capacity_bytes:
            raise DoesNotFit  # to make room, the free end of the segment was returned
        self.reserved_bytes += wanted
        last = pool.last
        if last is not None and not last.used:
            self._take_free(last)
            last.size += wanted
            return last
        begin = last.address + last.size if last is not None else _PAST * (1 if pool.small else 2)
        block = _Block(begin, wanted, pool, before=last)
        if last is not None:
            last.after = block
        pool.last = block
        return block

    def _missing(self, pool: _Pool, size: int, part: int) -> int:
        """Return what has to be mapped behind the free end of an expandable segment."""
        has = pool.last.size if pool.last is not None and not pool.last.used else 0
        return -(-(size - has) // part) * part

    def _make_room(self, wanted: int) -> None:
        if self.reserved_bytes + wanted <= self.capacity_bytes:
            return
        self.return_cached()
        if self.reserved_bytes + wanted > self.capacity_bytes:
            raise DoesNotFit

    def return_cached(self) -> None:
        """Return whole free segments to the driver; of expandable ones, the free parts. Raises DoesNotFit if
        the driver has less than what is left."""
        for address in list(self._returnable):
            block = self._blocks[address]
            if self.expandable:
                self._unmap(block)
            else:
                self._take_free(block)
                self.reserved_bytes -= block.size
        if self.reserved_bytes > self.capacity_bytes:
            raise DoesNotFit

    def _unmap(self, block: _Block) -> None:
        """Unmap the whole parts of a free block. Their addresses are not used again: there are enough."""
        hole = block.size // block.pool.part * block.pool.part
        self._take_free(block)
        if block.size > hole:
            self._split(block, hole)
        block.used = True
        self.reserved_bytes -= hole

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.size - size, block.pool, before=block)
        rest.after, block.after, block.size = block.after, rest, size
        if rest.after is not None:
            rest.after.before = rest
        if block.pool.last is block:
            block.pool.last = rest
        self._add_free(rest)

    def _merged(self, first: _Block) -> _Block:
        second = first.after
        assert second is not None
        first.size, first.after = first.size + second.size, second.after
        if second.after is not None:
            second.after.before = first
        if first.pool.last is second:
            first.pool.last = first
        return first

    def _add_free(self, block: _Block) -> None:
        insort(block.pool.free, (block.size, block.address))
        self._blocks[block.address] = block
        whole = block.before is None and block.after is None
        if block.size >= block.pool.part if self.expandable else whole:
            self._returnable.add(block.address)

    def _take_free(self, block: _Block) -> None:
        key = (block.size, block.address)
        del block.pool.free[bisect_left(block.pool.free, key)]
        del self._blocks[block.address]
        self._returnable.discard(block.address)
