"""Copies of weights and of an optimizer's state, beside the model: checkpoints that were loaded, or that are
being made."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.memory_kinds import KINDS, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.torch_frames import LOAD

LEAST_WEIGHTS = 0.25
"""Of a checkpoint with Adam's state and another copy of the weights, the model's own are so much."""

FEWEST_TENSORS = 4
"""A copy of so many tensors, of the same sizes in the same order, is no chance: a layer has two."""

FEWEST_SETS = 2
"""One copy of the weights may be in use: an average, or a target network."""

MAIN_SHARE = 0.5
"""Of what was loaded, so much is whole sets of the model's weights."""


def find_loaded(allocations: Allocations) -> Int64:
    """Return what torch.load() put beside the weights of a model when an allocation failed, as indices.
    Without other weights, what it loaded is the model, unless it loaded all of these several times."""
    alive = allocations.alive(int(allocations.failures[-1]))
    loaded = allocations.in_stack(LOAD)[alive]
    size = allocations.bytes[alive]
    own = size[~loaded & (allocations.phase[alive] == Phase.PARAMETER)]
    beside = own.sum() >= LEAST_WEIGHTS * size[loaded].sum() or _has_sets(own, size[loaded])
    return alive[loaded & beside]


def _has_sets(own: Int64, loaded: Int64) -> bool:
    """Whether what was loaded is mostly several whole sets of tensors of the model's sizes."""
    if len(own) < FEWEST_TENSORS:
        return False
    model, found = Counter(own.tolist()), Counter(loaded.tolist())
    sets = min(found[size] // count for size, count in model.items())
    return sets >= FEWEST_SETS and bool(sets * own.sum() >= MAIN_SHARE * loaded.sum())


def find_copies(allocations: Allocations) -> Int64:
    """Return copies of the weights and of the optimizer's state that a training has made after its first
    update, as indices: those of one line, if they are several, or if state is copied.

    What a line made is a copy if its tensors have the sizes of the model's, in their order. One copy of the
    weights alone may be in use.
    """
    position = int(allocations.failures[-1])
    alive = allocations.alive(position)
    alive = alive[~allocations.found[alive]]
    kind = allocations.kind[alive]
    state = alive[kind == KINDS.index(MemoryKind.OPTIMIZER_STATE)]
    if not len(state):
        return state
    copied = allocations.copies_weights
    own = (kind == KINDS.index(MemoryKind.PARAMETER)) & (allocations.phase[alive] == Phase.PARAMETER)
    weights = alive[own & ~copied[alive]]
    outside = (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE)
    outside &= copied | ~(allocations.in_module | allocations.in_functional)
    made = alive[outside[alive] & (alive > state[0])]
    failed = int(allocations.memory.stack[allocations.curve.event[position]])
    once, needless = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    of_state = False
    for code in np.unique(allocations.stack[made]).tolist():
        rows = made[allocations.stack[made] == code]
        if _repeats(allocations, rows, state, ends=code != failed):
            of_state = True
            needless.append(rows)
        elif _repeats(allocations, rows, weights, ends=code != failed):
            several = len(rows) >= FEWEST_SETS * len(weights)
            (needless if several else once).append(rows)
    return np.sort(np.concatenate(needless + once if of_state else needless))


def _repeats(allocations: Allocations, rows: Int64, model: Int64, *, ends: bool) -> bool:
    """Whether these have the sizes of the model's tensors, in their order, once or several times. ends: the
    last time is complete."""
    size = allocations.bytes
    whole = len(rows) >= FEWEST_TENSORS and len(model) >= FEWEST_TENSORS
    if not whole or (ends and len(rows) % len(model)):
        return False
    return np.array_equal(size[rows], np.resize(size[model], len(rows)))
