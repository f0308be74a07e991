"""What the shapes of inputs say: the least that an operator computes and moves, and the time of matmuls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache

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
        """Return the size of a tensor; 0 for other inputs."""
        number = self.types[index] if index < len(self.types) else ""
        if index >= len(self.shapes) or not self.shapes[index]:
            return 0
        return math.prod(self.shapes[index]) * NUMBER_BYTES.get(number, 0)

    def numbers(self, index: int) -> list[int]:
        """Return the whole numbers of a setting; [] if it was not recorded."""
        text = self.settings[index] if index < len(self.settings) else ""
        return whole_numbers(text)


# Ranks of a job call the same operators, and most steps as well.
@lru_cache(maxsize=4_096)
def operator_cost(operator: str, shapes: str, types: str, settings: str = "") -> Cost | None:
    """Return the cost of one call, from its inputs as JSON; None if they do not say it."""
    if operator in RECURRENT:
        return _recurrent(operator, shapes, types)
    inputs = _inputs(shapes, types, settings)
    if inputs is None:
        return None
    cost = _COSTS[kind](operator, inputs) if (kind := _kind(operator)) is not None else None
    return cost if cost is not None and cost.bytes > 0 else None


def _kind(operator: str) -> OperatorKind | None:
    if operator in MATMUL_FACTORS:
        return OperatorKind.MATMUL
    if operator in CONVOLUTIONS:
        return OperatorKind.CONVOLUTION
    if attention_row(operator) is not None:
        return OperatorKind.ATTENTION
    if EXPERTS.fullmatch(operator):
        return OperatorKind.EXPERTS
    return OperatorKind.STREAMED if streamed_times(operator) is not None else None


def _inputs(shapes: str, types: str, settings: str) -> Inputs | None:
    sizes = input_list(shapes)
    if not all(map(is_plausible, sizes)):
        return None
    return Inputs(
        [dims if isinstance(dims, list) else [] for dims in sizes],
        [number_format(name) if isinstance(name, str) else "" for name in input_list(types)],
        [value if isinstance(value, str) else "" for value in input_list(settings)],
    )


def _matmul(operator: str, inputs: Inputs) -> Cost | None:
    skipped, transposed = MATMUL_FACTORS[operator]
    factors = inputs.shapes[skipped : skipped + 2]
    if operator in VECTOR_PRODUCTS and len(factors) == 2:
        factors = [factors[0], [*factors[1], 1]]
    sizes = _grouped_sizes(factors) if operator in GROUPED else _matmul_sizes(factors, transposed)
    number = _common_number(inputs, skipped, skipped + 1)
    if sizes is None or number is None:
        return None
    batch, rows, _, columns = sizes
    moved = (sum(map(math.prod, factors)) + batch * rows * columns) * NUMBER_BYTES[number]
    if number in EIGHT_BITS:  # the result has 16 bits
        moved += batch * rows * columns
    return Cost(OperatorKind.MATMUL, number, 2 * math.prod(sizes), moved, sizes)


def _matmul_sizes(pair: list[list[int]], transposed: bool) -> tuple[int, int, int, int] | None:
    """Parse batch, rows, inner size and columns; return None if these are not the shapes of a matmul."""
    if len(pair) != 2 or any(len(dims) < 2 for dims in pair):
        return None
    left, right = pair
    *before, rows, inner = left
    deep, columns = (right[-1], right[-2]) if transposed else (right[-2], right[-1])
    batch = math.prod(before)
    if not transposed and len(right) == 2:  # the same second factor for the whole batch
        before, rows, batch = [], batch * rows, 1
    if deep != inner or (not transposed and right[:-2] != before) or not batch * rows * inner * columns:
        return None
    if transposed:  # a layer's weights are read once for the whole batch
        return 1, batch * rows, inner, columns
    return batch, rows, inner, columns


def _grouped_sizes(pair: list[list[int]]) -> tuple[int, int, int, int] | None:
    """Parse the sizes of matmuls whose groups share the rows, the inner size or the columns: each number of
    the shared dimension is in one group. None if these are not the shapes of such."""
    if len(pair) != 2 or not all(len(dims) in (2, 3) for dims in pair):
        return None
    left, right = pair
    *groups, rows, inner = left
    batch = groups[0] if len(right) == 3 and groups else 1
    if right[-2] != inner or (batch != 1 and right[0] != batch) or not batch * rows * inner * right[-1]:
        return None
    return batch, rows, inner, right[-1]


def _common_number(inputs: Inputs, first: int, second: int) -> str | None:
    """Return the number format of both inputs; None if they differ in size, or if it is not known."""
    if len(inputs.types) <= max(first, second):
        return None
    both = inputs.types[first], inputs.types[second]
    if both[0] != both[1] and not EIGHT_BITS.issuperset(both):
        return None
    return inputs.types[first] if inputs.types[first] in NUMBER_BYTES else None


def _convolution(operator: str, inputs: Inputs) -> Cost | None:
    row = CONVOLUTIONS[operator]
    number = _common_number(inputs, row.input, row.weight)
    settings = [inputs.numbers(i) for i in (row.stride, row.padding, row.dilation, row.groups)]
    if number is None or not all(settings) or len(inputs.shapes) <= row.weight:
        return None
    data, weight = inputs.shapes[row.input], inputs.shapes[row.weight]
    sides = len(data) - 2
    if sides < 1 or len(weight) != len(data):
        return None
    stride, padding, dilation = ((given * sides)[:sides] for given in settings[:3])
    if row.always_transposed or (row.transposed is not None and _is_true(inputs, row.transposed)):
        results = math.prod(data) * math.prod(weight[1:])  # each input is used once for each weight
        positions = math.prod(data[2:])
        written = data[0] * weight[1] * math.prod(d * s for d, s in zip(data[2:], stride, strict=True))
    else:
        positions = _positions(data[2:], weight[2:], stride, padding, dilation)
        if not positions:
            return None
        written = data[0] * weight[0] * positions
        results = written * math.prod(weight[1:])  # weight[1]: channels of one group
    moved = (math.prod(data) + math.prod(weight) + written) * NUMBER_BYTES[number]
    sizes = (data[0], positions, weight[1], weight[0])
    times = 1
    if row.results is not None:
        times = gradients(inputs.settings[row.results] if row.results < len(inputs.settings) else "")
    return Cost(OperatorKind.CONVOLUTION, number, 2 * results * times, moved * times, sizes)


def _positions(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> int:
    """Number of positions at which the kernel is applied; 0 if these sizes do not fit together."""
    if not all(stride):
        return 0
    out = [
        (size + 2 * pad - apart * (side - 1) - 1) // step + 1
        for size, pad, apart, side, step in zip(sizes, padding, dilation, kernel, stride, strict=True)
    ]
    return math.prod(out) if min(out) >= 1 else 0


def _attention(operator: str, inputs: Inputs) -> Cost | None:
    row = attention_row(operator)
    if row is None:
        return None
    tensors = inputs.shapes[row.query : row.query + 3]
    number = _common_number(inputs, row.query, row.query + 1)
    if number is None or len(tensors) != 3 or any(len(dims) != 4 for dims in tensors):
        return None
    heads, tokens = (1, 2) if row.heads_first else (2, 1)
    query, key, value = tensors
    pairs = query[0] * query[heads] * query[tokens] * key[tokens]
    if _is_true(inputs, row.causal) and query[tokens] == key[tokens]:
        pairs //= 2
    # Forward: query × key and weights × value. Backward: the scores again and the gradients of query and key
    # are products over the size of a query, the gradients of weights and value over that of a value.
    over_query, over_value = (3, 2) if row.backward else (1, 1)
    operations = 2 * pairs * (over_query * query[3] + over_value * value[3])
    moved = (2 * math.prod(query) + math.prod(key) + math.prod(value)) * NUMBER_BYTES[number]
    sizes = (query[0], query[heads], query[tokens], key[tokens], query[3])
    return Cost(OperatorKind.ATTENTION, number, operations, moved * (2 if row.backward else 1), sizes)


def _is_true(inputs: Inputs, index: int) -> bool:
    return index < len(inputs.settings) and inputs.settings[index] in _TRUE


def _experts(_: str, inputs: Inputs) -> Cost | None:
    number = _common_number(inputs, 1, 2)
    if number is None or len(inputs.shapes) < 4 or [len(dims) for dims in inputs.shapes[:4]] != [2, 3, 3, 2]:
        return None
    (tokens, size), up, down, (same, chosen) = inputs.shapes[:4]
    if same != tokens or up[0] != down[0] or up[2] != size or down[1] != size or not up[0]:
        return None
    used = min(up[0], tokens * chosen)
    weights = math.prod(up[1:]) + math.prod(down[1:])
    moved = (used * weights + 2 * tokens * size) * NUMBER_BYTES[number]
    return Cost(OperatorKind.EXPERTS, number, 2 * tokens * chosen * weights, moved, (tokens, chosen, used))


def _recurrent(operator: str, shapes: str, types: str) -> Cost | None:
    """Each weight matrix multiplies the input or the state of each step and sequence."""
    sizes, formats = input_list(shapes), input_list(types)
    if not sizes or not formats or len(sizes) < 2 or not isinstance(formats[0], str):
        return None
    (data, weights), number = sizes[:2], number_format(formats[0])
    if not isinstance(weights, list) or not all(
        is_shape(dims) and is_plausible(dims) for dims in [data, *weights]
    ):
        return None
    matrices = [math.prod(dims) for dims in weights if len(dims) == 2]
    if len(data) != 3 or not matrices or number not in NUMBER_BYTES or not math.prod(data):
        return None
    steps, times = data[0] * data[1], RECURRENT[operator]
    moved = times * (2 * math.prod(data) + sum(matrices)) * NUMBER_BYTES[number]
    return Cost(OperatorKind.RECURRENT, number, 2 * times * steps * sum(matrices), moved, ())


def _streamed(operator: str, inputs: Inputs) -> Cost | None:
    sizes = [inputs.bytes_of(i) for i in range(len(inputs.shapes))]
    known = [i for i, dims in enumerate(inputs.shapes) if dims]
    if not known or any(inputs.types[i : i + 1] == [""] or not sizes[i] for i in known):
        return None
    moved = sum(sizes) + round(max(sizes) * (streamed_times(operator) or 0))
    return Cost(OperatorKind.STREAMED, inputs.types[known[0]], 0, moved, ())


_COSTS: dict[OperatorKind, Callable[[str, Inputs], Cost | None]] = {
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
    matmul = np.array([name in MATMUL_FACTORS for name in events.names] or [False], np.bool_)
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
