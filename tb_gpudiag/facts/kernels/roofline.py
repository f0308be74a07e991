"""Matmuls against the roofline: what they compute and move, by the shapes that operators recorded, and the
time that this takes at the device's stated peaks."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.matmuls import matrices
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.trace.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.trace.vocabulary.operators import HALF_PRECISION, MATMUL_FACTORS, NUMBER_BYTES


@dataclass(frozen=True)
class Matmul:
    """All calls of one operator with the same shapes, on one device over the step window."""

    operator: str
    shapes: str  # of the inputs, as JSON
    number: str  # number format, as PyTorch names it
    calls: int
    time_ns: int  # of all kernels that the calls launched
    operations: int  # multiplications and additions of all calls
    bytes: int  # each factor read once, the result written once
    arithmetic_ns: float  # time of the operations at the stated peak
    memory_ns: float  # time of the bytes at the stated bandwidth

    @property
    def least_ns(self) -> float:
        return max(self.arithmetic_ns, self.memory_ns)

    @property
    def reached(self) -> float:
        """Share of the roofline: the least possible time divided by the time that it took."""
        return self.least_ns / self.time_ns if self.time_ns else 0.0


@dataclass(frozen=True)
class Roofline:
    matmuls: list[Matmul]  # most time first
    matmul: Int64  # shape (k,) over Kernels: index into matmuls, or NONE


def roofline(kernels: Kernels, host: Host, peaks: Peaks) -> Roofline:
    """Compare matmuls in FP32, FP16 and bf16 whose shapes and number formats were recorded with the
    roofline."""
    events = host.events
    operator = kernels.operators(host)
    known = np.flatnonzero(operator != NONE)
    known = known[(events.shapes[operator[known]] != NONE) & (events.types[operator[known]] != NONE)]
    called = operator[known]
    keys, member = np.unique(
        np.stack([events.name[called], events.shapes[called], events.types[called]]),
        axis=1,
        return_inverse=True,
    )
    member = member.reshape(-1)
    duration = kernels.duration_ns[known]
    found: list[tuple[Matmul, int]] = []
    for number in range(keys.shape[1]):
        own = member == number
        name, shape, kind = (int(i) for i in keys[:, number])
        matmul = _matmul(
            events.names[name],
            events.input_shapes[shape],
            events.input_types[kind],
            len(np.unique(called[own])),
            int(duration[own].sum()),
            _arithmetic(kernels, known[own]),
            peaks,
        )
        if matmul is not None:
            found.append((matmul, number))
    found.sort(key=lambda pair: -pair[0].time_ns)
    place = np.full(keys.shape[1], NONE, np.int64)
    for index, (_, number) in enumerate(found):
        place[number] = index
    of_kernel = np.full(len(operator), NONE, np.int64)
    of_kernel[known] = place[member]
    return Roofline([matmul for matmul, _ in found], of_kernel)


def _arithmetic(kernels: Kernels, own: Int64) -> Arithmetic:
    """Return what multiplies in the kernels that take most of the time."""
    time = np.bincount(kernels.arithmetic[own], weights=kernels.duration_ns[own], minlength=len(Arithmetic))
    return Arithmetic(int(time.argmax()))


def _matmul(
    operator: str, shapes: str, types: str, calls: int, time_ns: int, arithmetic: Arithmetic, peaks: Peaks
) -> Matmul | None:
    """Return None if the shapes are not those of a matmul, or the number format is another one."""
    if operator not in MATMUL_FACTORS or not time_ns:
        return None
    skipped, transposed = MATMUL_FACTORS[operator]
    sizes = _sizes(shapes, skipped, transposed)
    number = _number(types, skipped)
    if sizes is None or number is None:
        return None
    batch, rows, inner, columns = sizes
    operations = 2 * batch * rows * inner * columns * calls
    moved = NUMBER_BYTES[number] * batch * (rows * inner + inner * columns + rows * columns) * calls
    peak = _peak(number, arithmetic, operations, time_ns, peaks)
    return Matmul(
        operator,
        shapes,
        number,
        calls,
        time_ns,
        operations,
        moved,
        operations / (peak * 1e3),  # TFLOP/s are 1,000 operations a nanosecond
        moved / (peaks.bandwidth * 1e3),
    )


def _sizes(shapes: str, skipped: int, transposed: bool) -> tuple[int, int, int, int] | None:
    """Parse batch, rows, inner size and columns; return None if the shapes are not those of a matmul."""
    try:
        inputs = json.loads(shapes)
    except (ValueError, RecursionError):
        return None
    if not isinstance(inputs, list):
        return None
    pair = matrices(json.dumps(inputs[skipped : skipped + 2]))
    if len(pair) != 2:
        return None
    left, right = pair
    *before, rows, inner = left
    deep, columns = (right[-1], right[-2]) if transposed else (right[-2], right[-1])
    batch = 1
    for size in before:
        batch *= size
    if deep != inner or (not transposed and right[:-2] != before) or not batch * rows * inner * columns:
        return None
    if transposed:  # a layer's weights are read once for the whole batch
        return 1, batch * rows, inner, columns
    return batch, rows, inner, columns


def _number(types: str, skipped: int) -> str | None:
    try:
        inputs = json.loads(types)
    except (ValueError, RecursionError):
        return None
    if not isinstance(inputs, list) or len(inputs) < skipped + 2:
        return None
    first, second = inputs[skipped : skipped + 2]
    return first if isinstance(first, str) and first == second and first in NUMBER_BYTES else None


def _peak(number: str, arithmetic: Arithmetic, operations: int, time_ns: int, peaks: Peaks) -> float:
    """Return the peak in TFLOP/s. FP32 uses tensor cores as TF32 if the kernels' names or the rate say so."""
    if number in HALF_PRECISION:
        return peaks.half
    slow = arithmetic != Arithmetic.TENSOR_CORES and operations / (time_ns * 1e3) <= peaks.fp32
    return peaks.fp32 if slow or not peaks.tf32 else peaks.tf32
