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

FEWEST_RETAINED = 2
"""Backward passes that have ended. Of one, the loss may be still there, and with it its graph."""

GRAPH_RESULTS = 3
"""A pass that waits for a backward pass keeps more than its result and its loss."""


@dataclass(frozen=True, eq=False)
class LostPasses:
    """own: indices of activations that are alive."""

    frame: Frame | None  # the line that calls the model
    own: Int64


def find_lost_passes(allocations: Allocations, position: int) -> LostPasses | None:
    """Return those that hold most after the event at this position; None without any, and where backward
    passes do not let go of graphs. Only the stacks of a snapshot show who calls a model, and only a recording
    with a backward pass what comes before one."""
    backward = allocations.context.phase[allocations.curve.event] == Phase.BACKWARD
    if not allocations.memory.stacks or not backward.any():
        return None
    calls = _Calls(allocations, position)
    left = calls.waiting()
    if calls.none_let_go or calls.before_backward().intersection(left):
        return None
    never = calls.never_trained(left)
    lost = {caller: own for caller, own in left.items() if caller in never}
    caller = max(lost, key=lambda one: int(allocations.bytes[lost[one]].sum()), default=None)
    return LostPasses(innermost_place(caller), lost[caller]) if caller is not None else None


class _Calls:
    """Lines that call a model until the event at this position.

    caller_of: by stack, the line; "" outside of a model. trained: lines from which backward passes go back.
    codes_of: stacks of each of the others. none_let_go: backward passes have let go of nothing.
    """

    def __init__(self, allocations: Allocations, position: int) -> None:
        self.allocations, self.position = allocations, position
        self.phase = allocations.context.phase[allocations.curve.event]
        self.caller_of = [outermost_caller(stack) for stack in allocations.memory.stacks]
        self.trained = {self.caller_of[code] for code in _stacks_of_backward(allocations)}
        inside = self.phase == Phase.BACKWARD
        ended = int((inside[:-1] & ~inside[1:]).sum())
        self.none_let_go = not self.trained and ended >= FEWEST_RETAINED
        if self.phase[position] == Phase.BACKWARD:
            self.trained.add(self._last())
        self.codes_of = defaultdict[str, list[int]](list)
        for code, caller in enumerate(self.caller_of):
            if caller and caller not in self.trained:
                self.codes_of[caller].append(code)

    def waiting(self) -> dict[str, Int64]:
        """Indices of the activations that are alive and never freed, by the line that calls the model."""
        allocations = self.allocations
        alive = allocations.alive(self.position)
        own = (allocations.kind == KINDS.index(MemoryKind.ACTIVATION)) & (allocations.freed == NONE)
        waits = alive[(own & ~allocations.found)[alive]]
        stack = allocations.stack[waits]
        found = {caller: waits[np.isin(stack, codes)] for caller, codes in self.codes_of.items()}
        return {caller: own for caller, own in found.items() if len(own)}

    def never_trained(self, left: dict[str, Int64]) -> set[str]:
        """Lines whose calls of a model wait for no backward pass. left: what waits of each."""
        trains = {name for caller in self.trained for name in _functions(caller)}
        passed = self._passed_over()
        return {
            caller
            for caller, own in left.items()
            if caller in passed
            or self._number(caller, own) >= FEWEST_PASSES
            or any(map(EVALUATES.fullmatch, _functions(caller) - trains))
        }

    def before_backward(self) -> set[str]:
        """Lines that call a model last before a backward pass. The last pass is left out: it may fail."""
        before = self.last_before_backward()[:-1]
        return {self.caller_of[code] for code in self.allocations.stack[before].tolist()}

    def last_before_backward(self) -> Int64:
        """What a call of a model has made last before each backward pass: indices."""
        allocations = self.allocations
        backward = allocations.phase == Phase.BACKWARD
        begins = allocations.position[backward & ~np.r_[False, backward[:-1]]]
        called = np.array([bool(caller) for caller in self.caller_of], np.bool_)
        own = np.flatnonzero(_is_forward(allocations))
        own = own[called[allocations.stack[own]]]
        before = np.searchsorted(allocations.position[own], begins) - 1
        return own[before[before >= 0]]

    def _number(self, caller: str, own: Int64) -> int:
        """Return how often at least a line has called a model to make these allocations. Calls that follow
        each other show by what each makes once: equal layers make the same."""
        allocations = self.allocations
        made = np.isin(allocations.stack, self.codes_of[caller])
        made &= allocations.position >= allocations.position[own[0]]
        _, count = np.unique(allocations.stack[made], return_counts=True)
        begins = np.searchsorted(allocations.call_begins(caller), allocations.position[own], side="right")
        return max(len(np.unique(begins)), int(count.min()))

    def _last(self) -> str:
        """What calls the last forward pass: the backward pass that fails is its."""
        allocations = self.allocations
        lines = [self.caller_of[code] for code in allocations.stack[_is_forward(allocations)].tolist()]
        return next(filter(None, reversed(lines)), "")

    def _passed_over(self) -> set[str]:
        """Lines whose calls of a model have kept a graph through a backward pass: several of its results. A
        call without a graph keeps its result alone."""
        allocations = self.allocations
        count = np.cumsum(self.phase == Phase.BACKWARD)
        ended = np.flatnonzero(_is_forward(allocations) & (allocations.freed != NONE))
        ended = ended[count[allocations.freed[ended]] > count[allocations.position[ended]]]
        caller, number = np.unique(np.array(self.caller_of, object), return_inverse=True)
        called, base = number.reshape(-1)[allocations.stack[ended]], len(count) + 1
        passes, many = np.unique(called * base + count[allocations.position[ended]], return_counts=True)
        return set(caller[passes[many >= GRAPH_RESULTS] // base].tolist())


def _functions(stack: str) -> set[str]:
    return {line.partition("): ")[2] for line in stack.split("\n")}


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
