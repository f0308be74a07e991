"""Forward passes that keep their activations at a line from which no backward pass is called, as in an
evaluation that runs as training does."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase, in_engine
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.torch_frames import EVALUATES, outermost_caller

FEWEST_PASSES = 3
"""One pass at a new line may be a step's, and a second one its other half, unless a function says that it
evaluates."""


@dataclass(frozen=True, eq=False)
class LostPasses:
    """own: indices of activations that are alive."""

    frame: Frame | None  # the line that calls the model
    own: Int64


def find_lost_passes(allocations: Allocations, position: int) -> LostPasses | None:
    """Return those that hold most after the event at this position; None without any, and where no backward
    pass has let go of a graph. Only the stacks of a snapshot show who calls a model."""
    caller_of = [outermost_caller(stack) for stack in allocations.memory.stacks]
    trained = {caller_of[code] for code in _stacks_of_backward(allocations)}
    if not trained:
        return None
    if allocations.context.phase[allocations.curve.event[position]] == Phase.BACKWARD:
        called = map(caller_of.__getitem__, allocations.stack[_is_forward(allocations)].tolist())
        trained.add(next(filter(None, reversed([*called])), ""))  # the backward pass that fails is its
    codes_of = defaultdict[str, list[int]](list)
    for code, caller in enumerate(caller_of):
        if caller and caller not in trained:
            codes_of[caller].append(code)
    alive = allocations.alive(position)
    waits = (allocations.kind == KINDS.index(MemoryKind.ACTIVATION)) & (allocations.freed == NONE)
    waits = alive[(waits & ~allocations.found)[alive]]
    left = {caller: waits[np.isin(allocations.stack[waits], codes)] for caller, codes in codes_of.items()}
    lost = {
        caller: own
        for caller, own in left.items()
        if any(EVALUATES.fullmatch(line.partition("): ")[2]) for line in caller.split("\n"))
        or _number(allocations, caller, codes_of[caller], own) >= FEWEST_PASSES
    }
    caller = max(lost, key=lambda one: int(allocations.bytes[lost[one]].sum()), default="")
    return LostPasses(innermost_place(caller), lost[caller]) if caller else None


def _number(allocations: Allocations, caller: str, codes: list[int], own: Int64) -> int:
    """Return how often at least a line has called a model to make these allocations. Calls that follow each
    other show by what each makes once: equal layers make the same."""
    made = np.isin(allocations.stack, codes)
    made &= allocations.position >= allocations.position[own].min(initial=len(allocations.curve))
    _, count = np.unique(allocations.stack[made], return_counts=True)
    begins = np.searchsorted(allocations.call_begins(caller), allocations.position[own], side="right")
    return max(len(np.unique(begins)), int(count.min(initial=len(own))))


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
