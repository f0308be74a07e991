"""What a job that ran out of memory would have needed in addition, and what it could have let go of."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.allocations import Allocations, in_functional, in_module, in_stack
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.torch_frames import LOAD

LEAST_WEIGHTS = 0.25
"""Of a checkpoint with Adam's state and another copy of the weights, the model's own are so much."""


def bytes_to_come(allocations: Allocations) -> int:
    """Return what the forward pass that failed would have kept in addition, if it makes as many allocations
    as the longest one that has ended; 0 without one, or outside of a forward pass."""
    phase = allocations.context.phase[allocations.curve.event]
    position = int(allocations.failures[-1])
    if phase[position] != Phase.FORWARD:
        return 0
    forward = allocations.phase == Phase.FORWARD
    own = np.flatnonzero(forward & (in_module(allocations) | in_functional(allocations)))
    begun = np.cumsum(phase == Phase.BACKWARD)[allocations.position[own]]
    passes, length = np.unique(begun, return_counts=True)
    if len(passes) < 2 or begun[-1] != begun.max() or not begun[-1]:
        return 0
    alive = own[(begun == passes[-1]) & (allocations.freed[own] == NONE)]
    missing = max(0, int(length[:-1].max()) - int(length[-1]))
    return int(allocations.bytes[alive].sum()) * missing // int(length[-1])


def loaded_bytes(allocations: Allocations) -> int:
    """Return what torch.load() put beside the weights of a model when an allocation failed. Without other
    weights, what it loaded is the model."""
    alive = allocations.alive(int(allocations.failures[-1]))
    loaded = in_stack(allocations, LOAD)[alive]
    size = allocations.bytes[alive]
    held = int(size[loaded].sum())
    weights = int(size[~loaded & (allocations.phase[alive] == Phase.PARAMETER)].sum())
    return held if weights >= LEAST_WEIGHTS * held else 0
