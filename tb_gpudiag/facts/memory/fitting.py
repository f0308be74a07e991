"""Fitting: the recorded allocations replayed through a model of torch's caching allocator, to see how much
memory they need as they are, and with expandable segments.

Only a snapshot shows addresses, segments and the order of all allocations. Replayed unchanged, the model must
reserve what was recorded; how far it is off is its error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.caching_allocator import (
    SMALL_SEGMENT,
    CachingAllocator,
    DoesNotFit,
    rounded,
)
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.vocabulary.recorded import MemoryAction

MOST_CHANGES = 50_000
"""Most allocations and frees that are replayed: a replay takes about 10 µs for each, and there are at most
2 + 2 * ROUNDS of them."""

ROUNDS = 4
"""Halvings of the range between what is allocated at the peak and what is reserved: to a sixteenth of it."""

MOST_ERROR = 0.01
"""A replay that reserves more or less than was recorded, by this share of the most, predicts nothing."""

_ENDLESS = 1 << 60


@dataclass(frozen=True)
class Fit:
    """Sizes are bytes, as the allocator takes them.

    error_bytes: by how much the unchanged replay's reserved memory is off, at most.
    needs_bytes: the least memory in which the allocations fit, to a sixteenth of what is unused. The
        allocator returns cached segments before it fails.
    expandable_needs_bytes: the same with expandable segments. Where the history begins in the middle of a
        job, what was there before is laid out without gaps, so it is at least this.
    whole: the history begins with empty memory.
    """

    error_bytes: int
    needs_bytes: int
    expandable_needs_bytes: int
    whole: bool


class _Changes(NamedTuple):
    """Allocations (size > 0) and frees (size 0) in order, each with the number of its allocation."""

    number: list[int]
    size: list[int]
    reserved: Int64  # recorded after each; NONE for the request that failed


class _Start(NamedTuple):
    """What there was when the history began: segments, and the blocks in use by (number, address, size)."""

    segments: list[tuple[int, int]]
    used: list[tuple[int, int, int]]


def find_fit(allocations: Allocations, segments: Segments, device: int) -> Fit | None:
    """Replay a device's allocations, up to the last one that failed; None where the model does not apply:
    expandable segments, several streams, private pools, or too many changes."""
    own = segments.device == device
    plain = not segments.expandable[own].any() and not segments.pool[own].any()
    changes = int((~allocations.found).sum()) + len(allocations.free)
    if not plain or len(np.unique(segments.stream[own])) != 1 or changes > MOST_CHANGES:
        return None
    start, change = _start(allocations, segments, own), _changes(allocations)
    error = _error(start, change) if _is_consistent(start) else None
    recorded = int(change.reserved.max(initial=0))
    if error is None or error > MOST_ERROR * recorded:
        return None
    peak, most = _peaks(start, change)
    return Fit(
        error_bytes=error,
        needs_bytes=_least(start, change, peak, most, expandable=False),
        expandable_needs_bytes=_least(start, change, peak, most, expandable=True),
        whole=not start.used,
    )


def _start(allocations: Allocations, segments: Segments, own: Bool) -> _Start:
    curve, memory = allocations.curve, allocations.memory
    action = memory.action[curve.event]
    came = memory.address[curve.event[action == MemoryAction.GROW]]
    gone = curve.event[action == MemoryAction.SHRINK]
    gone = gone[~np.isin(memory.address[gone], came)]
    kept = own & ~np.isin(segments.address, came)
    begins = np.r_[segments.address[kept], memory.address[gone]].astype(np.int64)
    sizes = np.r_[segments.bytes[kept], -memory.bytes[gone]]
    found = np.flatnonzero(allocations.found)
    early = curve.event[allocations.early_free]
    address = np.r_[memory.address[allocations.event[found]], memory.address[early]].astype(np.int64)
    size = rounded(np.r_[allocations.bytes[found], -memory.bytes[early]])
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
    return _Start(
        sorted(zip(begins.tolist(), sizes.tolist(), strict=True)), sorted(used, key=lambda block: block[1])
    )


def _is_consistent(start: _Start) -> bool:
    """Whether every block lies in a segment, and neither blocks nor segments overlap."""
    segments, used = np.array(start.segments, np.int64), np.array(start.used, np.int64)
    if not len(used):
        return True
    if not len(segments) or not _are_apart(segments[:, 0], segments[:, 1]) or not _are_apart(*used.T[1:]):
        return False
    at = np.searchsorted(segments[:, 0], used[:, 1], side="right") - 1
    return bool((at >= 0).all() and (used[:, 1:].sum(axis=1) <= segments[at].sum(axis=1)).all())


def _are_apart(begins: Int64, sizes: Int64) -> bool:
    return bool((sizes > 0).all() and (begins >= 0).all() and (begins[:-1] + sizes[:-1] <= begins[1:]).all())


def _changes(allocations: Allocations) -> _Changes:
    curve, memory = allocations.curve, allocations.memory
    made, ended = np.flatnonzero(~allocations.found), np.flatnonzero(allocations.freed != NONE)
    early = allocations.early_free
    position = np.r_[allocations.position[made], allocations.freed[ended], early]
    number = np.r_[made, ended, -2 - np.arange(len(early))]
    size = np.r_[allocations.bytes[made], np.zeros(len(ended) + len(early), np.int64)]
    failed = np.flatnonzero(memory.action[curve.event] == MemoryAction.OUT_OF_MEMORY)[-1:]
    if len(failed):
        kept = position < failed[0]
        position, number, size = position[kept], number[kept], size[kept]
    order = np.argsort(position, kind="stable")
    reserved = curve.reserved[position[order]]
    requested = np.maximum(memory.bytes[curve.event[failed]], 1)
    return _Changes(
        [*number[order].tolist(), *(len(allocations) for _ in failed)],
        [*size[order].tolist(), *requested.tolist()],
        np.r_[reserved, np.full(len(failed), NONE)],
    )


def _allocator(start: _Start, capacity: int, *, expandable: bool) -> CachingAllocator:
    allocator = CachingAllocator(capacity, expandable=expandable)
    if expandable:
        for number, _, size in start.used:
            allocator.allocate(number, size)
        return allocator
    begins = np.array([begin for begin, _ in start.segments], np.int64)
    at = np.searchsorted(begins, [address for _, address, _ in start.used], side="right") - 1
    inside: list[list[tuple[int, int, int]]] = [[] for _ in start.segments]
    for block, segment in zip(start.used, at.tolist(), strict=True):
        inside[segment].append(block)
    for (begin, size), used in zip(start.segments, inside, strict=True):
        allocator.add_segment(begin, size, small=size == SMALL_SEGMENT, used=used)
    return allocator


def _error(start: _Start, change: _Changes) -> int | None:
    """By how much reserved memory is off at most, replayed unchanged; None if blocks contradict."""
    error = 0
    try:
        allocator = _allocator(start, _ENDLESS, expandable=False)
        for number, size, recorded in zip(*change[:2], change.reserved.tolist(), strict=True):
            allocator.change(number, size)
            if recorded != NONE:
                error = max(error, abs(allocator.reserved_bytes - recorded))
    except (KeyError, IndexError):
        return None
    return error


def _peaks(start: _Start, change: _Changes) -> tuple[int, int]:
    """Return the most that is allocated and reserved, the request that failed included."""
    allocator = _allocator(start, _ENDLESS, expandable=False)
    allocated, reserved = allocator.allocated_bytes, allocator.reserved_bytes
    for number, size in zip(*change[:2], strict=True):
        allocator.change(number, size)
        allocated = max(allocated, allocator.allocated_bytes)
        reserved = max(reserved, allocator.reserved_bytes)
    return allocated, reserved


def _least(start: _Start, change: _Changes, low: int, high: int, *, expandable: bool) -> int:
    """Return the least memory in which all of it fits, from `low`, which may not do, to `high`."""
    for _ in range(ROUNDS):
        middle = (low + high) // 2
        if _fits(start, change, middle, expandable=expandable):
            high = middle
        else:
            low = middle
    return high


def _fits(start: _Start, change: _Changes, capacity: int, *, expandable: bool) -> bool:
    try:
        allocator = _allocator(start, capacity, expandable=expandable)
        allocator.return_cached()
        for number, size in zip(*change[:2], strict=True):
            allocator.change(number, size)
    except DoesNotFit:
        return False
    return True
