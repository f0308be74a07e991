"""Waste: what was held when an allocation failed and the job could do without, and whether the request would
have fit without it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.memory_kinds import KINDS, MOST_INPUTS, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.torch_frames import is_optimizer_history, outermost_caller

if TYPE_CHECKING:
    from tb_gpudiag.facts.memory.lost_passes import LostPasses

FEWEST_CALLS = 3
"""Whose results are still there: fewer may be what the next call is given."""


MOST_RESULTS = 3
"""Of one call: a result and two states. What keeps more is a graph."""


FEWEST_GROWN = 4
"""Sizes that rise one after the other, by chance once in 24 times."""

LEAST_GROWN = 0.5
"""Of the request: what the line makes beside it, such as what is joined each time, is smaller."""


class WasteKind(Enum):
    """What the job could do without."""

    LOST_PASSES = "graphs of forward passes that no backward pass uses"
    RETAINED = "graphs that their backward passes did not let go of"
    MODELS = "models that were made before the newest one, and their optimizers"
    LOADED = "checkpoints beside the model that they were made from"
    COPIES = "copies of weights and optimizer state"
    DATA = "more data than a step uses"
    GRADIENTS = "gradients of the last step, during a forward pass"
    GROWN = "a tensor that a line makes anew, larger each time"
    RESULTS = "results of modules, kept since the first step that got this far"
    INTERMEDIATE = "the same, of modules inside of a model"
    HISTORY = "the history of an optimizer"
    BACKWARD = "what backward passes made, kept since then"
    KEPT = "anything else that was kept since then"


@dataclass(frozen=True, eq=False)
class Waste:
    """own: indices of the allocations. count: how many they are. frame: the line that most of it is from; of
    LOST_PASSES and RETAINED, the line that calls the model. fits: whether the request would fit without them;
    None where that cannot be told."""

    kind: WasteKind
    own: Int64
    bytes: int
    frame: Frame | None
    fits: bool | None

    @property
    def count(self) -> int:
        return len(self.own)


def find_waste(
    allocations: Allocations,
    left: dict[WasteKind, Int64],
    lost: LostPasses | None,
    kept: Int64,
    fits_without: Callable[[Int64], bool | None],
) -> list[Waste]:
    """Find what the job could do without at its last failure, most bytes first.

    left: indices of whole models and copies. kept: of what was kept since the job first got this
    far."""
    position = int(allocations.failures[-1])
    found = left | {
        WasteKind.DATA: _data(allocations, position),
        WasteKind.GRADIENTS: _old_gradients(allocations, position),
        WasteKind.GROWN: _grown(allocations, position),
    }
    frames: dict[WasteKind, Frame | None] = {}
    if lost is not None:
        kind = WasteKind.RETAINED if lost.retained else WasteKind.LOST_PASSES
        found[kind], frames[kind] = lost.own, lost.frame
    else:
        found |= _kept(allocations, np.setdiff1d(kept, left[WasteKind.COPIES]))
        if not len(found[WasteKind.RESULTS]):
            found[WasteKind.RESULTS] = _results(allocations, position)
        if not _are_last(allocations, found[WasteKind.RESULTS]):
            found[WasteKind.INTERMEDIATE] = found.pop(WasteKind.RESULTS)
    wastes = [
        Waste(
            kind,
            own,
            int(allocations.bytes[own].sum()),
            frames.get(kind) or _main_frame(allocations, own),
            fits_without(own),
        )
        for kind, own in found.items()
        if len(own)
    ]
    return sorted(wastes, key=lambda waste: -waste.bytes)


def _data(allocations: Allocations, position: int) -> Int64:
    """What the job's own lines made before they first called a model and is still there, if it is more than
    the first step's batch: older than a part of the model, than a whole step, or one of many alike."""
    forward = np.isin(allocations.phase, (Phase.FORWARD, Phase.INPUT, Phase.UNKNOWN))
    inside = allocations.in_module
    called = np.flatnonzero(inside & (allocations.phase == Phase.FORWARD))
    own = forward & ~(inside | allocations.in_functional) & (allocations.stack != NONE) & ~allocations.found
    own &= (allocations.freed == NONE) & ~allocations.copies_weights
    if not len(called):
        return np.zeros(0, np.int64)
    own[called[0] :] = False
    own &= allocations.position < position
    later = np.flatnonzero(np.isin(allocations.phase, (Phase.PARAMETER, Phase.BACKWARD)))
    older = np.arange(len(own)) < later.max(initial=0)
    alike = np.bincount(allocations.stack[own] + 1, minlength=len(allocations.memory.stacks) + 1)
    many = (alike > MOST_INPUTS)[allocations.stack + 1]
    return np.flatnonzero(own & (older | many))


