"""What a job that ran out of memory would have needed in addition."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.phase import Phase


def bytes_to_come(allocations: Allocations) -> int:
    """Return what the forward pass that failed would have kept in addition, if it makes as many allocations
    as the longest one that has ended; 0 without one, or outside of a forward pass."""
    phase = allocations.context.phase[allocations.curve.event]
    position = int(allocations.failures[-1])
    if phase[position] != Phase.FORWARD:
        return 0
    forward = allocations.phase == Phase.FORWARD
    own = np.flatnonzero(forward & (allocations.in_module | allocations.in_functional))
    is_backward = allocations.context.phase[allocations.curve.event] == Phase.BACKWARD
    begun = np.cumsum(is_backward)[allocations.position[own]]  # the same between two backward passes
    passes, length = np.unique(begun, return_counts=True)
    if len(passes) < 2 or begun[-1] != begun.max() or not begun[-1]:
        return 0
    alive = own[(begun == passes[-1]) & (allocations.freed[own] == NONE)]
    missing = max(0, int(length[:-1].max()) - int(length[-1]))
    return int(allocations.bytes[alive].sum()) * missing // int(length[-1])
