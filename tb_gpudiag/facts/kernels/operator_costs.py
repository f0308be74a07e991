"""What the shapes of inputs say: the least that an operator computes and moves, and the time of matmuls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.facts.core.operator_inputs import input_list, is_plausible, is_shape, matrices
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.operators import (
    EIGHT_BITS,
    GROUPED,
    LINEAR,
    MATMUL_FACTORS,
    NUMBER_BYTES,
    VECTOR_PRODUCTS,
    number_format,
)
from tb_gpudiag.vocabulary.shaped_operators import (
    CONVOLUTIONS,
    EXPERTS,
    RECURRENT,
    attention_row,
    gradients,
    streamed_times,
    whole_numbers,
)

_TRUE = ("True", "1", "2")  # efficient attention writes the kind of its causal mask


class OperatorKind(IntEnum):
    """What an operator computes."""

    MATMUL = 0
    CONVOLUTION = 1
    ATTENTION = 2
    EXPERTS = 3  # a mixture of experts
    STREAMED = 4  # elementwise, norms, softmax, reductions: memory-bound
    RECURRENT = 5  # a recurrent layer of cuDNN or MIOpen


@dataclass(frozen=True)
class Cost:
    """Cost of one call.

    operations: multiplications and additions, 0 if memory-bound. bytes: each input read once, the results
    written once. sizes: of a matmul batch, rows, inner size, columns; of a convolution batch, positions of
    one item, channels in and out; of attention batch, heads, queries, keys, size of a head; of experts
    tokens, experts per token, experts in use.
    """

    kind: OperatorKind
    number: str  # number format, as NUMBER_BYTES has it
    operations: int
    bytes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Inputs:
    """Inputs of an operator: sizes of tensors ([] for others), number formats, and other values as text."""

    shapes: list[list[int]]
    types: list[str]
    settings: list[str]

    def bytes_of(self, index: int) -> int:
        """Return the size of a tensor; 0 for other inputs, and for formats that are not known."""
        if not self.shapes[index] or index >= len(self.types):
            return 0
        return math.prod(self.shapes[index]) * NUMBER_BYTES.get(self.types[index], 0)

    def number(self, *indices: int) -> str:
        """Return the number format of these inputs, which have the same size."""
        first, *others = (self.types[index] for index in indices)
        _require(first in NUMBER_BYTES, {first, *others} <= EIGHT_BITS or {*others} <= {first})
        return first

    def numbers(self, index: int) -> list[int]:
        """Return the whole numbers of a setting."""
        found = whole_numbers(self.settings[index])
        _require(found)
        return found

    def is_true(self, index: int) -> bool:
        return index < len(self.settings) and self.settings[index] in _TRUE


def _require(*fits: object) -> None:
    """Raise ValueError unless all of this is so of an operator's inputs."""
    if not all(fits):
        raise ValueError("these inputs are not what the operator takes")


# Ranks of a job call the same operators, and most steps as well.
@lru_cache(maxsize=4_096)
def operator_cost(operator: str, shapes: str, types: str, settings: str = "") -> Cost | None:
    """Return the cost of one call, from its inputs as JSON; None if they do not say it."""
    kind = _kind(operator)
    if kind is None:
        return None
    try:
        if kind is OperatorKind.RECURRENT:
            return _recurrent(operator, input_list(shapes), input_list(types))
        sizes = input_list(shapes)
        _require(*map(is_plausible, sizes))
        inputs = Inputs(
            [dims if isinstance(dims, list) else [] for dims in sizes],
            [number_format(name) if isinstance(name, str) else "" for name in input_list(types)],
            [value if isinstance(value, str) else "" for value in input_list(settings)],
        )
        cost = _COSTS[kind](operator, inputs)
    except (ValueError, LookupError, ArithmeticError):  # other inputs than such an operator takes
        return None
    return cost if cost.bytes > 0 else None


def _kind(operator: str) -> OperatorKind | None:
    kinds = (
        (OperatorKind.RECURRENT, operator in RECURRENT),
        (OperatorKind.MATMUL, operator in MATMUL_FACTORS),
        (OperatorKind.CONVOLUTION, operator in CONVOLUTIONS),
        (OperatorKind.ATTENTION, attention_row(operator) is not None),
        (OperatorKind.EXPERTS, EXPERTS.fullmatch(operator) is not None),
        (OperatorKind.STREAMED, streamed_times(operator) is not None),
    )
    return next((kind for kind, is_one in kinds if is_one), None)


# The functions below raise ValueError, LookupError or ArithmeticError for other inputs than they know.


def _matmul(operator: str, inputs: Inputs) -> Cost:
    skipped, transposed = MATMUL_FACTORS[operator]
    left, right = inputs.shapes[skipped : skipped + 2]
    if operator in VECTOR_PRODUCTS:
        right = [*right, 1]
    sizes_of = _grouped_sizes if operator in GROUPED else _layer_sizes if transposed else _matmul_sizes
    sizes = sizes_of(left, right)
    number = inputs.number(skipped, skipped + 1)
    batch, rows, _, columns = sizes
    moved = (math.prod(left) + math.prod(right) + batch * rows * columns) * NUMBER_BYTES[number]
    if number in EIGHT_BITS:  # the result has 16 bits
        moved += batch * rows * columns
    return Cost(OperatorKind.MATMUL, number, 2 * math.prod(sizes), moved, sizes)


