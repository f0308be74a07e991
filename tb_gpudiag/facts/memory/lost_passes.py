"""Forward passes that keep their activations: at a line from which no backward pass is called, as in an
evaluation that runs as training does, or after their backward pass, which retains the graph."""

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
    """own: indices of activations that are alive. retained: backward passes did not let go of them."""

    frame: Frame | None  # the line that calls the model
    own: Int64
    retained: bool = False


def find_lost_passes(allocations: Allocations, position: int) -> LostPasses | None:
    """Return those that hold most after the event at this position; None without any. Only the stacks of a
    snapshot show who calls a model, and only a recording with a backward pass what comes before one."""
    memory, phase = allocations.memory, allocations.context.phase[allocations.curve.event]
    if not memory.stacks or not (phase == Phase.BACKWARD).any():
        return None
    caller_of = [outermost_caller(stack) for stack in memory.stacks]
    trained = {caller_of[code] for code in _stacks_of_backward(allocations)}
    if phase[position] == Phase.BACKWARD:
        trained.add(_last_caller(allocations, caller_of))
    codes_of = _codes_of(caller_of, trained)
    left = _waiting(allocations, position, codes_of)
    retained = bool(_calls_before_backward(allocations, caller_of).intersection(left))
    if not retained:
        never = _never_trained(allocations, caller_of, trained, codes_of, left)
        left = {caller: own for caller, own in left.items() if caller in never}
    if not left:
        return None
    _, caller = max((int(allocations.bytes[own].sum()), caller) for caller, own in left.items())
    own = np.sort(np.concatenate([*left.values()])) if retained else left[caller]
    return LostPasses(innermost_place(caller), own, retained)


def _codes_of(caller_of: list[str], trained: set[str]) -> dict[str, list[int]]:
    """Stacks of each line that calls a model, and is not among those that train."""
    found = defaultdict[str, list[int]](list)
    for code, caller in enumerate(caller_of):
        if caller and caller not in trained:
            found[caller].append(code)
    return found


def _never_trained(
    allocations: Allocations,
    caller_of: list[str],
    trained: set[str],
    codes_of: dict[str, list[int]],
    left: dict[str, Int64],
) -> set[str]:
    """Lines whose calls of a model wait for no backward pass."""
    trains = {name for caller in trained for name in _functions(caller)}
    passed = _passed_over(allocations, caller_of)
    return {
        caller
        for caller, own in left.items()
        if caller in passed
        or _calls(allocations, caller, codes_of[caller], own) >= FEWEST_PASSES
        or _evaluates(_functions(caller) - trains)
    }


def _waiting(allocations: Allocations, position: int, codes_of: dict[str, list[int]]) -> dict[str, Int64]:
    """Indices of the activations that are alive after the event at this position, and never freed, by the
    line that calls the model. codes_of: stacks of each line."""
    alive = allocations.alive(position)
    own = (allocations.kind == KINDS.index(MemoryKind.ACTIVATION)) & (allocations.freed == NONE)
    waits = alive[(own & ~allocations.found)[alive]]
    found = {caller: waits[np.isin(allocations.stack[waits], codes)] for caller, codes in codes_of.items()}
    return {caller: own for caller, own in found.items() if len(own)}


def _calls(allocations: Allocations, caller: str, codes: list[int], own: Int64) -> int:
    """Return how often at least a line has called a model to make these allocations. Calls that follow each
    other show by what each makes once: equal layers make the same. codes: the line's stacks."""
    made = np.isin(allocations.stack, codes) & (allocations.position >= allocations.position[own[0]])
    _, count = np.unique(allocations.stack[made], return_counts=True)
    begins = np.searchsorted(allocations.call_begins(caller), allocations.position[own], side="right")
    return max(len(np.unique(begins)), int(count.min()))


def _last_caller(allocations: Allocations, caller_of: list[str]) -> str:
    """What calls the last forward pass: the backward pass that fails is its."""
    calls = [caller_of[code] for code in allocations.stack[_is_forward(allocations)].tolist()]
    return next(filter(None, reversed(calls)), "")


def _calls_before_backward(allocations: Allocations, caller_of: list[str]) -> set[str]:
    """Lines that call a model last before a backward pass. The last such pass is left out: it may fail."""
    backward = allocations.phase == Phase.BACKWARD
    begins = allocations.position[backward & ~np.r_[False, backward[:-1]]]
    called = np.array([bool(caller) for caller in caller_of], np.bool_)
    own = np.flatnonzero(_is_forward(allocations))
    own = own[called[allocations.stack[own]]]
    before = np.searchsorted(allocations.position[own], begins[:-1]) - 1
    return {caller_of[code] for code in allocations.stack[own[before[before >= 0]]].tolist()}


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
