"""Evidence on how to launch less by larger batches. For CUDA graphs, see launch_advice.py."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.kernels.matmuls import batch_of_one
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.rules.rule import Evidence
from tb_gpudiag.wording.quantity import number, share_of

# Fewer linear layers than this may be a head that works on a single item by design.
FEWEST_LAYERS = 4

# Suggest a larger batch only if at most this share of the memory is in use at the peak, and the GPU waits for
# data for less than this share of the step window.
ROOM_SHARE = 0.5
INPUT_SHARE = 0.05


def larger_batch_evidence(
    device: DeviceFacts, memory: Sequence[DeviceMemory], window: Window
) -> list[Evidence]:
    """Suggest a larger batch if memory is known to have room and the GPU does not wait for data."""
    waiting = device.ledger.by_cause(window).get(Cause.INPUT, 0)
    own = next((m for m in memory if m.device == device.id), None)
    if own is None or not own.capacity_bytes or waiting >= INPUT_SHARE * window.duration_ns:
        return []
    if own.curve.relative:  # allocations from before the recording are unknown
        return []
    used = max(own.peak_allocated_bytes, own.peak_reserved_bytes)
    if used > ROOM_SHARE * own.capacity_bytes:
        return []
    peak = share_of(used, own.capacity_bytes, "of the GPU's memory in use at the peak")
    return [Evidence("Room for a larger batch", peak)]


def batch_evidence(host: Host, window: Window) -> list[Evidence]:
    """Report items that go through the model one by one, if shapes show it."""
    if not batch_of_one(host, window, FEWEST_LAYERS):
        return []
    advice = "in every linear layer; larger batches need hardly more launches"
    return [Evidence("Batch size", number(1), (advice,))]