def _matmul_sizes(left: list[int], right: list[int]) -> tuple[int, int, int, int]:
    """Parse batch, rows, inner size and columns."""
    *before, rows, inner = left
    *beside, deep, columns = right
    if not beside:  # the same second factor for the whole batch
        before, rows = [], math.prod(before) * rows
    batch = math.prod(before)
    _require(deep == inner, beside == before, batch * rows * inner * columns)
    return batch, rows, inner, columns


def _layer_sizes(left: list[int], weights: list[int]) -> tuple[int, int, int, int]:
    """Parse the same of a layer, whose transposed weights are read once for the whole batch."""
    *batch, rows, inner = left
    *_, columns, deep = weights
    rows *= math.prod(batch)
    _require(deep == inner, rows * inner * columns)
    return 1, rows, inner, columns


def _grouped_sizes(left: list[int], right: list[int]) -> tuple[int, int, int, int]:
    """Parse the sizes of matmuls whose groups share the rows, the inner size or the columns: each number of
    the shared dimension is in one group."""
    _require(*(len(dims) in (2, 3) for dims in (left, right)))
    *groups, rows, inner = left
    batch = groups[0] if len(right) == 3 and groups else 1
    _require(right[-2] == inner, batch in (1, right[0]), batch * rows * inner * right[-1])
    return batch, rows, inner, right[-1]


def _convolution(operator: str, inputs: Inputs) -> Cost:
    row = CONVOLUTIONS[operator]
    number = inputs.number(row.input, row.weight)
    settings = [inputs.numbers(i) for i in (row.stride, row.padding, row.dilation, row.groups)]
    data, weight = inputs.shapes[row.input], inputs.shapes[row.weight]
    sides = len(data) - 2
    _require(sides >= 1, len(weight) == len(data))
    stride, padding, dilation = ((given * sides)[:sides] for given in settings[:3])
    if row.always_transposed or (row.transposed is not None and inputs.is_true(row.transposed)):
        results = math.prod(data) * math.prod(weight[1:])  # each input is used once for each weight
        positions = math.prod(data[2:])
        written = data[0] * weight[1] * math.prod(d * s for d, s in zip(data[2:], stride, strict=True))
    else:
        kernels = zip(data[2:], weight[2:], stride, padding, dilation, strict=True)
        out = [
            (size + 2 * pad - apart * (side - 1) - 1) // step + 1 for size, side, step, pad, apart in kernels
        ]
        _require(min(out) >= 1)
        positions = math.prod(out)
        written = data[0] * weight[0] * positions
        results = written * math.prod(weight[1:])  # weight[1]: channels of one group
    moved = (math.prod(data) + math.prod(weight) + written) * NUMBER_BYTES[number]
    sizes = (data[0], positions, weight[1], weight[0])
    times = 1
    if row.results is not None:
        times = gradients(inputs.settings[row.results] if row.results < len(inputs.settings) else "")
    return Cost(OperatorKind.CONVOLUTION, number, 2 * results * times, moved * times, sizes)


def _attention(operator: str, inputs: Inputs) -> Cost:
    row = attention_row(operator)
    assert row is not None  # as of its kind
    query, key, value = inputs.shapes[row.query : row.query + 3]
    number = inputs.number(row.query, row.query + 1)
    if row.packed:
        pairs, keys = (int(sum_of) for sum_of in inputs.settings)
        _require(pairs > 0, keys > 0, len(query) == 3)
        tokens, heads, size = query
        moved = 2 * math.prod(query) + keys * (math.prod(key[-2:]) + math.prod(value[-2:]))
        sizes = (1, heads, tokens, keys, size)
        operations = 2 * pairs * heads * (size + value[-1])
        return Cost(OperatorKind.ATTENTION, number, operations, moved * NUMBER_BYTES[number], sizes)
    _require(*(len(dims) == 4 for dims in (query, key, value)))
    heads, tokens = (1, 2) if row.heads_first else (2, 1)
    pairs = query[0] * query[heads] * query[tokens] * key[tokens]
    if inputs.is_true(row.causal) and query[tokens] == key[tokens]:
        pairs //= 2
    # Forward: query × key and weights × value. Backward: the scores again and the gradients of query and key
    # are products over the size of a query, the gradients of weights and value over that of a value.
    over_query, over_value, passes = (3, 2, 2) if row.backward else (1, 1, 1)
    operations = 2 * pairs * (over_query * query[3] + over_value * value[3])
    moved = (2 * math.prod(query) + math.prod(key) + math.prod(value)) * NUMBER_BYTES[number]
    sizes = (query[0], query[heads], query[tokens], key[tokens], query[3])
    return Cost(OperatorKind.ATTENTION, number, operations, moved * passes, sizes)


