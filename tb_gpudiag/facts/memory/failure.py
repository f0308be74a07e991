"""Failure: an allocation that did not fit, what was free, and who held the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.context import MemoryContext
from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.facts.memory.peak import Peak, find_peak
from tb_gpudiag.facts.memory.sites import span_name
from tb_gpudiag.trace.events import MemoryEvents, Segments
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.recorded import MemoryAction

MOST_CHANGES = 20_000
"""Most changes of segments after a failure that are undone. A job that handles it has a few of them."""

_ROUNDED_TO = 512
"""The allocator's smallest unit."""


@dataclass(frozen=True)
class Failure:
    """An allocation that failed. Sizes are bytes, NONE where the recording does not say.

    unused_bytes: reserved, but not allocated.
    driver_free_bytes: what the driver had free.
    largest_free_bytes: the largest free block of the allocator. Blocks are known to 1 MiB.
    expandable: all segments are expandable.
    held: what was allocated then, as Peak.
    """

    requested_bytes: int
    unused_bytes: int
    driver_free_bytes: int
    largest_free_bytes: int
    expandable: bool
    operator: str
    frame: Frame | None
    held: Peak


def find_failure(
    curve: Curve,
    allocations: Allocations,
    host: Host,
    memory: MemoryEvents,
    context: MemoryContext,
    segments: Segments | None,
) -> Failure | None:
    """Return the last failed allocation of the device with this curve; None without one."""
    failed = np.flatnonzero(memory.action[curve.event] == MemoryAction.OUT_OF_MEMORY)
    if not len(failed):
        return None
    position = int(failed[-1])
    event = int(curve.event[position])
    reserved = int(curve.reserved[position])
    own = segments.device == memory.device[event] if segments is not None else np.zeros(0, np.bool_)
    stack, place = int(memory.stack[event]), int(context.place[event])
    return Failure(
        requested_bytes=max(0, int(memory.bytes[event])),
        unused_bytes=NONE if reserved == NONE else max(0, reserved - int(curve.allocated[position])),
        driver_free_bytes=NONE if memory.driver_free is None else int(memory.driver_free[event]),
        largest_free_bytes=NONE
        if segments is None or not allocations.paired
        else _largest_free(curve, allocations, memory, segments, own, position),
        expandable=bool(own.any()) and segments is not None and bool(segments.expandable[own].all()),
        operator=span_name(host, int(context.operator[event])),
        frame=host.frame(place) if stack == NONE else innermost_place(memory.stacks[stack]),
        held=find_peak(curve, allocations, host, memory, context.phase, at=position),
    )


def _largest_free(
    curve: Curve,
    allocations: Allocations,
    memory: MemoryEvents,
    segments: Segments,
    own: Bool,
    position: int,
) -> int:
    """Return the largest part of a segment that no allocation used at this position; NONE if unknown.

    The segments then are those of the snapshot, with the changes after the position undone.
    """
    action = memory.action[curve.event]
    changes = (
        position
        + 1
        + np.flatnonzero(np.isin(action[position + 1 :], (MemoryAction.GROW, MemoryAction.SHRINK)))
    )
    if len(changes) > MOST_CHANGES:
        return NONE
    changed = curve.event[changes]
    live = allocations.event[allocations.alive(position)]
    begins, ends = _ranges(segments.address[own], segments.bytes[own])
    change_begins, change_ends = _ranges(memory.address[changed], np.abs(memory.bytes[changed]))
    live_begins, live_ends = _ranges(
        memory.address[live], -(-memory.bytes[live] // _ROUNDED_TO) * _ROUNDED_TO
    )
    bounds = np.unique(np.r_[begins, ends, change_begins, change_ends, live_begins, live_ends])
    if len(bounds) < 2:
        return 0
    # Each part between two bounds is mapped or not, and used or not.
    mapped = _covered(bounds, begins, ends)
    for i in range(len(changes) - 1, -1, -1):
        first, last = np.searchsorted(bounds, [change_begins[i], change_ends[i]])
        mapped[first:last] = action[changes[i]] == MemoryAction.SHRINK
    free = mapped & ~_covered(bounds, live_begins, live_ends)
    # A block does not go beyond its segment.
    ends_block = begins if segments.expandable[own].all() else np.r_[begins, change_begins]
    starts = np.r_[True, ~free[:-1] | np.isin(bounds[1:-1], ends_block)] & free
    run = np.cumsum(starts) - 1
    size = np.diff(bounds).astype(np.float64)
    return int(np.bincount(run[free], weights=size[free]).max()) if free.any() else 0


def _ranges(
    address: npt.NDArray[np.uint64], size: Int64
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    return address, address + size.astype(np.uint64)


def _covered(
    bounds: npt.NDArray[np.uint64], begins: npt.NDArray[np.uint64], ends: npt.NDArray[np.uint64]
) -> Bool:
    """Mask of the parts between neighboring bounds that at least one range covers."""
    count = np.zeros(len(bounds), np.int64)
    np.add.at(count, np.searchsorted(bounds, begins), 1)
    np.add.at(count, np.searchsorted(bounds, ends), -1)
    found: Bool = np.cumsum(count)[:-1] > 0
    return found
