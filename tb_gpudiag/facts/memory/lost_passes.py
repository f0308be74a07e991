"""Forward passes that keep their activations, at a line from which no backward pass is called: an evaluation
that runs as training does."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.memory_kinds import KINDS, MemoryKind, kind_numbers
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.torch_frames import EVALUATES, outermost_caller

FEWEST_PASSES = 3
"""One pass at a new line may be a step's, and a second one its other half, unless a function says that it
evaluates."""


@dataclass(frozen=True)
class LostPasses:
    """bytes: activations that are alive."""

    frame: Frame | None  # the line that calls the model
    bytes: int


def find_lost_passes(allocations: Allocations, position: int) -> LostPasses | None:
    """Return those that hold most after the event at this position; None without any. Only the stacks of a
    snapshot show who calls a model, and only a recording with a backward pass what comes before one."""
    memory, phase = allocations.memory, allocations.context.phase[allocations.curve.event]
    if not memory.stacks or not (phase == Phase.BACKWARD).any():
        return None
    caller_of = [outermost_caller(stack) for stack in memory.stacks]
    alive = allocations.alive(position)
    alive = alive[(allocations.stack[alive] != NONE) & ~allocations.found[alive]]
    kind = kind_numbers(allocations, alive)
    waits = alive[(kind == KINDS.index(MemoryKind.ACTIVATION)) & (allocations.freed[alive] == NONE)]
    trained = {caller_of[code] for code in _stacks_before_backward(allocations, phase == Phase.BACKWARD)}
    if phase[position] == Phase.BACKWARD:
        trained.add(_last_caller(allocations, caller_of))
    held, codes = defaultdict[str, int](int), defaultdict[str, list[int]](list)
    for code in np.unique(allocations.stack[waits]).tolist():
        caller = caller_of[code]
        if caller and caller not in trained:
            own = waits[allocations.stack[waits] == code]
            held[caller] += int(allocations.bytes[own].sum())
            codes[caller].append(len(own))
    trains = {name for caller in trained for name in _functions(caller)}
    found = [
        (size, caller)
        for caller, size in held.items()
        if np.median(codes[caller]) >= FEWEST_PASSES or _evaluates(_functions(caller) - trains)
    ]
    if not found:
        return None
    size, caller = max(found)
    return LostPasses(innermost_place(caller), size)


def _last_caller(allocations: Allocations, caller_of: list[str]) -> str:
    """What calls the last forward pass: the backward pass that fails is its."""
    calls = [caller_of[code] for code in allocations.stack[_is_forward(allocations)].tolist()]
    return next(filter(None, reversed(calls)), "")


def _functions(stack: str) -> set[str]:
    return {line.partition("): ")[2] for line in stack.split("\n")}


def _evaluates(functions: set[str]) -> bool:
    return any(EVALUATES.fullmatch(name) for name in functions)


def _stacks_before_backward(allocations: Allocations, backward: Bool) -> list[int]:
    """Stacks of forward allocations that live until a backward pass, and are freed."""
    count = np.cumsum(backward)
    before = count[allocations.position]
    forward = _is_forward(allocations)
    ended = allocations.freed != NONE
    outlives = np.zeros(len(allocations), np.bool_)
    outlives[ended] = count[allocations.freed[ended]] > before[ended]
    found: list[int] = np.unique(allocations.stack[forward & outlives]).tolist()
    return found


def _is_forward(allocations: Allocations) -> Bool:
    return (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE)
