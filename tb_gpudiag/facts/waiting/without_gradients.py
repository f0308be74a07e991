"""Operators that run while gradients are switched off, beside the training."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.vocabulary import marks, operators
from tb_gpudiag.vocabulary.recorded import Category


def without_gradients(host: Host) -> Bool:
    """Mask of the events in such operators, shape (n,): not those of the backward pass, the optimizer, the
    loader and collectives.

    While gradients are on, the profiler notes autograd's sequence number with each operator that autograd
    sees. An operator without one, in which there is none either, ran while they were off, unless it only
    makes a tensor.
    """
    events, tree = host.events, host.tree
    operator = events.category == Category.CPU_OP
    numbered = operator & (events.sequence != NONE)
    forward = numbered & (events.forward_thread <= 0) & ~host.in_backward
    on_thread = np.isin(events.thread, np.unique(events.thread[forward]))
    found = tree.outermost_of(operator) & on_thread & ~numbered & ~tree.any_below(numbered)
    for pattern in (operators.BACKWARD_NODE, operators.COLLECTIVE, operators.MAKES_TENSOR):
        found &= ~match(events, pattern)
    optimizer = match(events, marks.OPTIMIZER_STEP) | match(events, marks.ZERO_GRAD)
    found &= ~(host.in_backward | host.loader | tree.under(optimizer & (tree.depth >= 0)))
    return tree.under(found)
