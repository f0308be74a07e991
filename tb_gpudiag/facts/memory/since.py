"""Since: how a failure differs from the first time that the job got this far in a step and it fit.

The same line asks for the same thing in each step. Where a step asks for no more than an earlier one that
fit, its size is not why it fails: what has been kept since then is, or memory is in pieces. Where it asks for
more, its size is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.memory_kinds import KINDS, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.recorded import allocated_bytes
from tb_gpudiag.vocabulary.torch_frames import outermost_caller

AS_LARGE = 1.02
"""The allocator rounds a request up to 512 bytes, and torch a convolution's workspace more coarsely."""


LONGER = 1.25
"""Times what a place has saved in any step before: layers that are skipped by chance are fewer."""

MOST_BACKWARD = 3
"""Backward passes of one step: of a loss, of its gradients, and of a penalty on these."""


@dataclass(frozen=True, eq=False)
class Since:
    """growth: what was requested, times what the same line got at the same point of an earlier step; more
    than AS_LARGE in all of them. Infinite where no earlier step got this far, but some began like this one.
    steps: earlier steps that got this far.
    waits: what most of them got at this point waited for a backward pass.
    skips_zero_grad: gradients of an earlier step are there, and were not at the same point of earlier steps:
    this pass does not begin as a step of the training does.
    kept: indices of the allocations of earlier steps that were alive at the failure, beyond as many bytes of
    their stack as at that point of the first step that fit; none where growth is more than AS_LARGE.
    """

    growth: float
    kept: Int64
    steps: int = 0
    waits: bool = False
    skips_zero_grad: bool = False

    @property
    def has_grown(self) -> bool:
        return self.growth > AS_LARGE


def find_since(allocations: Allocations) -> Since | None:
    """Compare the last failure with earlier steps; None if none of them asked for this, or in recordings
    without stacks."""
    if not allocations.memory.stacks or not allocations.paired:
        return None
    if _is_longer(allocations):
        return Since(np.inf, np.zeros(0, np.int64))
    # An evaluation calls the model at a line of its own.
    at_line = _at_place(
        allocations, allocations.stack.astype(np.int64), np.arange(len(allocations.memory.stacks))
    )
    return at_line or _at_place(allocations, allocations.inner_stack, allocations.inside_model)


def _is_longer(allocations: Allocations) -> bool:
    """Whether a backward pass failed for which most places have saved more tensors than for any before, as
    in a longer loop."""
    position = int(allocations.failures[-1])
    begins = _runs(allocations, Phase.BACKWARD)
    forward = (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE) & allocations.in_module
    in_backward = allocations.context.phase[allocations.curve.event[position]] == Phase.BACKWARD
    if not in_backward or not forward.any() or len(begins) < 2:
        return False
    last = int(allocations.stack[np.flatnonzero(forward)[-1]])
    saved = forward & (allocations.kind == KINDS.index(MemoryKind.ACTIVATION))
    own = np.flatnonzero(_of_caller(allocations, last) & saved)
    step, place = np.searchsorted(begins, allocations.position[own]), allocations.inner_stack[own]
    made, count = np.unique(step * (place.max(initial=0) + 1) + place, return_counts=True)
    step, place = np.divmod(made, place.max(initial=0) + 1)
    most, now = np.zeros((2, place.max(initial=0) + 1), np.int64)
    is_last = step == len(begins) - 1
    np.maximum.at(most, place[~is_last], count[~is_last])
    now[place[is_last]] = count[is_last]
    both = (most > 0) & (now > 0)
    return bool(2 * (now > LONGER * most)[both].sum() > both.sum())


def _of_caller(allocations: Allocations, code: int) -> Bool:
    """Mask of what the line allocates that calls the model in this stack, shape (a,)."""
    stacks = allocations.memory.stacks
    caller = outermost_caller(stacks[code]) if code != NONE else ""
    same = [caller != "" and outermost_caller(stack) == caller for stack in stacks]
    return np.array([*same, False], np.bool_)[allocations.stack]


