"""Recomputation: forward passes that ran again inside of backward, as activation checkpointing does."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.operators import ATEN
from tb_gpudiag.vocabulary.recorded import Category


def recomputed(host: Host) -> Bool:
    """Mask of the events in forward passes that ran again inside of backward, shape (n,).

    Backward runs without gradients, and only an operator that runs with gradients has a sequence number of
    its own. With `create_graph=True` backward itself runs with gradients, but what its nodes call is not what
    the forward pass called. Inside of compiled code no operator shows what is recomputed.
    """
    events, tree = host.events, host.tree
    operator = events.category == Category.CPU_OP
    again = operator & (events.sequence != NONE) & (events.forward_thread <= 0) & host.in_backward
    if not again.any():
        return again
    outer = np.flatnonzero(tree.outermost_of(again))
    # What the forward pass called itself, and not one of torch's operators for it.
    forward = np.flatnonzero(operator & ~host.in_backward)
    caller = np.where(tree.parent[forward] == NONE, NONE, host.operator[tree.parent[forward]])
    forward = forward[(caller == NONE) | ~match(events, ATEN)[caller]]
    known = np.isin(_calls(events)[outer], _calls(events)[forward])
    nodes, node = np.unique(host.backward_node[outer], return_inverse=True)
    # Most, because hooks may run operators of their own.
    mostly = np.bincount(node, known, len(nodes)) > np.bincount(node, minlength=len(nodes)) / 2
    return tree.under(mask_of(outer[mostly[node]], len(events)))


def _calls(events: Events) -> Int64:
    """Number of each event's name and shapes, shape (n,)."""
    return events.name.astype(np.int64) * (len(events.input_shapes) + 1) + events.shapes + 1
