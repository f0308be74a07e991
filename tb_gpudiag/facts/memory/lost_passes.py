"""Forward passes that keep their activations, at a line from which no backward pass is called: an evaluation
that runs as training does."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.memory_kinds import KINDS, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase, in_engine
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.torch_frames import EVALUATES, outermost_caller

FEWEST_PASSES = 3
"""One pass at a new line may be a step's, and a second one its other half, unless a function says that it
evaluates."""


GRAPH_RESULTS = 3
"""A pass that waits for a backward pass keeps more than its result and its loss."""


@dataclass(frozen=True, eq=False)
class LostPasses:
    """own: indices of activations that are alive."""

    frame: Frame | None  # the line that calls the model
    own: Int64


def find_lost_passes(allocations: Allocations, position: int) -> LostPasses | None:
    """Return those that hold most after the event at this position; None without any. Only the stacks of a
    snapshot show who calls a model, and only a recording with a backward pass what comes before one."""
    memory, phase = allocations.memory, allocations.context.phase[allocations.curve.event]
    if not memory.stacks or not (phase == Phase.BACKWARD).any():
        return None
    caller_of = [outermost_caller(stack) for stack in memory.stacks]
    alive = allocations.alive(position)
    alive = alive[(allocations.stack[alive] != NONE) & ~allocations.found[alive]]
    kind = allocations.kind[alive]
    waits = alive[(kind == KINDS.index(MemoryKind.ACTIVATION)) & (allocations.freed[alive] == NONE)]
    trained = {caller_of[code] for code in _stacks_of_backward(allocations)}
    if phase[position] == Phase.BACKWARD:
        trained.add(_last_caller(allocations, caller_of))
    own, codes = defaultdict[str, list[Int64]](list), defaultdict[str, list[int]](list)
    for code in np.unique(allocations.stack[waits]).tolist():
        caller = caller_of[code]
        if caller and caller not in trained:
            own[caller].append(waits[allocations.stack[waits] == code])
            codes[caller].append(len(own[caller][-1]))
    trains = {name for caller in trained for name in _functions(caller)}
    passed = _passed_over(allocations, caller_of)
    found = [
        (int(allocations.bytes[np.concatenate(rows)].sum()), caller)
        for caller, rows in own.items()
        if caller in passed
        or np.median(codes[caller]) >= FEWEST_PASSES
        or _evaluates(_functions(caller) - trains)
    ]
    if not found:
        return None
    _, caller = max(found)
    return LostPasses(innermost_place(caller), np.sort(np.concatenate(own[caller])))


def _last_caller(allocations: Allocations, caller_of: list[str]) -> str:
    """What calls the last forward pass: the backward pass that fails is its."""
    calls = [caller_of[code] for code in allocations.stack[_is_forward(allocations)].tolist()]
    return next(filter(None, reversed(calls)), "")


def _functions(stack: str) -> set[str]:
    return {line.partition("): ")[2] for line in stack.split("\n")}


def _evaluates(functions: set[str]) -> bool:
    return any(EVALUATES.fullmatch(name) for name in functions)


def _passed_over(allocations: Allocations, caller_of: list[str]) -> set[str]:
    """Lines whose calls of a model have kept a graph through a backward pass: several of its results. A call
    without a graph keeps its result alone."""
    count = np.cumsum(allocations.context.phase[allocations.curve.event] == Phase.BACKWARD)
    ended = np.flatnonzero(_is_forward(allocations) & (allocations.freed != NONE))
    ended = ended[count[allocations.freed[ended]] > count[allocations.position[ended]]]
    caller, number = np.unique(np.array(caller_of, object), return_inverse=True)
    called, base = number.reshape(-1)[allocations.stack[ended]], len(count) + 1
    passes, many = np.unique(called * base + count[allocations.position[ended]], return_counts=True)
    return set(caller[passes[many >= GRAPH_RESULTS] // base].tolist())


def _stacks_of_backward(allocations: Allocations) -> list[int]:
    """Stacks of forward allocations of which a backward pass frees some, as it lets go of what it has used.
    What the job itself lets go of, after a backward pass of another model, was kept for nothing."""
    memory, curve = allocations.memory, allocations.curve
    ended = np.flatnonzero(_is_forward(allocations) & (allocations.freed != NONE))
    freed = allocations.freed[ended]
    newest = np.searchsorted(allocations.position, freed, side="right") - 1
    by_engine = allocations.phase[newest] == Phase.BACKWARD
    stack = memory.stack[curve.event[freed]]
    if (memory.stack[curve.event[allocations.free]] != NONE).any():
        by_engine &= (stack == NONE) | in_engine(memory.stacks)[stack]
    found: list[int] = np.unique(allocations.stack[ended[by_engine]]).tolist()
    return found


def _is_forward(allocations: Allocations) -> Bool:
    return (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE)
