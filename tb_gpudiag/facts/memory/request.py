"""What decides how large a request is that failed: the shapes that its operator was given, or, where no
shapes were recorded, a matrix that would be as large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from math import isqrt, prod

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.operator_inputs import tensor_shapes
from tb_gpudiag.facts.memory.allocations import Allocations, in_module
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.recorded import allocated_bytes
from tb_gpudiag.vocabulary.torch_frames import MODULE_FRAME, is_of_layer

ELEMENT_BYTES = (4, 8, 2, 1)
"""Of numbers, the most usual format first."""

LEAST_ROWS = 256
"""Of a matrix that a guess may be about: any small number of bytes is some square."""


MOST_BESIDE = 2
"""A formula has a few steps of one size. More are the layers of a model."""


@dataclass(frozen=True)
class Request:
    """What is known of a request that failed.

    shapes: of the tensors that its operator was given; none where they were not recorded.
    result: the shape that these broadcast to, if a tensor of it takes as many bytes.
    rows, element_bytes: without shapes, a square matrix with so many rows of such numbers is as large; 0 if
        none is. alike: allocations alive then that have one number for each row.
    beside_bytes: alive then, from the same function outside of modules, in one or two tensors like it: a
        broadcast difference, and then its square.
    of_layer: a layer of torch's own asks for it, whose result is as large as the batch makes it.
    """

    shapes: list[list[int]] = field(default_factory=list)
    result: list[int] = field(default_factory=list)
    rows: int = 0
    element_bytes: int = 0
    alike: int = 0
    beside_bytes: int = 0
    of_layer: bool = False


def find_request(allocations: Allocations, position: int) -> Request:
    """Return what is known of the request that failed at this position of the curve."""
    memory, event = allocations.memory, int(allocations.curve.event[position])
    code = int(memory.stack[event]) if memory.stacks else NONE
    found = _size_of(allocations, position)
    if code == NONE:
        return found
    stack = memory.stacks[code]
    formula = allocations.context.phase[event] == Phase.FORWARD and not MODULE_FRAME.search(stack)
    beside = _beside(allocations, position, innermost_place(stack)) if formula else 0
    return replace(found, beside_bytes=beside, of_layer=is_of_layer(stack))


def _beside(allocations: Allocations, position: int, place: Frame | None) -> int:
    """Return the bytes of the few allocations that this function made, at least half as large each."""
    alive = allocations.alive(position) if allocations.paired else np.zeros(0, np.int64)
    requested = int(allocations.memory.bytes[allocations.curve.event[position]])
    large = alive[2 * allocations.bytes[alive] >= requested]
    if place is None or not 0 < len(large) <= MOST_BESIDE:
        return 0
    frames = [allocations.frame(row) for row in large.tolist()]
    same = np.array([f is not None and (f.file, f.function) == (place.file, place.function) for f in frames])
    same &= ((allocations.phase == Phase.FORWARD) & ~in_module(allocations))[large]
    return int(allocations.bytes[large[same]].sum())


def _size_of(allocations: Allocations, position: int) -> Request:
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
