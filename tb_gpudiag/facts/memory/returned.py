"""Device memory that the allocator gave back to the driver during a trace: calls that free device memory,
after which less is reserved. Libraries free device memory of their own, which is not the allocator's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.intervals import union
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.vocabulary.api_calls import DEVICE_ALLOCATION, DEVICE_FREE
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, DeviceType


@dataclass(frozen=True)
class Returned:
    """retries: within one allocation, to make room for it. emptied: outside of allocations, as
    torch.cuda.empty_cache() does. time_ns: of the calls."""

    retries: int = 0
    emptied: int = 0
    time_ns: int = 0


def returned(allocations: Allocations) -> Returned:
    """Find what was given back of one device's memory."""
    host, curve, memory = allocations.host, allocations.curve, allocations.memory
    events = host.events
    calls = events.where(*CALL_CATEGORIES)
    free, get = (calls[match_some(events, name, calls)] for name in (DEVICE_FREE, DEVICE_ALLOCATION))
    if not curve.has_reserved or not len(free):
        return Returned()
    at = np.searchsorted(curve.time_ns, events.end_ns[free])
    follows = (at > 0) & (at < len(curve)) & _is_next(allocations, events.end_ns[free], at)
    free, at = free[follows], at[follows]
    before, after = curve.reserved[at - 1], curve.reserved[at]
    gets = np.sort(events.end_ns[get])
    got = np.searchsorted(gets, curve.time_ns[at]) > np.searchsorted(gets, events.end_ns[free])
    # Memory from the driver adds at least the allocation's size, unless other memory went back as well.
    less = (after > before) & (after - before < memory.bytes[curve.event[at]])
    fell = (after < before) | (got & less)
    fell &= (before != NONE) & (after != NONE)
    free, at, got = free[fell], at[fell], got[fell]
    around = allocations.context.around[curve.event[at]]
    inside = got & (around != NONE) & (host.operator[free] != NONE)
    inside[inside] &= host.operator[around[inside]] == host.operator[free[inside]]
    return Returned(
        retries=len(np.unique(at[inside])),
        emptied=len(np.unique(at[~inside])),
        time_ns=union(events.start_ns[free], events.end_ns[free]).total,
    )


def _is_next(allocations: Allocations, time_ns: Int64, at: Int64) -> Bool:
    """Mask of the times after which the first event of any GPU's memory is this device's, at position `at` of
    its curve. Calls do not say which device they are for."""
    curve, memory = allocations.curve, allocations.memory
    gpus = np.flatnonzero(memory.device_type != DeviceType.CPU)
    following = np.searchsorted(memory.time_ns[gpus], time_ns)
    known = (following < len(gpus)) & (at < len(curve))
    found: Bool = known.copy()
    found[known] = gpus[following[known]] == curve.event[at[known]]
    return found