def _experts(_: str, inputs: Inputs) -> Cost:
    number = inputs.number(1, 2)
    (tokens, size), (experts, inner, outer), (same_experts, outer_too, half), (same, chosen) = inputs.shapes[
        :4
    ]
    del inner, half  # of a gated layer, one is twice the other
    _require(same == tokens, experts == same_experts, outer == size, outer_too == size, experts)
    used = min(experts, tokens * chosen)
    weights = math.prod(inputs.shapes[1][1:]) + math.prod(inputs.shapes[2][1:])
    moved = (used * weights + 2 * tokens * size) * NUMBER_BYTES[number]
    return Cost(OperatorKind.EXPERTS, number, 2 * tokens * chosen * weights, moved, (tokens, chosen, used))


def _recurrent(operator: str, sizes: list[Any], formats: list[Any]) -> Cost:
    """Each weight matrix multiplies the input or the state of each step and sequence."""
    data, weights = sizes[:2]
    _require(isinstance(weights, list), isinstance(formats[0], str))
    _require(*(is_shape(dims) and is_plausible(dims) for dims in [data, *weights]))
    matrices = [math.prod(dims) for dims in weights if len(dims) == 2]
    number = number_format(formats[0])
    _require(len(data) == 3, matrices, number in NUMBER_BYTES, math.prod(data))
    steps, times = data[0] * data[1], RECURRENT[operator]
    moved = times * (2 * math.prod(data) + sum(matrices)) * NUMBER_BYTES[number]
    return Cost(OperatorKind.RECURRENT, number, 2 * times * steps * sum(matrices), moved, ())


def _streamed(operator: str, inputs: Inputs) -> Cost:
    sizes = [inputs.bytes_of(i) for i in range(len(inputs.shapes))]
    known = [i for i, dims in enumerate(inputs.shapes) if dims]
    _require(known, *(sizes[i] for i in known))
    moved = sum(sizes) + round(max(sizes) * (streamed_times(operator) or 0))
    return Cost(OperatorKind.STREAMED, inputs.types[known[0]], 0, moved, ())


_COSTS: dict[OperatorKind, Callable[[str, Inputs], Cost]] = {
    OperatorKind.MATMUL: _matmul,
    OperatorKind.CONVOLUTION: _convolution,
    OperatorKind.ATTENTION: _attention,
    OperatorKind.EXPERTS: _experts,
    OperatorKind.STREAMED: _streamed,
}


def in_order(shapes: str, strides: str) -> bool | None:
    """Return whether all large inputs are dense and have one layout, so that memory is read and written in
    order; None if the trace does not say.

    shapes, strides: of the inputs, as JSON.
    """
    sizes, steps = input_list(shapes), input_list(strides)
    if not sizes or not steps or len(sizes) != len(steps) or not all(map(is_plausible, sizes)):
        return None
    tensors = [(dims, step) for dims, step in zip(sizes, steps, strict=True) if dims]
    if not tensors or not all(is_shape(step) and len(step) == len(dims) for dims, step in tensors):
        return None
    most = max(math.prod(dims) for dims, _ in tensors)
    layouts = {
        tuple((one, size) for one, size in zip(step, dims, strict=True) if size > 1)
        for dims, step in tensors
        if 2 * math.prod(dims) >= most
    }
    return len(layouts) == 1 and _is_dense(sorted(*layouts))


def _is_dense(layout: Sequence[tuple[int, int]]) -> bool:
    """Return whether dimensions (stride, size) in order of stride leave no gap and do not overlap."""
    expected = 1
    for stride, size in layout:
        if stride != expected:
            return False
        expected *= size
    return True


def time_by_shapes(host: Host, launch: Int64, duration_ns: Int64) -> list[tuple[str, int]]:
    """Add up kernel time by the matmul's input shapes: (shapes as JSON, ns), most time first, without kernels
    of other operators or unknown shapes.

    launch: the host call that launched each kernel, or NONE, shape (k,).
    duration_ns: the kernels' durations, shape (k,).
    """
    events = host.events
    known = launch != NONE
    operator = host.operator[launch[known]]
    shape = np.where(operator == NONE, NONE, events.shapes[operator])
    matmul = np.array([*(name in MATMUL_FACTORS for name in events.names), False], np.bool_)
    inside = (shape != NONE) & matmul[events.name[operator]]
    weight = np.bincount(
        shape[inside], weights=duration_ns[known][inside], minlength=len(events.input_shapes)
    )
    order = np.argsort(-weight, kind="stable")
    return [(events.input_shapes[i], int(weight[i])) for i in order if weight[i]]


def batch_of_one(host: Host, window: Window, least: int) -> bool:
    """Return whether every linear layer that runs in the window gets an input whose first size is 1: then a
    batch is one item. False with fewer than `least` calls."""
    events = host.events
    known = events.shapes != NONE
    known &= window.contains(events.start_ns)
    calls = np.flatnonzero(known)
    calls = calls[match_some(events, LINEAR, calls)]
    shapes = {events.input_shapes[i] for i in np.unique(events.shapes[calls])}
    return len(calls) >= least and all(
        len(inputs := matrices(shape)) > 0 and inputs[0][0] == 1 for shape in shapes
    )
