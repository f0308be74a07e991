"""What decides how large a request is that failed: the shapes that its operator was given, or, where no
shapes were recorded, a matrix that would be as large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import isqrt, prod

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.operator_inputs import tensor_shapes
from tb_gpudiag.facts.memory.allocations import Allocations
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.recorded import allocated_bytes

ELEMENT_BYTES = (4, 8, 2, 1)
"""Of numbers, the most usual format first."""

LEAST_ROWS = 256
"""Of a matrix that a guess may be about: any small number of bytes is some square."""


@dataclass(frozen=True)
class Request:
    """What is known of a request that failed.

    shapes: of the tensors that its operator was given; none where they were not recorded.
    result: the shape that these broadcast to, if a tensor of it takes as many bytes.
    rows, element_bytes: without shapes, a square matrix with so many rows of such numbers is as large; 0 if
        none is. alike: allocations alive then that have one number for each row.
    """

    shapes: list[list[int]] = field(default_factory=list)
    result: list[int] = field(default_factory=list)
    rows: int = 0
    element_bytes: int = 0
    alike: int = 0


def find_request(allocations: Allocations, position: int) -> Request:
    """Return what is known of the request that failed at this position of the curve."""
    curve, context = allocations.curve, allocations.context
    event = int(curve.event[position])
    requested = np.maximum(0, allocations.memory.bytes[event]).astype(np.int64)
    operator, events = int(context.operator[event]), allocations.host.events
    if operator != NONE and events.shapes[operator] != NONE:
        shapes = tensor_shapes(events.input_shapes[int(events.shapes[operator])])
        result = _broadcast(shapes)
        fits = any(_takes(prod(result) * size, requested) for size in ELEMENT_BYTES)
        return Request(shapes, result if fits and result not in shapes else [])
    held = allocations.bytes[allocations.alive(position)] if allocations.paired else np.zeros(0, np.int64)
    found = [
        Request(rows=rows, element_bytes=size, alike=int(_takes(rows * size, held).sum()))
        for size in ELEMENT_BYTES
        if (rows := isqrt(int(requested) // size)) >= LEAST_ROWS and _takes(rows * rows * size, requested)
    ]
    return max(found, key=lambda one: one.alike > 0, default=Request())


def _takes(needed: int, recorded: Int64) -> Bool:
    """Mask of the sizes that so many bytes have. Snapshots have what the allocator rounds them up to."""
    return (recorded == needed) | (recorded == allocated_bytes(needed))


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    """Return the shape that these broadcast to; [] if they do not."""
    longest = max(map(len, shapes), default=0)
    whole = [[1] * (longest - len(shape)) + list(shape) for shape in shapes]
    sizes = [{size for size in column if size != 1} or {1} for column in zip(*whole, strict=True)]
    return [max(column) for column in sizes] if all(len(column) == 1 for column in sizes) else []
