"""Models that were trained before the newest one, and are still there: those of other folds or trials."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.memory_kinds import KINDS, MemoryKind, kind_numbers


def find_earlier_models(allocations: Allocations) -> Int64:
    """Return what earlier models and their optimizers held when an allocation failed, as indices; none where
    the newest one is not known to be as they are.

    Layers that are added to a model have no optimizer state as the first ones had, at the same lines, of the
    same sizes; copies of weights have none at all. Only a snapshot's stacks tell these lines.
    """
    alive = allocations.alive(int(allocations.failures[-1]))
    alive = np.sort(alive[(allocations.stack[alive] != NONE) & ~allocations.found[alive]])
    kind = kind_numbers(allocations, alive)
    weights = alive[kind == KINDS.index(MemoryKind.PARAMETER)]
    state = alive[kind == KINDS.index(MemoryKind.OPTIMIZER_STATE)]
    # Between two models, an optimizer has made state.
    steps, first, model = np.unique(np.searchsorted(state, weights), return_index=True, return_inverse=True)
    if len(steps) < 2:
        return np.zeros(0, np.int64)
    owner = np.searchsorted(weights[first], state) - 1
    models = [_made(allocations, weights[model == i]) for i in range(len(steps))]
    states = [_made(allocations, state[owner == i]) for i in range(len(steps))]
    newest, trained = models[-1], [made for made in states if made]
    if len(trained) < 2 or not trained[-1] <= trained[-2]:
        return np.zeros(0, np.int64)
    alike = [i for i, made in enumerate(models[:-1]) if newest <= made and states[i]]
    return np.sort(np.r_[weights[np.isin(model, alike)], state[np.isin(owner, alike)]])


def _made(allocations: Allocations, chosen: Int64) -> Counter[tuple[int, int]]:
    """Count the stacks and sizes of some allocations."""
    return Counter(zip(allocations.stack[chosen].tolist(), allocations.bytes[chosen].tolist(), strict=True))
