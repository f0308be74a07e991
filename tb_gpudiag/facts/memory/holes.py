"""Holes: what is free inside partly used segments at one moment, whose pools it is in, and which lines'
allocations keep the segments from being returned to the driver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.recorded import MemoryAction


@dataclass(frozen=True)
class Holes:
    """private_free_bytes: free in segments of private pools, as CUDA graphs have them.
    line: whose allocations are next to most of what is free in partly used segments; None if unknown.
    line_bytes: how much is free next to them. line_count: how many they are.
    """

    private_free_bytes: int
    line: Frame | None
    line_bytes: int
    line_count: int


def find_holes(allocations: Allocations, segments: Segments, own: Bool, position: int) -> Holes:
    """Find the holes of a device after the event at this position. own: mask of its segments."""
    begins, size, private = _segments_then(allocations, segments, own, position)
    live = allocations.alive(position)
    address = allocations.memory.address[allocations.event[live]]
    at = np.searchsorted(begins, address, side="right") - 1
    inside = at >= 0
    inside[inside] &= (address[inside] - begins[at[inside]]).astype(np.int64) < size[at[inside]]
    live, at = live[inside], at[inside]
    used = np.bincount(at, weights=allocations.bytes[live], minlength=len(begins))
    count = np.bincount(at, minlength=len(begins))
    free = np.maximum(size - used, 0)
    # Blocks of one segment share what is free in it.
    share = free[at] / np.maximum(count[at], 1)
    share[private[at]] = 0
    return Holes(int(free[private].sum()), *_line(allocations, live, share))


def _segments_then(
    allocations: Allocations, segments: Segments, own: Bool, position: int
) -> tuple[npt.NDArray[np.uint64], Int64, Bool]:
    """Return address, size and whether it is in a private pool of each segment that there was after the event
    at this position, by address: the snapshot's, with what came and went afterwards undone."""
    curve, memory = allocations.curve, allocations.memory
    later = curve.event[position + 1 :]
    gone = later[memory.action[later] == MemoryAction.SHRINK]
    came = memory.address[later[memory.action[later] == MemoryAction.GROW]]
    gone = gone[~np.isin(memory.address[gone], came)]
    kept = own & ~np.isin(segments.address, came)
    begins = np.r_[segments.address[kept], memory.address[gone]]
    size = np.r_[segments.bytes[kept], -memory.bytes[gone]]
    private = np.r_[segments.pool[kept] > 0, np.zeros(len(gone), np.bool_)]
    order = np.argsort(begins, kind="stable")
    return begins[order], size[order], private[order]


def _line(allocations: Allocations, live: Int64, share: Int64) -> tuple[Frame | None, int, int]:
    stack = allocations.stack[live]
    codes, number = np.unique(stack, return_inverse=True)
    held = np.bincount(number.reshape(-1), weights=share, minlength=len(codes))
    sums: dict[Frame, list[float]] = {}
    for code in np.argsort(-held, kind="stable").tolist():
        own = np.flatnonzero(stack == codes[code])
        frame = allocations.frame(int(live[own[0]]))
        if frame is not None:
            of_line = sums.setdefault(frame, [0.0, 0])
            of_line[0] += float(held[code])
            of_line[1] += len(own)
    if not sums:
        return None, 0, 0
    frame, (most, count) = max(sums.items(), key=lambda one: one[1][0])
    return (frame, round(most), int(count)) if most > 0 else (None, 0, 0)
