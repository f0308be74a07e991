"""Operators against the roofline: the time that their arithmetic and their bytes take at the device's stated
peaks, compared with the time of their kernels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.operator_costs import Cost, OperatorKind, in_order, operator_cost
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.kernel_families import Arithmetic
from tb_gpudiag.vocabulary.operators import EIGHT_BITS
from tb_gpudiag.vocabulary.shaped_operators import PACKED_ATTENTION


@dataclass(frozen=True)
class OperatorTime:
    """All calls of one operator with the same inputs, on one device over the step window.

    operations, bytes: of all calls. arithmetic_ns, memory_ns: time of all calls at the stated peaks; 0 if the
    peaks are not known. sizes: see Cost. in_order: see operator_costs; None also if it differs between calls.
    recomputed: of the calls, those in a forward pass that ran again. computes_in: the format whose peak
    holds, such as TF32.
    """

    operator: str
    shapes: str  # of the inputs, as JSON
    number: str  # number format
    kind: OperatorKind
    calls: int
    time_ns: int  # of all kernels that the calls launched
    operations: int
    bytes: int
    arithmetic_ns: float
    memory_ns: float
    sizes: tuple[int, ...]
    computes_in: str
    recomputed: int = 0
    in_order: bool | None = None

    @property
    def least_ns(self) -> float:
        return max(self.arithmetic_ns, self.memory_ns)

    @property
    def reached(self) -> float:
        """Share of the roofline: the least possible time divided by the time that it took."""
        return self.least_ns / max(1, self.time_ns)


@dataclass(frozen=True, eq=False)
class Roofline:
    """peaks: None if the trace does not say which GPU it is."""

    operators: list[OperatorTime]  # most time first
    operator: Int64  # shape (k,) over Kernels: index into operators, or NONE
    peaks: Peaks | None

    def of(self, *kinds: OperatorKind) -> list[OperatorTime]:
        """Return the operators of these kinds, most time first."""
        return [found for found in self.operators if found.kind in kinds]

    def kernels_of(self, chosen: Collection[OperatorTime]) -> Bool:
        """Mask of the kernels that these operators launched, shape (k,)."""
        own = {id(found) for found in chosen}
        places = [i for i, found in enumerate(self.operators) if id(found) in own]
        return np.isin(self.operator, np.array(places, np.int64))


def roofline(
    kernels: Kernels, host: Host, peaks: Peaks | None, recomputed: Bool, lengths: tuple[Int64, list[str]]
) -> Roofline:
    """Compare operators whose inputs were recorded with the roofline. recomputed: see mfu.py. lengths: of
    packed sequences, as an index of each kernel (NONE where unknown) into settings for operator_cost."""
    events = host.events
    operator = kernels.operators(host)
    known = np.flatnonzero((operator != NONE) & kernels.is_kernel)  # copies run at another bandwidth
    known = known[(events.shapes[operator[known]] != NONE) & (events.types[operator[known]] != NONE)]
    # A call that was captured runs with each launch of the graph.
    runs = operator[known] * (len(events) + 1) + kernels.replay[known] + 1
    _, first, call = np.unique(runs, return_index=True, return_inverse=True)
    called, length = operator[known][first], lengths[0][known][first]
    settings = [*events.input_settings, *lengths[1], ""]  # NONE is the last one
    length = np.where(length == NONE, NONE, length + len(events.input_settings))
    setting = np.where(match(events, PACKED_ATTENTION)[called], length, events.settings[called])
    keys, group = np.unique(
        np.stack([events.name[called], events.shapes[called], events.types[called], setting]),
        axis=1,
        return_inverse=True,
    )
    group = group.reshape(-1)
    member = group[call.reshape(-1)]
    number = keys.shape[1]
    duration = kernels.duration_ns[known]
    calls = np.bincount(group, minlength=number)
    time = np.bincount(member, weights=duration, minlength=number)
    # What computes in the kernels that take most of the time.
    by_unit = np.zeros((number, len(Arithmetic)))
    np.add.at(by_unit, (member, kernels.arithmetic[known]), duration)
    ordered = _in_order(events, group, called, number)
    call_ns = np.bincount(call.reshape(-1), weights=duration)
    keys[3, _unlike(call_ns, group, calls) & (keys[3] >= len(events.input_settings))] = NONE
    again = np.bincount(group, recomputed[called], number)
    found: list[tuple[OperatorTime, int]] = []
    for place in range(number):
        name, shape, kind, own_setting = (int(i) for i in keys[:, place])
        texts = (events.names[name], events.input_shapes[shape], events.input_types[kind])
        cost = operator_cost(*texts, settings[own_setting])
        if cost is not None and time[place]:
            unit = Arithmetic(int(by_unit[place].argmax()))
            one = _measured(texts[:2], cost, int(calls[place]), int(time[place]), unit, peaks)
            found.append((replace(one, in_order=ordered[place], recomputed=int(again[place])), place))
    found.sort(key=lambda pair: -pair[0].time_ns)
    index = np.full(number, NONE, np.int64)
    index[[place for _, place in found]] = np.arange(len(found))
    of_kernel = np.full(len(operator), NONE, np.int64)
    of_kernel[known] = index[member]
    return Roofline([measured for measured, _ in found], of_kernel, peaks)


def _unlike(call_ns: Float64 | Int64, group: Int64, calls: Int64) -> Bool:
    """Mask of the groups whose slow quarter of calls takes over twice as long as the fast one: some of the
    layers look at a window of the keys only, which no mark says."""
    ordered = call_ns[np.lexsort((call_ns, group))]
    start = np.cumsum(calls) - calls
    found: Bool = ordered[start + 3 * calls // 4] > 2 * ordered[start + calls // 4]
    return found


def _in_order(events: Events, group: Int64, called: Int64, number: int) -> list[bool | None]:
    """Return whether the calls of each group read their inputs in order; None if unknown or not alike."""
    found: list[set[bool | None]] = [set() for _ in range(number)]
    pairs = np.unique(np.stack([group, events.shapes[called], events.strides[called]]), axis=1)
    for place, shape, stride in pairs.T.tolist():
        found[place].add(in_order(events.input_shapes[shape], [*events.input_strides, ""][stride]))
    return [alike.pop() if len(alike) == 1 else None for alike in found]


def _measured(
    named: tuple[str, str], cost: Cost, calls: int, time_ns: int, unit: Arithmetic, peaks: Peaks | None
) -> OperatorTime:
    """Compare one operator with the peaks. named: its name and shapes. unit: what computes in its kernels."""
    operations, moved = cost.operations * calls, cost.bytes * calls
    # TFLOP/s are 1,000 operations per nanosecond.
    computes_in, peak = _peak(cost.number, unit, operations / time_ns / 1e3, peaks or _NO_PEAKS)
    return OperatorTime(
        *named,
        cost.number,
        cost.kind,
        calls,
        time_ns,
        operations,
        moved,
        operations / (peak * 1e3) if peak else 0.0,
        moved / (peaks.bandwidth * 1e3) if peaks else 0.0,
        cost.sizes,
        computes_in,
    )


_NO_PEAKS = Peaks(0, 0, 0, 0, 0, 0)


def _peak(number: str, arithmetic: Arithmetic, reached: float, peaks: Peaks) -> tuple[str, float]:
    """Return the format that the numbers are multiplied in, and its peak in TFLOP/s. FP32 uses tensor cores
    as TF32 if the kernels' names or the rate say so."""
    if number in EIGHT_BITS:
        return ("FP8", peaks.fp8) if peaks.fp8 else ("FP16", peaks.half)
    if number == "bfloat16" and peaks.bf16 == peaks.half:
        return "BF16", peaks.half
    if number == "half":
        return "FP16", peaks.half
    if number == "double":
        return "FP64", peaks.fp64
    named = arithmetic == Arithmetic.TENSOR_CORES and not peaks.matrix_fp32
    if peaks.tf32 and (named or reached > peaks.fp32):
        return "TF32", peaks.tf32
    return "FP32", peaks.fp32
