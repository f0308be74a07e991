"""A forward pass that stopped before its backward pass, and whose activations are still there: an exception
keeps them, in the frames of its traceback."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.torch_frames import innermost_frame, outermost_caller

FEWEST_RESULTS = 4
"""Of a pass: fewer may be its result and what a hook keeps."""

FEWEST_STEPS = 2
"""With one pass each, before two passes without a backward pass in between are not how the job computes. And
a generator's graph waits for a second backward pass."""

SAME_SHARE = 0.8
"""Of the bytes of another pass: the last batch may be smaller."""


def find_stopped_pass(allocations: Allocations) -> Int64:
    """Return what modules made and is still there when an allocation failed, as indices, if it is one pass:
    of each line as much as another one kept until its backward pass.

    That is the next one, which came before the same backward pass. If it is the next one that failed, the
    last steps had only one pass each, at the same line. What a job keeps on purpose is from several steps, or
    a few lines.
    """
    position = int(allocations.failures[-1])
    forward = (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE) & allocations.in_module
    own = np.flatnonzero(forward)
    backward = allocations.phase == Phase.BACKWARD
    begins = allocations.position[backward & ~np.r_[False, backward[:-1]]]
    # Number of the backward pass that follows each, shape (o,).
    step = np.searchsorted(begins, allocations.position[own])
    ended = np.where(allocations.freed[own] == NONE, position + 1, allocations.freed[own])
    alive, waited = ended > position, ended > np.r_[begins, position][step]
    ends = len(begins) - (allocations.context.phase[allocations.curve.event[position]] == Phase.BACKWARD)
    left, others = alive & (step <= ends - FEWEST_STEPS), list[Bool]()
    if left.any():
        others = [waited & ~alive & (step == step[left][0])]
    elif len(own) and ends >= FEWEST_STEPS:
        called, last = _last_call(allocations, int(own[-1]))
        same = called[own]
        left = same & alive & (step == ends) & (allocations.position[own] < last)
        others = [same & waited & (step == ends - 1 - i) for i in range(FEWEST_STEPS)]
    if left.sum() < FEWEST_RESULTS or len(np.unique(step[left])) > 1:
        return np.zeros(0, np.int64)
    line, size = allocations.inner_stack[own], allocations.bytes[own]
    held = [np.bincount(line[one], weights=size[one], minlength=line.max() + 1) for one in (left, *others)]
    most = [max(held[0].sum(), other.sum()) for other in held[1:]]
    both = [np.minimum(held[0], other).sum() for other in held[1:]]
    return own[left & bool((np.array(both) >= SAME_SHARE * np.array(most)).all())]


def _last_call(allocations: Allocations, newest: int) -> tuple[Bool, int]:
    """Return a mask of what the line allocates that calls the model in the request that failed, shape (a,),
    wherever its function is called, and the position at which its last call begins; none outside of a call.
    newest: what modules made last, which a backward pass goes back to."""
    stacks = allocations.memory.stacks
    event = allocations.curve.event[allocations.failures[-1]]
    fails_backward = allocations.context.phase[event] == Phase.BACKWARD
    code = int(allocations.stack[newest] if fails_backward else allocations.memory.stack[event])
    caller = outermost_caller(stacks[code]) if code != NONE else ""
    if not caller:
        return np.zeros(len(allocations), np.bool_), 0
    line = innermost_frame(caller)
    same = np.array([*(innermost_frame(outermost_caller(one)) == line for one in stacks), False], np.bool_)
    return same[allocations.stack], int(allocations.call_begins(caller).max(initial=0))