def _at_place(allocations: Allocations, place: Int64, of_stack: Int64) -> Since | None:
    """Compare with what the same place asked for. place: number of each allocation's. of_stack: the same by
    stack."""
    position = int(allocations.failures[-1])
    event = int(allocations.curve.event[position])
    phase, code = int(allocations.context.phase[event]), int(allocations.memory.stack[event])
    same = (place == (of_stack[code] if code != NONE else NONE)) & (allocations.phase == phase)
    own = np.flatnonzero(same & ~allocations.found & (allocations.position < position))
    asked_less_often = False
    for begins in _step_begins(allocations, phase, code, own):
        step = np.searchsorted(begins, allocations.position[own], side="right")
        now = int(np.searchsorted(begins, position, side="right"))
        rank = int((step == now).sum())
        earlier, first, count = np.unique(step[step < now], return_index=True, return_counts=True)
        if (count > rank).any():
            return _compared(allocations, position, own[first[count > rank] + rank], place, begins)
        asked_less_often |= len(earlier) > 0
        if len(earlier) and _trains(allocations, code, begins):
            break
    return Since(np.inf, np.zeros(0, np.int64)) if asked_less_often else None


def _compared(allocations: Allocations, position: int, alike: Int64, place: Int64, begins: Int64) -> Since:
    """Compare with what earlier steps got at this point: indices. place: number of each allocation's.
    begins: positions at which steps begin."""
    event = allocations.curve.event[position]
    requested = int(allocated_bytes(np.maximum(1, allocations.memory.bytes[event : event + 1]))[0])
    size = allocated_bytes(allocations.bytes[alike])
    fits, growth = alike[size * AS_LARGE >= requested], requested / int(size.max())
    skips = skips_zero_grad(allocations, position, allocations.position[alike])
    waits = _waits(allocations, alike)
    if not len(fits):
        return Since(growth, fits, len(alike), waits, skips)
    then = int(allocations.position[fits[0]])
    kept = _more(allocations, then, position, place)
    made, made_then = (_made(allocations, place, begins, at) for at in (position, then))
    # What this step has made is its own, unless its forward pass makes more, as a hook does that was attached
    # twice.
    more = ((made_then > 0) & (made > made_then))[place[kept] + 1] & (
        allocations.phase[kept] == Phase.FORWARD
    )
    earlier = allocations.position[kept] < _step_begin(allocations, begins, position)
    return Since(growth, kept[earlier | more], len(alike), waits, skips)


def _step_begin(allocations: Allocations, begins: Int64, position: int) -> int:
    """Return where a step begins. With a penalty on gradients, it has several backward passes for one
    update."""
    begun = begins[begins <= position]
    update = allocations.position[(allocations.phase == Phase.OPTIMIZER) & (allocations.position < position)]
    updated = int(update.max(initial=0))
    in_backward = allocations.context.phase[allocations.curve.event[position]] == Phase.BACKWARD
    if in_backward and 1 < (begun > updated).sum() <= MOST_BACKWARD:
        return updated
    return int(begun.max(initial=0))


def _made(allocations: Allocations, place: Int64, begins: Int64, position: int) -> Int64:
    """Return how often each place has allocated in a step so far; the first is that of NONE."""
    begin = _step_begin(allocations, begins, position)
    own = place[(allocations.position >= begin) & (allocations.position <= position)]
    return np.bincount(own + 1, minlength=int(place.max(initial=0)) + 2)


def _waits(allocations: Allocations, own: Int64) -> bool:
    """Whether most of these allocations (indices) were still there when the next backward pass began."""
    waited, freed = _waited(allocations, own), allocations.freed[own]
    return bool(2 * ((freed == NONE) | waited).sum() > len(own))


