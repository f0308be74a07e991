"""A forward pass that stopped before its backward pass, and whose activations are still there: an exception
keeps them, in the frames of its traceback."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.memory.allocations import Allocations, call_begins, in_module
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.vocabulary.torch_frames import outermost_caller

FEWEST_RESULTS = 4
"""Of a pass: fewer may be its result and what a hook keeps."""

FEWEST_STEPS = 2
"""With one pass each, before two passes without a backward pass in between are not how the job computes."""

SAME_SHARE = 0.8
"""What was kept of the pass is what another one kept for its backward pass; parts may be missing."""


def find_stopped_pass(allocations: Allocations) -> Int64:
    """Return what modules made and is still there when an allocation failed, as indices, if it is one pass:
    of each line as much as another one kept until its backward pass.

    That is the next one, which came before the same backward pass. If it is the next one that failed, the
    last two steps had only one pass each. What a job keeps on purpose is from several steps, or a few lines.
    """
    position = int(allocations.failures[-1])
    forward = (allocations.phase == Phase.FORWARD) & (allocations.stack != NONE) & in_module(allocations)
    own = np.flatnonzero(forward)
    backward = allocations.phase == Phase.BACKWARD
    begins = allocations.position[backward & ~np.r_[False, backward[:-1]]]
    # Number of the backward pass that follows each, shape (o,).
    step = np.searchsorted(begins, allocations.position[own])
    ended = np.where(allocations.freed[own] == NONE, position + 1, allocations.freed[own])
    alive, waited = ended > position, ended > np.r_[begins, position][step]
    left = alive & (step < len(begins))
    others = list[Bool]()
    if left.any():
        others = [waited & ~alive & (step == step[left][0])]
    elif len(begins) >= FEWEST_STEPS:
        left = alive & (allocations.position[own] < _last_call(allocations))
        others = [waited & (step == len(begins) - 1 - i) for i in range(FEWEST_STEPS)]
    if left.sum() < FEWEST_RESULTS or len(np.unique(step[left])) > 1:
        return np.zeros(0, np.int64)
    line = allocations.inner_stack[own]
    return own[left & all(_is_alike(line[left], line[other]) for other in others)]


def _last_call(allocations: Allocations) -> int:
    """Return the position at which the call of a model begins that failed; 0 outside of a call."""
    code = int(allocations.memory.stack[allocations.curve.event[allocations.failures[-1]]])
    caller = outermost_caller(allocations.memory.stacks[code]) if code != NONE else ""
    begins = call_begins(allocations, caller) if caller else np.zeros(0, np.int64)
    return int(begins.max(initial=0))


def _is_alike(first: Int64, second: Int64) -> Bool:
    most = max(first.max(initial=0), second.max(initial=0)) + 1
    one, other = np.bincount(first, minlength=most), np.bincount(second, minlength=most)
    return np.minimum(one, other).sum() >= SAME_SHARE * max(one.sum(), other.sum())
