"""How much of one device's memory was allocated and reserved, event by event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.trace.events import NONE, Bool, Int64, MemoryAction, MemoryEvents


@dataclass(frozen=True)
class Curve:
    """Bytes after each event, in order of time. Shape (m,) each."""

    time_ns: Int64
    allocated: Int64
    reserved: Int64  # NONE where the trace does not say
    relative: bool  # the trace has no totals: what was allocated before is not in it
    start_bytes: int  # allocated before the first event, as far as the curve has it
    event: Int64  # index into Trace.memory

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def has_reserved(self) -> bool:
        return bool((self.reserved != NONE).any())

    def before(self, position: Int64) -> Int64:
        """Allocated just before the events at these positions (0 to m). Shape of `position`."""
        found: Int64 = np.r_[np.int64(self.start_bytes), self.allocated][position]
        return found


def memory_curve(memory: MemoryEvents, event: Int64) -> Curve:
    """Of the device with these events: indices into `memory`, in order of time."""
    action, size = memory.action[event], memory.bytes[event]
    change = np.where(_moves_bytes(memory, event), size, 0)
    allocated, recorded = _allocated(memory, event, change)
    start = max(0, int(allocated[0]) - int(change[0])) if len(event) else 0
    start = min(start, np.iinfo(np.int64).max)  # whatever the trace says
    if not recorded:
        # What was freed was allocated before: at least so much was there.
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
    """Shape of `event`: allocations and frees."""
    action = memory.action[event]
    found: Bool = (action == MemoryAction.ALLOCATE) | (action == MemoryAction.FREE)
    return found


def _allocated(memory: MemoryEvents, event: Int64, change: Int64) -> tuple[Int64, bool]:
    """Bytes after each event, and whether the trace's own totals say so; else they are counted from 0."""
    total = memory.allocated[event]
    # Shared memory of loader workers is reported as mapped: its total is its own, and no allocator's.
    mapped = (memory.device_type[event] == 0) & (total == 0) & (memory.reserved[event] > 0)
    mapped |= _unmapped(memory, event, mapped)
    known = (total != NONE) & _moves_bytes(memory, event) & ~mapped
    counted = np.cumsum(change)
    if not known.any():
        return counted, False
    # Between two totals, and before the first, events are counted.
    last = np.maximum.accumulate(np.where(known, np.arange(len(event)), NONE))
    anchor = np.where(last == NONE, np.argmax(known), last)
    own = np.cumsum(np.where(mapped, 0, change))
    other = np.cumsum(np.where(mapped, change, 0))
    found: Int64 = total[anchor] + own - own[anchor] + other
    return found - min(0, int(found.min())), True


def _unmapped(memory: MemoryEvents, event: Int64, mapped: Bool) -> Bool:
    """Shape of `event`: frees that give mapped memory back."""
    if not mapped.any():
        return mapped
    address = memory.address[event]
    free = (memory.action[event] == MemoryAction.FREE) & (memory.allocated[event] == 0)
    found: Bool = free & (memory.reserved[event] == 0) & np.isin(address, address[mapped])
    return found


def _reserved(memory: MemoryEvents, event: Int64, driver: Int64) -> Int64:
    """Bytes after each event: the trace's own totals, else what the driver gave and took. The CPU's allocator
    reserves nothing."""
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
