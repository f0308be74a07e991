"""What stands in the way of fewer launches, as far as a trace tells: for the rules about launching."""

from __future__ import annotations

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import DeviceFacts, Facts
from tb_gpudiag.facts.kernels.matmuls import batch_of_one
from tb_gpudiag.rules.rule import Evidence
from tb_gpudiag.wording.format import count, share

# Fewer linear layers than these may be a head that works on one thing by design.
FEWEST_LAYERS = 4

# Memory that is in use at the peak, up to which a larger batch is worth a word; and the share of waiting for
# data from which it helps nobody.
ROOM_SHARE = 0.5
INPUT_SHARE = 0.05


def graph_evidence(facts: Facts) -> Evidence:
    """Whether the whole step could be one launch."""
    waits = facts.calls.waits_between_launches(facts.window)
    same = facts.same_shapes
    against = [
        *([f"the host waits for the GPU {count(waits, 'time')} in the step window"] if waits else []),
        *(["operators or their shapes differ from step to step"] if same is False else []),
    ]
    if against:
        return Evidence("CUDA graph", f"not as it is: {', and '.join(against)}")
    if same:
        steps = "each step has the same operators and matrix products"
        return Evidence("CUDA graph", f"possible: no wait for the GPU is in the step window, and {steps}")
    shapes = "if shapes stay the same, which the trace does not tell"
    return Evidence("CUDA graph", f"possible {shapes}: no wait for the GPU is in the step window")


def larger_batch_evidence(facts: Facts, device: DeviceFacts) -> list[Evidence]:
    """A word for a larger batch only where memory is known to have room, and data is not what is short."""
    waiting = device.ledger.by_cause(facts.window).get(Cause.INPUT, 0)
    memory = next((m for m in facts.memory if m.device == device.id), None)
    if memory is None or not memory.capacity_bytes or waiting >= INPUT_SHARE * facts.window.duration_ns:
        return []
    if memory.curve.relative:  # what was there before the recording is not known
        return []
    used = max(memory.peak_allocated_bytes, memory.peak_reserved_bytes) / memory.capacity_bytes
    if used > ROOM_SHARE:
        return []
    return [
        Evidence("larger batch", f"there is room: {share(used)} of the GPU's memory is in use at the peak")
    ]


def batch_evidence(facts: Facts) -> list[Evidence]:
    """A word where items go through the model one by one, as far as shapes tell."""
    if not batch_of_one(facts.host, facts.window, FEWEST_LAYERS):
        return []
    return [
        Evidence("items in a batch", "1, in every linear layer; several at once take hardly more launches")
    ]
