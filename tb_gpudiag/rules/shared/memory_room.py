"""Scale for findings about memory: how much a device has, and how long a job runs."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.memory.device_memory import DeviceMemory

# Jobs worth profiling run for hours: ten thousand steps of half a second are an hour and a half. Growth is
# judged by the memory that it takes by then.
HORIZON_STEPS = 10_000

# Traces do not say how much memory the host has, and the oldest ones do not say it of the GPU. The smallest
# machines used for training have this much, and growth that fits does no harm.
USUAL_BYTES = 8 * 2**30


def whole_bytes(memory: DeviceMemory) -> int:
    """Return the capacity; if it is unknown, the peak, but at least USUAL_BYTES."""
    return memory.capacity_bytes or max(USUAL_BYTES, memory.peak.allocated_bytes)


def is_large(memory: DeviceMemory, bytes_per_step: float) -> bool:
    """Whether growth fills the free memory within the horizon, or USUAL_BYTES if free memory is unknown."""
    left = memory.capacity_bytes - memory.peak.allocated_bytes if memory.capacity_bytes else USUAL_BYTES
    return bytes_per_step * HORIZON_STEPS >= left


def share_of_memory(
    memories: Sequence[DeviceMemory], device: int, held_bytes: float, bytes_per_step: float
) -> float:
    """Share of the device's memory (NONE: the CPU's) that is held or grows by the horizon, 0 to 1."""
    memory = next((memory for memory in memories if memory.device == device), None)
    if memory is None:
        return 0.0
    return min(1.0, (held_bytes + bytes_per_step * HORIZON_STEPS) / whole_bytes(memory))
