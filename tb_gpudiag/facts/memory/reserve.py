"""Reserve: memory that the allocator has reserved but not allocated, and its calls to the driver."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, UInt8
from tb_gpudiag.facts.core.intervals import union
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Segments
from tb_gpudiag.vocabulary.api_calls import DEVICE_ALLOCATION, DEVICE_FREE
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, DeviceType, MemoryAction

MOST_SEGMENTS = 100
"""Most segments that are listed; a device has hundreds."""


@dataclass(frozen=True)
class Segment:
    """One segment: memory from one allocation by the driver. Sizes are bytes."""

    address: int
    bytes: int
    used_bytes: int
    largest_free_bytes: int  # the largest free block
    blocks: int
    expandable: bool


@dataclass(frozen=True)
class SegmentFacts:
    """The allocator's segments on one device, from a snapshot.

    each: the partly used segments with most free memory first, then the largest ones. A segment that is free
    as a whole is not a fragment.
    """

    segments: int
    each: list[Segment]
    expandable: int
    largest_free_bytes: int  # the largest free block
    free_in_used_segments_bytes: int  # free in partly used segments: cannot be returned to the driver


@dataclass(frozen=True, eq=False)
class Reserve:
    """Reserved memory is what the allocator got from the driver. Unused memory is reserved but not allocated.

    known: the trace has totals of reserved memory.
    growths, shrinks: changes of that total from one event to the next. The steady ones are those after the
    warm-up, 0 without steps.
    unused_at_failure_bytes, failed_bytes: the most that was unused when an allocation failed that requested
    no more than that, and what it requested; 0 without one.
    retries: how often the allocator returned memory and asked again within one allocation.
    emptied, returning_ns: how often memory was returned outside of allocations, and how long the host was in
    the calls that returned memory; in traces.
    driver_ns: the device's idle time under calls to the driver for memory, over the step window.
    """

    known: bool
    unused_at_peak_bytes: int
    most_unused_bytes: int
    growths: int
    shrinks: int
    steady_growths: int
    steady_shrinks: int
    retries: int
    emptied: int
    returning_ns: int
    out_of_memory: int
    out_of_memory_ns: Int64
    unused_at_failure_bytes: int
    failed_bytes: int
    driver_ns: int
    segments: SegmentFacts | None


def find_reserve(
    allocations: Allocations, segments: Segments | None, device: int, warm_ns: int | None, driver_ns: int
) -> Reserve:
    """Find the reserve of the device with these allocations.

    segments: of all devices. warm_ns: when the warm-up ended; None without steps.
    """
    curve, memory = allocations.curve, allocations.memory
    action, failed = memory.action[curve.event], allocations.failures
    unused = np.where(curve.reserved == NONE, 0, curve.reserved - curve.allocated)
    change = np.diff(curve.reserved) if curve.has_reserved else np.zeros(max(0, len(curve) - 1), np.int64)
    at = curve.time_ns[1:]
    steady = at >= warm_ns if warm_ns is not None else np.zeros(len(at), np.bool_)
    requested = memory.bytes[curve.event[failed]]
    unused_then = np.where((requested > 0) & (requested <= unused[failed]), unused[failed], 0)
    worst = int(unused_then.argmax()) if len(failed) else NONE
    split = worst != NONE and unused_then[worst] > 0
    peak = int(curve.allocated.argmax())
    # What was there before the recording came to be at other times, with less reserved.
    begin = min(peak, max(0, int(memory.before[curve.event].sum()) - 1))
    back = _returned(allocations) if device != NONE else _Returned()
    return Reserve(
        known=curve.has_reserved,
        unused_at_peak_bytes=max(0, int(unused[peak])),
        most_unused_bytes=max(0, int(unused[begin:].max())),
        growths=int((change > 0).sum()),
        shrinks=int((change < 0).sum()),
        steady_growths=int((steady & (change > 0)).sum()),
        steady_shrinks=int((steady & (change < 0)).sum()),
        retries=_retries(action, memory.stack[curve.event]) + back.retries,
        emptied=back.emptied,
        returning_ns=back.time_ns,
        out_of_memory=len(failed),
        out_of_memory_ns=curve.time_ns[failed],
        unused_at_failure_bytes=int(unused_then[worst]) if split else 0,
        failed_bytes=int(requested[worst]) if split else 0,
        driver_ns=driver_ns,
        segments=_segments(segments, device) if segments is not None else None,
    )


@dataclass(frozen=True)
class _Returned:
    """retries: within one allocation, to make room for it. emptied: outside of allocations, as
    torch.cuda.empty_cache() does. time_ns: of the calls."""

    retries: int = 0
    emptied: int = 0
    time_ns: int = 0


def _returned(allocations: Allocations) -> _Returned:
    """Find what the allocator gave back of one device's memory during a trace: calls that free device memory,
    after which less is reserved. Libraries free device memory of their own, which is not the allocator's."""
    host, curve, memory = allocations.host, allocations.curve, allocations.memory
    events = host.events
    calls = events.where(*CALL_CATEGORIES)
    free, get = (calls[match_some(events, name, calls)] for name in (DEVICE_FREE, DEVICE_ALLOCATION))
    if not curve.has_reserved or not len(free):
        return _Returned()
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
    return _Returned(
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


def _retries(action: UInt8, stack: Int32) -> int:
    """Count the retries of a snapshot: memory returned, then got again from the same call stack, with no
    allocation or free in between. empty_cache() also returns memory, but from another stack: Python calls
    it. The engine's threads have none."""
    returns, gets = action[:-1] == MemoryAction.SHRINK, action[1:] == MemoryAction.GROW
    same = (stack[:-1] == stack[1:]) & (stack != NONE).any()
    return int((returns & gets & same).sum())


def _segments(segments: Segments, device: int) -> SegmentFacts:
    own = segments.device == device
    block = own[segments.block_segment] if len(segments.block_segment) else np.zeros(0, np.bool_)
    free = block & ~segments.block_used
    used = np.zeros(len(segments.device), np.bool_)
    used[segments.block_segment[segments.block_used]] = True
    size = segments.block_bytes
    return SegmentFacts(
        segments=int(own.sum()),
        each=_each(segments, np.flatnonzero(own)),
        expandable=int((own & segments.expandable).sum()),
        largest_free_bytes=int(size[free].max(initial=0)),
        free_in_used_segments_bytes=int(size[free & used[segments.block_segment]].sum()) if len(size) else 0,
    )


def _each(segments: Segments, own: Int64) -> list[Segment]:
    count = len(segments.device)
    of_block, size = segments.block_segment, segments.block_bytes
    free = ~segments.block_used
    blocks = np.bincount(of_block, minlength=count)
    used, largest = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(used, of_block[~free], size[~free])
    np.maximum.at(largest, of_block[free], size[free])
    fragments = np.where(used > 0, segments.bytes - used, 0)
    order = own[np.lexsort((segments.address[own], -segments.bytes[own], -fragments[own]))]
    return [
        Segment(
            int(segments.address[i]),
            int(segments.bytes[i]),
            int(used[i]),
            int(largest[i]),
            int(blocks[i]),
            bool(segments.expandable[i]),
        )
        for i in order[:MOST_SEGMENTS]
    ]
