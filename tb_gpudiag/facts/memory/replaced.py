"""Models and optimizers that are still there although others take their place: the state of an optimizer for
weights that another one updates since then, and a model beside a new one of its sizes that is being made."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.memory_kinds import KINDS, MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.recorded import allocated_bytes
from tb_gpudiag.vocabulary.torch_frames import STATE_MADE, outermost_caller, stepping_line

MOST_STATES = 3
"""Tensors of a weight's size that an optimizer makes one after the other, as Adam with amsgrad does."""

FEWEST_TENSORS = 4
"""So many weights of the same sizes in the same order are no chance: a layer has two."""

LEAST_PART = 0.25
"""Of all weights, those of a model with a new version are so much. Adapters, which are loaded one after the
other into one model, are less."""

FEWEST_CALLS = 3
"""A model that was called less often may only have been tried out."""

MOST_PARTS = 16
"""Of weights with calls of models in between: more are weights made in each step."""


class _State(NamedTuple):
    """What the optimizer that one line steps has made. own: indices, in order of time. size: their bytes, and
    those of the request that failed, if it is one more. begins: position of the first; ends: of the last that
    the line has allocated, for whatever use."""

    own: Int64
    size: Int64
    begins: int
    ends: int


def find_idle_state(allocations: Allocations) -> Int64:
    """Return the state of optimizers, as indices, whose line has not stepped since that of another one began
    to make state of the same weights. Optimizers that step in turns, as those of a GAN, have weights of their
    own.

    Only a snapshot's stacks tell these lines. That they update the same weights shows in their sizes: both
    have made more state of one size than there can be of all weights of it.
    """
    position = int(allocations.failures[-1])
    alive = np.sort(allocations.alive(position))
    kind = allocations.kind[alive]
    weights = np.isin(kind, [KINDS.index(one) for one in (MemoryKind.PARAMETER, MemoryKind.BEFORE)])
    number = Counter(allocated_bytes(allocations.bytes[alive[weights]]).tolist())
    state = alive[(kind == KINDS.index(MemoryKind.OPTIMIZER_STATE)) & (allocations.stack[alive] != NONE)]
    states = _states(allocations, state, position)
    idle = [
        old.own
        for old in states
        if any(old.ends < new.begins and _are_of_same(old.size, new.size, number) for new in states)
    ]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *idle]))


def _states(allocations: Allocations, state: Int64, position: int) -> list[_State]:
    """Return the state that each line's optimizer has made. state: indices, ascending."""
    stacks = allocations.memory.stacks
    event = int(allocations.curve.event[position])
    failed = int(allocations.memory.stack[event])
    makes = failed != NONE and STATE_MADE.search(stacks[failed]) is not None
    steps = np.flatnonzero((allocations.phase == Phase.OPTIMIZER) & (allocations.stack != NONE))
    line = np.full(len(stacks) + 1, "", object)
    for code in {*allocations.stack[steps].tolist(), *[failed] * makes}:
        line[code] = stepping_line(stacks[code])
    found = list[_State]()
    for one in sorted(set(line.tolist()) - {""}):
        own = state[line[allocations.stack[state]] == one]
        ran = steps[line[allocations.stack[steps]] == one]
        size = allocated_bytes(allocations.bytes[own])
        at = allocations.position[own].tolist()
        if makes and line[failed] == one:
            size = np.r_[size, allocated_bytes(allocations.memory.bytes[event : event + 1])]
            at.append(position)
        if len(at):
            found.append(_State(own, size, at[0], int(allocations.position[ran].max(initial=NONE))))
    return found


def _are_of_same(old: Int64, new: Int64, weights: Counter[int]) -> bool:
    """Whether two optimizers have made more state of one size, the one that holds most of the new one's, than
    one optimizer can make for these weights. old, new: sizes. weights: how many have each size."""
    sizes, count = np.unique(new[np.isin(new, old)], return_counts=True)
    if not len(sizes):
        return False
    most = int((sizes * count).argmax())
    size = int(sizes[most])
    made: Int64 = np.flatnonzero(old == size)
    # An optimizer makes all state of one weight at once.
    runs = np.diff(np.flatnonzero(np.r_[True, np.diff(made) > 1, True]))
    each = min(MOST_STATES, int(np.gcd.reduce(runs)))
    return 0 < each * weights[size] < len(made) + int(count[most])


def find_replaced_models(allocations: Allocations) -> Int64:
    """Return the weights of models that have run, as indices, of whose sizes one was being made when an
    allocation failed: what was made of it so far, and the request, have the sizes of their first weights, in
    this order. In their place, there is room for all of the new one.
    """
    position, none = int(allocations.failures[-1]), np.zeros(0, np.int64)
    event = int(allocations.curve.event[position])
    if allocations.context.phase[event] != Phase.PARAMETER:
        return none
    alive = np.sort(allocations.alive(position))
    own = (allocations.phase[alive] == Phase.PARAMETER) & (allocations.stack[alive] != NONE)
    weights = alive[own & ~(allocations.found | allocations.copies_weights)[alive]]
    called = (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE) & allocations.in_module
    calls = np.flatnonzero(called)
    part = np.searchsorted(calls, weights)
    begins = np.flatnonzero(np.diff(part, prepend=NONE))
    if not len(calls) or not 0 < len(begins) <= MOST_PARTS:
        return none
    size = allocated_bytes(np.r_[allocations.bytes[weights], allocations.memory.bytes[event : event + 1]])
    last = int(begins[-1]) if part[-1] == len(calls) else len(weights)
    new = size[last:]
    if len(new) < FEWEST_TENSORS:
        return none
    found = [
        weights[begin:end]
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(weights)], strict=True)
        if end <= last and np.array_equal(size[begin:end][: len(new)], new)
    ]
    whole = allocations.bytes[weights[:last]].sum()
    ran = [
        own
        for own in found
        if allocations.bytes[own].sum() >= LEAST_PART * whole
        and _calls_between(allocations, calls, int(own[-1])) >= FEWEST_CALLS
    ]
    return np.sort(np.concatenate([none, *ran]))


def _calls_between(allocations: Allocations, calls: Int64, since: int) -> int:
    """Return how often models were called since this allocation. calls: indices of what they allocated."""
    later = allocations.stack[calls[calls > since]]
    callers = {outermost_caller(allocations.memory.stacks[code]) for code in np.unique(later).tolist()}
    begins = [allocations.call_begins(caller) for caller in sorted(callers - {""})]
    return max((int((one > allocations.position[since]).sum()) for one in begins), default=0)