def _trains(allocations: Allocations, code: int, begins: Int64) -> bool:
    """Whether the line that calls the model in this stack has left something for each backward pass that
    followed its calls: then a step ends with that, however often it calls the model. begins: of steps."""
    own = np.flatnonzero(_of_caller(allocations, code) & (allocations.position < begins[-1]))
    step = np.searchsorted(begins, allocations.position[own], side="right")
    return len(own) > 0 and len(np.unique(step[_waited(allocations, own)])) == len(np.unique(step))


def _waited(allocations: Allocations, own: Int64) -> Bool:
    """Mask of the allocations (indices) that were freed after the next backward pass had begun."""
    begins = _runs(allocations, Phase.BACKWARD)
    following = np.r_[begins, np.iinfo(np.int64).max][np.searchsorted(begins, allocations.position[own])]
    return (allocations.freed[own] != NONE) & (allocations.freed[own] > following)


def skips_zero_grad(allocations: Allocations, now: int, earlier: Int64) -> bool:
    """Whether gradients are alive now, in a forward pass, and were not in earlier ones that came after a
    backward pass: they are freed before these."""
    phase = allocations.context.phase[allocations.curve.event]
    begun = np.flatnonzero(phase == Phase.BACKWARD)
    later = earlier[earlier > begun[0]].tolist() if len(begun) else []
    if phase[now] != Phase.FORWARD or not later:
        return False
    return _has_gradients(allocations, now) and not any(_has_gradients(allocations, at) for at in later)


def _has_gradients(allocations: Allocations, position: int) -> bool:
    """Whether what a backward pass made has outlived it at this position."""
    alive = allocations.alive(position)
    return bool((allocations.phase[alive] == Phase.BACKWARD).any())


def _step_begins(allocations: Allocations, phase: int, code: int, own: Int64) -> Iterator[Int64]:
    """Yield positions at which steps begin, as far as requests of this stack are concerned: backward passes,
    or runs of the optimizer; where none of them came after one of the stack's, or the last step asked more
    often, calls of the model. The request that failed may begin one. own: indices of the stack's
    allocations."""
    if not len(own):
        return
    failed, stacks = allocations.failures[-1:], allocations.memory.stacks
    last = int(np.searchsorted(allocations.position, failed[0])) - 1
    runs = _runs(allocations, phase if phase in (Phase.BACKWARD, Phase.OPTIMIZER) else Phase.BACKWARD)
    if len(runs) and allocations.position[own[0]] < runs[-1]:
        begins = phase in (Phase.BACKWARD, Phase.OPTIMIZER) and allocations.phase[last] != phase
        yield np.r_[runs, failed] if begins else runs
    caller = outermost_caller(stacks[code]) if code != NONE else ""
    if phase == Phase.FORWARD and caller:
        calls, before = allocations.call_begins(caller), int(allocations.stack[last])
        goes_on = before != NONE and outermost_caller(stacks[before]) == caller
        yield calls if goes_on else np.r_[calls, failed]
    elif phase == Phase.FORWARD:
        yield runs


def _runs(allocations: Allocations, phase: int) -> Int64:
    inside: Bool = allocations.phase == phase
    return allocations.position[inside & ~np.r_[False, inside[:-1]]]


def _more(allocations: Allocations, then: int, now: int, place: Int64) -> Int64:
    """Indices of what is alive now beyond what was alive then, by place; the oldest first."""
    alive, before = allocations.alive(now), allocations.alive(then)
    places = int(place.max(initial=0)) + 2
    held = np.bincount(place[before] + 1, weights=allocations.bytes[before], minlength=places)
    new = alive[allocations.position[alive] > then]
    own = np.bincount(place[alive] + 1, weights=allocations.bytes[alive], minlength=places)
    more = (own - held)[place[new] + 1]
    order = np.argsort(place[new], kind="stable")
    size = allocations.bytes[new[order]]
    code = place[new[order]]
    first = np.r_[True, code[1:] != code[:-1]] if len(code) else np.zeros(0, np.bool_)
    running = np.cumsum(size)
    base = np.maximum.accumulate(np.where(first, running - size, 0)) if len(code) else running
    return np.sort(new[order[running - base <= more[order]]])
