"""Whether a site's largest tensor is replaced by itself with more at its end, as recorded shapes show."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.operator_inputs import tensor_shapes
from tb_gpudiag.facts.memory.allocations import Allocations

_FEWEST = 4
"""Fewer batches of changing sizes may rise by chance, and be joined from a large part."""


def is_extended(allocations: Allocations, own: Int64, since: Int64, until: Int64, floors: int) -> bool:
    """Whether each of the largest tensors at the floors is larger than the one before, and joined from
    something at least as large as that. A batch is joined from its samples, which are small.

    own: a site's allocations in order of time. since, until: see FloorTable. Shape (k,) each.
    """
    largest, size = list[int](), allocations.bytes[own]
    for floor in range(floors):
        alive = np.flatnonzero((since <= floor) & (floor < until))
        one = int(own[alive[size[alive].argmax()]]) if len(alive) else NONE
        if one != NONE and (not largest or one != largest[-1]):
            largest.append(one)
    return len(largest) > _FEWEST and all(
        allocations.bytes[old] < allocations.bytes[new]
        and allocations.bytes[old] <= _largest_part(allocations, new)
        for old, new in pairwise(largest)
    )


def _largest_part(allocations: Allocations, joined: int) -> float:
    """Return the bytes of the largest input of the operator that joined this; 0 if that is not known."""
    events, operator = allocations.host.events, int(allocations.operator[joined])
    if operator == NONE or events.shapes[operator] == NONE:
        return 0.0
    parts = [prod(shape) for shape in tensor_shapes(events.input_shapes[int(events.shapes[operator])])]
    whole = sum(parts)
    return max(parts) / whole * int(allocations.bytes[joined]) if whole else 0.0
