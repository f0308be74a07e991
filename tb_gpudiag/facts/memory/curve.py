"""Curve: how much of one device's memory was allocated and reserved, event by event."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import MemoryEvents
from tb_gpudiag.vocabulary.recorded import MemoryAction


@dataclass(frozen=True, eq=False)
class Curve:
    """Bytes after each event, in order of time. Shape (m,) each."""

    time_ns: Int64
    allocated: Int64
    reserved: Int64  # NONE where the trace does not say
    relative: bool  # the trace has no totals: memory allocated before the recording is missing
    start_bytes: int  # allocated before the first event, as far as the curve contains it
    event: Int64  # index into Trace.memory

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def has_reserved(self) -> bool:
        return bool((self.reserved != NONE).any())

    def before(self, position: Int64) -> Int64:
        """Return the bytes allocated just before the events at these positions (0 to m), shape of
        `position`."""
        return np.r_[np.int64(self.start_bytes), self.allocated][position]


def memory_curve(memory: MemoryEvents, event: Int64) -> Curve:
    """Compute the curve of one device. event: indices of its events in `memory`, in order of time."""
    action, size = memory.action[event], memory.bytes[event]
    change = np.where(_moves_bytes(memory, event), size, 0)
    allocated, recorded = _allocated(memory, event, change)
    start = max(0, int(allocated[0]) - int(change[0])) if len(event) else 0
    start = min(start, np.iinfo(np.int64).max)  # whatever the trace says
    if not recorded:
        # More was freed than allocated: at least this much was allocated before.
        start = max(0, -int(allocated.min(initial=0)))
        allocated = allocated + start
    driver = np.where((action == MemoryAction.GROW) | (action == MemoryAction.SHRINK), size, 0)
    return Curve(
        memory.time_ns[event],
        allocated,
        _reserved(memory, event, driver),
        relative=not recorded,
        start_bytes=start,
        event=event,
    )


def _moves_bytes(memory: MemoryEvents, event: Int64) -> Bool:
    """Mask of allocations and frees, shape of `event`."""
    action = memory.action[event]
    return (action == MemoryAction.ALLOCATE) | (action == MemoryAction.FREE)


def _allocated(memory: MemoryEvents, event: Int64, change: Int64) -> tuple[Int64, bool]:
    """Return the bytes after each event, and whether they are the trace's own totals. Without totals they are
    counted from 0."""
    total = memory.allocated[event]
    # Shared memory of loader workers is reported as mapped: its total is its own, not an allocator's.
    mapped = (memory.device_type[event] == 0) & (total == 0) & (memory.reserved[event] > 0)
    mapped |= _unmapped(memory, event, mapped)
    known = (total != NONE) & _moves_bytes(memory, event) & ~mapped
    counted = np.cumsum(change)
    if not known.any():
        return counted, False
    # Between totals, and before the first one, bytes are counted.
    last = np.maximum.accumulate(np.where(known, np.arange(len(event)), NONE))
    anchor = np.where(last == NONE, np.argmax(known), last)
    own = np.cumsum(np.where(mapped, 0, change))
    other = np.cumsum(np.where(mapped, change, 0))
    found: Int64 = total[anchor] + own - own[anchor] + other
    return found - min(0, int(found.min())), True


def _unmapped(memory: MemoryEvents, event: Int64, mapped: Bool) -> Bool:
    """Mask of the frees of mapped memory, shape of `event`."""
    if not mapped.any():
        return mapped
    address = memory.address[event]
    free = (memory.action[event] == MemoryAction.FREE) & (memory.allocated[event] == 0)
    return free & (memory.reserved[event] == 0) & np.isin(address, address[mapped])


def _reserved(memory: MemoryEvents, event: Int64, driver: Int64) -> Int64:
    """Return the reserved bytes after each event: the trace's own totals, or the sum of what the driver gave
    and took back; NONE without either. The CPU's allocator reserves nothing."""
    reserved = memory.reserved[event]
    if not len(event) or memory.device_type[event[0]] == 0:
        return np.full(len(event), NONE, np.int64)
    known = reserved != NONE
    if known.any():
        last = np.maximum.accumulate(np.where(known, np.arange(len(event)), NONE))
        return np.where(last == NONE, reserved[np.argmax(known)], reserved[np.maximum(last, 0)])
    if not driver.any():
        return reserved
    counted = np.cumsum(driver)
    return counted - min(0, int(counted.min()))
