"""What recorded steps keep for later ones: memory that was allocated in them two steps ago or before."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.floor import Floors

OLD = 2
"""Steps. The batch and the outputs of the last step are alive in the next one."""


def kept_at_floors(allocations: Allocations, found: Floors) -> Int64:
    """Return how many bytes are kept at each floor of what was allocated after the warm-up; shape (k,)."""
    count, first = len(found), int(found.excused.sum())
    position, freed = allocations.position, allocations.freed
    period = np.searchsorted(found.periods.start_ns, allocations.time_ns, side="right") - 1
    until = np.where(freed == NONE, count, np.searchsorted(found.position, freed, side="left"))
    since = np.maximum(np.searchsorted(found.position, position, side="left"), period + OLD)
    chosen = (period >= first) & (until > since) & ~allocations.found
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, since[chosen], allocations.bytes[chosen])
    np.add.at(change, until[chosen], -allocations.bytes[chosen])
    return np.cumsum(change)[:count]
