"""What a job that ran out of memory would have needed in addition."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.phase import Phase

LEAST_GROWTH = 1.25
"""Between passes, of results that are as long as the text is."""

LEAST_BYTES = 4096
"""What is smaller is rounded up to 512 bytes, which hides by how much it has grown."""

LINEAR_SHARE = 0.15
"""Of what has grown in a pass, at least so much has grown as the length did. Where the first layer fails, it
is hardly more."""

SUPERLINEAR = 1.5
"""Between the first and the second power of the length."""


def bytes_to_come(allocations: Allocations) -> int:
    """Return what the forward pass that failed would have kept in addition, if it makes as many allocations
    as the longest one that has ended; 0 without one, or outside of a forward pass."""
    phase = allocations.context.phase[allocations.curve.event]
    position = int(allocations.failures[-1])
    if phase[position] != Phase.FORWARD:
        return 0
    forward = allocations.phase == Phase.FORWARD
    own = np.flatnonzero(forward & (allocations.in_module | allocations.in_functional))
    begun = _passes_begun(allocations)[allocations.position[own]]
    passes, length = np.unique(begun, return_counts=True)
    if len(passes) < 2 or begun[-1] != begun.max() or not begun[-1]:
        return 0
    alive = own[(begun == passes[-1]) & (allocations.freed[own] == NONE)]
    missing = max(0, int(length[:-1].max()) - int(length[-1]))
    return int(allocations.bytes[alive].sum()) * missing // int(length[-1])


def quadratic_bytes(allocations: Allocations) -> int:
    """Return what the pass that failed held of results of modules that have grown far more than others since
    the pass before, as scores of all pairs of positions do."""
    forward = (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE)
    own = np.flatnonzero(forward & allocations.in_module & (allocations.bytes >= LEAST_BYTES))
    begun = _passes_begun(allocations)[allocations.position[own]]
    passes = np.unique(begun)
    if len(passes) < 2:
        return 0
    before, last = own[begun == passes[-2]], own[begun == passes[-1]]
    growth, held = list[float](), list[int]()
    for code in np.unique(allocations.stack[last]).tolist():
        # What one line makes several times, it makes in the same order in each pass.
        now, earlier = (rows[allocations.stack[rows] == code] for rows in (last, before))
        now, earlier = now[: len(earlier)], earlier[: len(now)]
        size = allocations.bytes[now]
        growth += (size / np.maximum(1, allocations.bytes[earlier])).tolist()
        held += np.where(allocations.freed[now] == NONE, size, 0).tolist()
    grown = [times for times in growth if times >= LEAST_GROWTH]
    usual = float(np.quantile(grown, LINEAR_SHARE, method="lower")) if grown else np.inf
    return sum(size for times, size in zip(growth, held, strict=True) if times >= usual**SUPERLINEAR)


def _passes_begun(allocations: Allocations) -> Int64:
    """Return after each event a number that is the same between two backward passes."""
    return np.cumsum(allocations.context.phase[allocations.curve.event] == Phase.BACKWARD)
