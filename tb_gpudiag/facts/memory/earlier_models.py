"""Models that are there beside the newest one: those of other folds or trials, or of an earlier part of the
job, and checkpoints that were loaded."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.recorded import ALLOCATOR_UNIT
from tb_gpudiag.vocabulary.torch_frames import LOAD

OWN_GRADIENTS = 0.25
"""Of the weights of the newest model: some of them may be frozen."""

LEAST_WEIGHTS = 0.25
"""Of a checkpoint with Adam's state and another copy of the weights, the model's own are so much."""

MOST_STATES = 2
"""Tensors of a weight's size that an optimizer keeps: Adam's."""


def find_earlier_models(allocations: Allocations) -> Int64:
    """Return what earlier models and their optimizers held when an allocation failed, as indices; none where
    the newest one is not known to be as they are.

    Layers that are added to a model have no optimizer state as the first ones had, at the same lines, of the
    same sizes, and are not all of it; copies of weights have none, also after a backward pass. Only
    a snapshot's stacks tell these lines.
    """
    alive = allocations.alive(int(allocations.failures[-1]))
    alive = np.sort(alive[(allocations.stack[alive] != NONE) & ~allocations.found[alive]])
    kind = allocations.kind[alive]
    weights = alive[kind == KINDS.index(MemoryKind.PARAMETER)]
    state = alive[kind == KINDS.index(MemoryKind.OPTIMIZER_STATE)]
    # Between two models, an optimizer has made state.
    steps, first, model = np.unique(np.searchsorted(state, weights), return_index=True, return_inverse=True)
    if len(steps) < 2:
        return _left_behind(allocations)
    owner = np.searchsorted(weights[first], state) - 1
    models = [_made(allocations, weights[model == i]) for i in range(len(steps))]
    states = [_made(allocations, state[owner == i]) for i in range(len(steps))]
    newest, trained = models[-1], [made for made in states if made]
    is_new = not (allocations.phase[weights[-1] :] == Phase.BACKWARD).any()
    again = is_new and newest in models[:-1]
    if not again and (len(trained) < 2 or not trained[-1] <= trained[-2]):
        return _left_behind(allocations)
    alike = [i for i, made in enumerate(models[:-1]) if newest <= made and states[i]]
    if not alike:
        return _left_behind(allocations)
    return np.sort(np.r_[weights[np.isin(model, alike)], state[np.isin(owner, alike)]])


def _left_behind(allocations: Allocations) -> Int64:
    """Return the gradients of a model that training has left behind, and its weights and state: they are
    older than weights that were made after an optimizer had run, and of which alone there are gradients since
    then. A training that goes on makes all of its gradients again."""
    alive = allocations.alive(int(allocations.failures[-1]))
    alive = np.sort(alive[~allocations.found[alive]])
    kind = allocations.kind[alive]
    weights, state, gradients = (
        alive[kind == KINDS.index(one)]
        for one in (MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE, MemoryKind.GRADIENT)
    )
    updates = np.flatnonzero(allocations.phase == Phase.OPTIMIZER)
    begins = np.flatnonzero(np.diff(np.searchsorted(updates, weights)) > 0)
    if not len(begins):
        return begins
    newest, size = weights[begins[-1] + 1], allocations.bytes
    old, own = gradients[gradients < newest], gradients[gradients > newest]
    older, newer = state[state < newest], size[weights[weights >= newest]].sum()
    # Layers that are added to a model are trained with those that it had.
    alone = size[own].sum() <= newer + len(own) * ALLOCATOR_UNIT
    if not (len(old) or (len(older) and alone)) or size[own].sum() < OWN_GRADIENTS * newer:
        return np.zeros(0, np.int64)
    earlier = weights[weights < newest][::-1]
    its_own = earlier[np.cumsum(size[earlier]) <= max(size[old].sum(), size[older].sum() // MOST_STATES)]
    return np.sort(np.r_[old, its_own, older])


def _made(allocations: Allocations, chosen: Int64) -> Counter[tuple[int, int]]:
    """Count the stacks and sizes of some allocations."""
    return Counter(zip(allocations.stack[chosen].tolist(), allocations.bytes[chosen].tolist(), strict=True))


def find_loaded(allocations: Allocations) -> Int64:
    """Return what torch.load() put beside the weights of a model when an allocation failed, as indices.
    Without other weights, what it loaded is the model."""
    alive = allocations.alive(int(allocations.failures[-1]))
    loaded = allocations.in_stack(LOAD)[alive]
    size = allocations.bytes[alive]
    own = size[~loaded & (allocations.phase[alive] == Phase.PARAMETER)]
    return alive[loaded & (own.sum() >= LEAST_WEIGHTS * size[loaded].sum())]
