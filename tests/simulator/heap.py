"""Heap: the simulated allocators' memory, event by event, and what each allocation is for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from tests.builder import MemoryEvent, Recording
from tests.builder.story import FIRST_ADDRESS

MIB = 2**20
SMALLEST = 512  # bytes of a block: PyTorch's allocator rounds up to a multiple
SEGMENT_BYTES = 20 * MIB  # it asks the driver for at least this much

Kind = Literal["before", "gradient", "optimizer_state", "activation", "temporary", "input", "other"]
"""What memory is for. "before": allocated before the recording began."""

Device = int | None  # None: the CPU
GPU: Device = 0
CPU: Device = None


@dataclass(frozen=True)
class Allocation:
    """Memory that is allocated."""

    address: int
    bytes: int
    kind: Kind
    device: Device


def rounded(size: float) -> int:
    """Return the allocator's size of a block: a multiple of SMALLEST, never 0."""
    return max(SMALLEST, -(-round(size) // SMALLEST) * SMALLEST)


@dataclass
class Heap:
    """The allocators of one process. kinds: one for each of the recording's memory events."""

    recording: Recording
    kinds: list[Kind] = field(default_factory=list)
    allocated: dict[Device, int] = field(default_factory=lambda: defaultdict(int))
    reserved: int | None = None  # of the GPU; None: as much as was ever allocated
    _alive: dict[int, Allocation] = field(default_factory=dict)
    _free: dict[tuple[Device, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    _next: int = FIRST_ADDRESS

    def start(self, bytes: int) -> int:
        """Allocate before the recording; return the address."""
        address = self._take(bytes, "before", GPU)
        self.recording.memory_start[GPU] = self.allocated[GPU]
        return address

    def reserve(self, bytes: int) -> None:
        """Set what the GPU's allocator reserved before the recording."""
        self.reserved = self.recording.reserved_start = bytes // (2 * MIB) * 2 * MIB

    def lacks(self, bytes: int, device: Device) -> bool:
        """Return whether the driver has to be asked for memory."""
        return device == GPU and self.reserved is not None and self.allocated[GPU] + bytes > self.reserved

    def grow(self, bytes: int = SEGMENT_BYTES) -> None:
        if self.reserved is not None:
            self.reserved += max(SEGMENT_BYTES, -(-bytes // (2 * MIB)) * 2 * MIB)

    def shrink(self) -> None:
        if self.reserved is not None:
            self.reserved = max(self.reserved - SEGMENT_BYTES, self.allocated[GPU])

    def alloc(self, bytes: int, kind: Kind, device: Device, thread: int, at_ns: int) -> int:
        """Allocate; return the address. Freed addresses are used again, as real ones are."""
        address = self._take(bytes, kind, device)
        self._note(thread, at_ns, bytes, address, kind, device)
        return address

    def free(self, address: int, thread: int, at_ns: int) -> None:
        allocation = self._alive.pop(address)
        self.allocated[allocation.device] -= allocation.bytes
        self._free[allocation.device, allocation.bytes].append(address)
        self._note(thread, at_ns, -allocation.bytes, address, allocation.kind, allocation.device)

    def _take(self, bytes: int, kind: Kind, device: Device) -> int:
        known = self._free[device, bytes]
        address = known.pop() if known else self._next
        if address == self._next:
            self._next += rounded(bytes)
        self._alive[address] = Allocation(address, bytes, kind, device)
        self.allocated[device] += bytes
        return address

    def _note(self, thread: int, at_ns: int, bytes: int, address: int, kind: Kind, device: Device) -> None:
        reserved = self.reserved if device == GPU else None
        self.recording.memory.append(MemoryEvent(thread, at_ns, bytes, address, device, reserved))
        self.kinds.append(kind)
