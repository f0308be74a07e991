"""What findings in bytes are measured by: how much memory a device has, and how long a job runs."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.memory.device_memory import DeviceMemory

# Jobs that are worth a profile run for hours: ten thousand steps of half a second are an hour and a half.
# What grows is judged by what it will have taken by then.
HORIZON_STEPS = 10_000

# Traces do not say how much memory the host has (nor, the oldest ones, the GPU). As much as this the smallest
# machines that train have: what fits into it harms nobody.
USUAL_BYTES = 8 * 2**30


def whole_bytes(memory: DeviceMemory) -> int:
    """What shares are of: the capacity; where it is not known the peak, but at least USUAL_BYTES."""
    return memory.capacity_bytes or max(USUAL_BYTES, memory.peak.allocated_bytes)


def is_large(memory: DeviceMemory, bytes_per_step: float) -> bool:
    """Whether growth takes what is left, or where that is not known USUAL_BYTES, within the horizon."""
    left = memory.capacity_bytes - memory.peak.allocated_bytes if memory.capacity_bytes else USUAL_BYTES
    return bytes_per_step * HORIZON_STEPS >= left


def share_of_memory(
    memories: Sequence[DeviceMemory], device: int, held_bytes: float, bytes_per_step: float
) -> float:
    """0 to 1: of the device's memory (NONE: the CPU's), what is held, and what grows until the horizon."""
    memory = next((memory for memory in memories if memory.device == device), None)
    if memory is None:
        return 0.0
    return min(1.0, (held_bytes + bytes_per_step * HORIZON_STEPS) / whole_bytes(memory))
