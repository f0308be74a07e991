"""Operators on the CPU that compute little, however long they take."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import groups
from tb_gpudiag.facts.kernels.operator_costs import operator_cost
from tb_gpudiag.vocabulary.recorded import Category

# In 20 µs, about what dispatching an operator takes while it is recorded, one core computes a million
# operations or moves 200 KB.
_LITTLE_OPERATIONS: Final = 1_000_000
_LITTLE_BYTES: Final = 200_000


def computes_little(host: Host) -> Bool:
    """Mask of the events whose innermost operator calls others, or has inputs that say that it computes
    little, shape (n,)."""
    events, parent = host.events, host.tree.parent
    operator = events.category == Category.CPU_OP
    outer = parent[operator & (parent != NONE)]
    calls_others = mask_of(host.operator[outer][host.operator[outer] != NONE], len(events))
    found: Bool = host.operator != NONE
    found[found] = (calls_others | _with_small_inputs(host, operator))[host.operator[found]]
    return found


def _with_small_inputs(host: Host, operator: Bool) -> Bool:
    events = host.events
    some = np.flatnonzero(operator & (events.shapes != NONE) & (events.types != NONE))
    found = np.zeros(len(events), np.bool_)
    columns = (events.name, events.shapes, events.types)
    kind, _ = groups(*(column[some].astype(np.int64) for column in columns))
    _, first = np.unique(kind, return_index=True)
    little = []
    for name, shapes, types in zip(*(column[some[first]].tolist() for column in columns), strict=True):
        cost = operator_cost(events.names[name], events.input_shapes[shapes], events.input_types[types])
        little.append(
            cost is not None and cost.operations <= _LITTLE_OPERATIONS and cost.bytes <= _LITTLE_BYTES
        )
    if little:
        found[some] = np.array(little, np.bool_)[kind]
    return found
