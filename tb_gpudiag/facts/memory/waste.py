"""Waste: what was held when an allocation failed and the job could do without, and whether the request would
have fit without it. What grows from step to step is a leak: see sites.py."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.earlier_models import find_earlier_models, find_loaded
from tb_gpudiag.facts.memory.lost_passes import find_lost_passes
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame


class WasteKind(Enum):
    """What the job could do without."""

    LOST_PASSES = "graphs of forward passes that no backward pass uses"
    MODELS = "models that were made before the newest one, and their optimizers"
    LOADED = "checkpoints beside the model that they were made from"
    GRADIENTS = "gradients of the last step, during a forward pass"


@dataclass(frozen=True, eq=False)
class Waste:
    """frame: the line that calls the model, of LOST_PASSES. fits: whether the request would fit without it;
    None where that cannot be told."""

    kind: WasteKind
    bytes: int
    frame: Frame | None
    fits: bool | None


def find_waste(allocations: Allocations, fits_without: Callable[[Int64], bool | None]) -> list[Waste]:
    """Find what the job could do without at its last failure, most bytes first. fits_without: whether the
    request fits without these allocations (indices)."""
    position = int(allocations.failures[-1])
    lost = find_lost_passes(allocations, position)
    found = {
        WasteKind.LOST_PASSES: lost.own if lost is not None else np.zeros(0, np.int64),
        WasteKind.MODELS: find_earlier_models(allocations),
        WasteKind.LOADED: find_loaded(allocations),
        WasteKind.GRADIENTS: _old_gradients(allocations, position),
    }
    wastes = [
        Waste(
            kind,
            int(allocations.bytes[own].sum()),
            lost.frame if lost is not None and kind is WasteKind.LOST_PASSES else None,
            fits_without(own),
        )
        for kind, own in found.items()
        if len(own)
    ]
    return sorted(wastes, key=lambda waste: -waste.bytes)


def _old_gradients(allocations: Allocations, position: int) -> Int64:
    """Gradients that a forward pass finds. Those of leaves, such as weights, are as large as these."""
    if allocations.context.phase[allocations.curve.event[position]] != Phase.FORWARD:
        return np.zeros(0, np.int64)
    alive = allocations.alive(position)
    return alive[allocations.kind[alive] == KINDS.index(MemoryKind.GRADIENT)]
