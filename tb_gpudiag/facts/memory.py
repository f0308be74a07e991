"""What the `[memory]` events say of each device: peaks, and how much it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.trace.events import NONE, Trace


@dataclass(frozen=True)
class DeviceMemory:
    """Of PyTorch's caching allocator on one device; 0 where the trace does not say."""

    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    capacity_bytes: int


def device_memory(trace: Trace) -> list[DeviceMemory]:
    """One entry for each GPU with `[memory]` events that carry totals (generation B and later)."""
    memory, found = trace.memory, []
    for device in np.unique(memory.device[(memory.device != NONE) & (memory.allocated != NONE)]):
        own = memory.device == device
        found.append(
            DeviceMemory(
                int(device),
                int(memory.allocated[own].max()),
                max(0, int(memory.reserved[own].max())),
                _capacity(trace, int(device)),
            )
        )
    return found


def _capacity(trace: Trace, device: int) -> int:
    for properties in trace.metadata.device_properties:
        if isinstance(properties, dict) and properties.get("id") == device:
            size = properties.get("totalGlobalMem")
            return size if isinstance(size, int) else 0
    return 0
