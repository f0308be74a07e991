"""Autograd's anomaly mode: it checks each gradient for NaN, and keeps the stack of each forward operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import NONE, Bool
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, distinct, union
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.vocabulary import operators, torch_frames


@dataclass(frozen=True, eq=False)
class AnomalyMode:
    """nodes: how many nodes of autograd ran that hand on gradients. checked: how many of them looked for NaN
    right after.

    inside: mask of the events that are part of the mode, shape (n,). spans: their time. forward: time of the
    forward operators that created nodes. Each keeps its stack, which shows only if stacks are recorded.
    """

    nodes: int
    checked: int
    inside: Bool
    spans: Intervals
    forward: Intervals


def anomaly_mode(host: Host) -> AnomalyMode:
    """Find what the mode adds: operators that look for NaN right below a node of autograd, and, with stacks,
    frames that format the stack of a forward operator."""
    events, tree = host.events, host.tree
    node = match(events, operators.BACKWARD_NODE) & ~match(events, operators.ACCUMULATES)
    below = np.zeros(len(events), np.bool_)
    below[tree.parent != NONE] = node[tree.parent[tree.parent != NONE]]
    nan = below & match(events, operators.FINDS_NAN)
    checked = distinct(tree.parent[nan])
    of_checked = np.isin(tree.parent, checked) & match(events, operators.CHECKS_FOR_NAN)
    own = of_checked | match(events, torch_frames.ANOMALY_STACK)
    outermost = tree.outermost_of(own)
    creators = distinct(host.creators(host.backward_nodes, host.forward_by_sequence))
    creators = creators[creators != NONE]
    return AnomalyMode(
        int(node.sum()),
        len(checked),
        tree.under(own),
        union(events.start_ns[outermost], events.end_ns[outermost]),
        union(events.start_ns[creators], events.end_ns[creators]),
    )