def _grown(allocations: Allocations, position: int) -> Int64:
    """The last one of the tensors that the line of the request makes, if each is larger than the one before,
    and takes its place, as results do that are joined batch by batch."""
    event = int(allocations.curve.event[position])
    code, requested = int(allocations.memory.stack[event]), int(allocations.memory.bytes[event])
    own = (allocations.stack == code) & (allocations.bytes >= LEAST_GROWN * requested)
    own = np.flatnonzero(own & (allocations.position < position))[-FEWEST_GROWN:]
    size, freed = allocations.bytes[own], allocations.freed[own]
    if code == NONE or len(own) < FEWEST_GROWN:
        return np.zeros(0, np.int64)
    replaced = (freed[:-1] > allocations.position[own[1:]]).all() and freed[-1] == NONE
    return own[-1:] if replaced and (np.diff(size) > 0).all() else np.zeros(0, np.int64)


def _old_gradients(allocations: Allocations, position: int) -> Int64:
    """Gradients that a forward pass finds. Those of leaves, such as weights, are as large as these."""
    if allocations.context.phase[allocations.curve.event[position]] != Phase.FORWARD:
        return np.zeros(0, np.int64)
    alive = allocations.alive(position)
    kind = allocations.kind[alive]
    return alive[kind == KINDS.index(MemoryKind.GRADIENT)]


_INHERENT = [
    KINDS.index(kind) for kind in (MemoryKind.PARAMETER, MemoryKind.OPTIMIZER_STATE, MemoryKind.BEFORE)
]


def _kept(allocations: Allocations, own: Int64) -> dict[WasteKind, Int64]:
    """What was kept since the job first got this far (indices), by what it is. Weights are inherent, and so
    is the state of an optimizer that grows once, and what waits for the first backward pass."""
    kind = allocations.kind[own]
    history = np.array([is_optimizer_history(stack) for stack in allocations.memory.stacks], np.bool_)
    of_history = history[allocations.stack[own]] & (allocations.stack[own] != NONE)
    inherent = np.isin(kind, _INHERENT) | allocations.copies_weights[own]
    trains = (allocations.phase == Phase.BACKWARD).any()
    waits: Bool = (kind == KINDS.index(MemoryKind.ACTIVATION)) & (not trains)
    # Gradients of weights that came since then are as large as these.
    gradient: Bool = kind == KINDS.index(MemoryKind.GRADIENT)
    size = allocations.bytes[own]
    if size[gradient].sum() <= size[kind == KINDS.index(MemoryKind.PARAMETER)].sum():
        inherent |= gradient
    kept = ~(inherent | waits | of_history)
    backward = allocations.phase[own] == Phase.BACKWARD
    results = allocations.in_module[own] & ~backward
    return {
        WasteKind.HISTORY: own[of_history],
        WasteKind.RESULTS: own[kept & results],
        WasteKind.BACKWARD: own[kept & backward],
        WasteKind.KEPT: own[kept & ~(results | backward)],
    }


def _results(allocations: Allocations, position: int) -> Int64:
    """Results without a graph that at least FEWEST_CALLS earlier calls of a model left, whatever their sizes.
    A cache of keys and values is left by the last call alone."""
    alive = allocations.alive(position)
    alive = alive[allocations.in_module[alive] & (allocations.stack[alive] != NONE)]
    alive = alive[allocations.kind[alive] == KINDS.index(MemoryKind.TEMPORARY)]
    stacks = allocations.memory.stacks
    found = [np.zeros(0, np.int64)]
    caller = np.array([outermost_caller(stack) for stack in stacks], object)[allocations.stack[alive]]
    for one in sorted(set(caller.tolist())):
        begins, own = allocations.call_begins(one), alive[caller == one]
        call = np.searchsorted(begins, allocations.position[own], side="right")
        earlier = call < len(begins)
        calls = len(np.unique(call[earlier]))
        if calls >= FEWEST_CALLS and earlier.sum() <= MOST_RESULTS * calls:
            found.append(own[earlier])
    return np.sort(np.concatenate(found))


def _are_last(allocations: Allocations, own: Int64) -> bool:
    """Whether most of these are what a call of a model made last: its result."""
    later = allocations.stack[np.minimum(own + 1, len(allocations) - 1)]
    stacks = np.array([*map(outermost_caller, allocations.memory.stacks), ""], object)
    ends = stacks[later] != stacks[allocations.stack[own]]
    size = allocations.bytes[own]
    return 2 * int(size[ends].sum()) > int(size.sum())


def _main_frame(allocations: Allocations, own: Int64) -> Frame | None:
    """Return the line that most of it is from."""
    code, number = np.unique(allocations.stack[own], return_inverse=True)
    held = np.bincount(number.reshape(-1), weights=allocations.bytes[own])
    for i in np.argsort(-held, kind="stable").tolist():
        if (frame := allocations.frame(int(own[number.reshape(-1) == i][0]))) is not None:
            return frame
    assert len(code)
    return None
