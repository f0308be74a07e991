"""What decides how large a request is that failed: the shapes that its operator was given, or, where no
shapes were recorded, a matrix that would be as large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from math import isqrt, prod

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.operator_inputs import tensor_shapes
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.frames import Frame, innermost_place
from tb_gpudiag.vocabulary.recorded import allocated_bytes
from tb_gpudiag.vocabulary.torch_frames import MODULE_FRAME, is_of_layer

ELEMENT_BYTES = (4, 8, 2, 1)
"""Of numbers, the most usual format first."""

LEAST_ROWS = 256
"""Of a matrix that a guess may be about: any small number of bytes is some square."""

AS_JOINED = 0.99
"""Of the tensors that a request joins: each of these was rounded up."""

MOST_BESIDE = 3
"""A formula has a few steps of one size. More are the layers of a model."""

AS_MANY_NUMBERS = 4
"""A mask of a matrix takes a quarter of the bytes of its numbers."""


MUCH_SMALLER = 4
"""The results of a model are so much smaller than what a formula makes of them by mistake."""


@dataclass(frozen=True)
class Request:
    """What is known of a request that failed.

    shapes: of the tensors that its operator was given; none where they were not recorded.
    result: the shape that these broadcast to, if a tensor of it takes as many bytes.
    rows, element_bytes: without shapes, a square matrix with so many rows of such numbers is as large; 0 if
        none is. alike: allocations alive then that have one number for each row.
    beside_bytes: alive then, from the same function outside of modules, in few tensors like it: a
        broadcast difference, and then its square. In a backward pass, what is as large as what a function
        outside of modules made, if no module made anything of that size.
    formula: in a backward pass, the line that made the first of these.
    of_layer: a layer of torch's own asks for it, whose result is as large as the batch makes it.
    """

    shapes: list[list[int]] = field(default_factory=list)
    result: list[int] = field(default_factory=list)
    rows: int = 0
    element_bytes: int = 0
    alike: int = 0
    beside_bytes: int = 0
    formula: Frame | None = None
    of_layer: bool = False


def find_request(allocations: Allocations, position: int) -> Request:
    """Return what is known of the request that failed at this position of the curve."""
    memory, event = allocations.memory, int(allocations.curve.event[position])
    code = int(memory.stack[event]) if memory.stacks else NONE
    found = _size_of(allocations, position)
    if code == NONE or allocations.context.phase[event] == Phase.BACKWARD:
        return _in_backward(allocations, position, found)
    stack = memory.stacks[code]
    formula = allocations.context.phase[event] == Phase.FORWARD and not MODULE_FRAME.search(stack)
    beside = _beside(allocations, position, code, innermost_place(stack)) if formula else 0
    return replace(found, beside_bytes=beside, of_layer=is_of_layer(stack))


def _beside(allocations: Allocations, position: int, code: int, place: Frame | None) -> int:
    """Return the bytes of the few allocations that this function made, a quarter as large or more. Three,
    where the line has often got as much, are those of several layers, such as their caches."""
    alive = allocations.alive(position)
    requested = int(allocations.memory.bytes[allocations.curve.event[position]])
    large = alive[AS_MANY_NUMBERS * allocations.bytes[alive] >= requested]
    often = (allocations.stack == code) & (AS_MANY_NUMBERS * allocations.bytes >= requested)
    few = 0 < len(large) < MOST_BESIDE or (len(large) == MOST_BESIDE and often.sum() <= MOST_BESIDE)
    if place is None or not few or not _is_computed(allocations, int(allocations.position[large[0]])):
        return 0
    frames = [allocations.frame(row) for row in large.tolist()]
    same = np.array([f is not None and (f.file, f.function) == (place.file, place.function) for f in frames])
    same &= ((allocations.phase == Phase.FORWARD) & ~allocations.in_module)[large]
    held = int(allocations.bytes[large[same]].sum())
    # A request for as much as several tensors take joins them: a data set and its mirrored copy.
    joins = same.sum() > 1 and requested <= allocated_bytes(held)
    return 0 if joins and requested > AS_JOINED * held else held


def _is_computed(allocations: Allocations, position: int) -> bool:
    """Whether something that is no weight was there before this event. A data set comes from the host."""
    alive = allocations.alive(position - 1)
    return bool((allocations.phase[alive] == Phase.FORWARD).any())


def _in_backward(allocations: Allocations, position: int, found: Request) -> Request:
    """Add what a backward pass holds of the size of its request, if a formula's result is as large and no
    module's is."""
    alive = allocations.alive(position)
    requested = int(allocations.memory.bytes[allocations.curve.event[position]])
    inside = allocations.in_module
    if requested <= MUCH_SMALLER * int(allocations.bytes[inside].max(initial=0)) or not inside.any():
        return found
    large = alive[AS_MANY_NUMBERS * allocations.bytes[alive] >= requested]
    large = large[np.isin(allocations.phase[large], (Phase.FORWARD, Phase.BACKWARD))]
    made = large[(allocations.phase[large] == Phase.FORWARD) & (allocations.stack[large] != NONE)]
    if not len(made):
        made = _made_before(allocations, position, requested)  # a mean lets go of what it is a mean of
    if not len(made) or not _is_computed(allocations, int(allocations.position[made[0]])):
        return found
    held = int(allocations.bytes[large].sum())
    return replace(found, beside_bytes=held, formula=allocations.frame(int(made[0])))


def _made_before(allocations: Allocations, position: int, requested: int) -> Int64:
    """Return the last of the forward pass that is as large as this request, and made outside of modules."""
    outside = (allocations.phase == Phase.FORWARD) & ~allocations.in_module & (allocations.stack != NONE)
    outside &= (allocations.bytes >= requested) & (allocations.position < position)
    return np.flatnonzero(outside)[-1:]


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
    held = allocations.bytes[allocations.alive(position)]
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
