"""Model FLOPs utilization (MFU): what of a device's stated peak its matmuls reach over the step window, and
where the rest of the peak goes.

The window at the peak of the reference format is the whole: the format that most FLOPs are computed in. Time
in which nothing computes is lost. Of the time of a matmul, convolution or attention, the part that its
arithmetic takes at that peak is used (at its own peak, if that is higher: no operator uses more than its
time). What is beyond the operator's own roofline is low efficiency. Kernels that run at once share time.

FLOPs are what torch.utils.flop_counter counts (multiplications and additions of matmuls, convolutions and
attention), but half as many for causal attention: its kernels skip the other half.
"""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float64, Int64, mask_of
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.ledger import GpuTime
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.roofline import Roofline
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.operators import ATEN
from tb_gpudiag.vocabulary.recorded import Category, LabeledEnum
from tb_gpudiag.vocabulary.shaped_operators import MAY_MULTIPLY

# Operators of unknown FLOPs that are named.
_NAMED = 2


class PeakPart(LabeledEnum):
    """Parts of a window at the peak, from what is lost first to what is used."""

    IDLE = 0
    COMMUNICATING = 1  # nothing computed meanwhile
    COPYING = 2  # likewise
    MEMORY_BOUND = 3  # elementwise kernels and the like, and what memory bandwidth costs matmuls
    LOW_EFFICIENCY = 4  # time of matmuls beyond their roofline
    DATA_TYPE = 5  # what matmuls in slower formats than the reference take longer at their own peak
    UNKNOWN = 6  # kernels of unknown FLOPs, and work that the trace lacks
    RECOMPUTED = 7  # arithmetic that backward repeated
    MODEL = 8  # arithmetic that the model needs: the MFU


class Missing(LabeledEnum):
    """Why there is no MFU."""

    NOTHING = 0
    MATMULS = 1  # nothing multiplies matrices
    SHAPES = 2  # the inputs of operators were not recorded
    FLOPS = 3  # kernels of unknown FLOPs take longer than those of known FLOPs
    PEAK = 4  # the trace does not say which GPU it is, or it has no stated peaks


@dataclass(frozen=True)
class Mfu:
    """One device over the step window.

    parts_ns: time of each PeakPart; they add up to window_ns. Empty if something is missing.
    computes_in, peak: the reference format, such as BF16, and its stated peak in TFLOP/s.
    operations: known FLOPs of the model.
    recomputing_ns: time of all kernels of forward passes that ran again, memory-bound ones included.
    above_peak_ns: how much more time the arithmetic would take at the peak than it took.
    by_step: MFU of each step.
    unknown_ns: time of kernels that may compute unknown FLOPs, and of work that the trace lacks. unknown: the
    operators or kernels that take most of it.
    """

    missing: Missing
    window_ns: int
    operations: float
    recomputing_ns: float
    unknown_ns: float
    unknown: tuple[str, ...]
    parts_ns: dict[PeakPart, float] = field(default_factory=dict)
    computes_in: str = ""
    peak: float = 0.0
    above_peak_ns: float = 0.0
    by_step: tuple[float, ...] = ()

    def share(self, *parts: PeakPart) -> float:
        """Share of the window that these parts take."""
        return sum(self.parts_ns.get(part, 0.0) for part in parts) / max(1, self.window_ns)


def find_mfu(
    kernels: Kernels,
    time: GpuTime,
    window: Window,
    host: Host,
    roofline: Roofline,
    communication: Bool,
    recomputed: Bool,
    borders_ns: Int64,
) -> Mfu:
    """Account for a device's peak. kernels, roofline: the device's, in the window. communication: mask of
    communication kernels, shape (n,). recomputed: see there. borders_ns: of the steps in the
    window, shape (s + 1,)."""
    # What counts as computing: see ledger.Busy.
    computes = (host.events.category[kernels.event] != Category.MEMCPY) & ~communication[kernels.event]
    time_ns = shared_ns(kernels.start_ns, kernels.end_ns, computes)
    operator = kernels.operators(host)
    known, unknown = _known(kernels, host, operator, roofline)
    of_operator = np.zeros(len(roofline.operators))
    np.add.at(of_operator, roofline.operator[known], time_ns[known])
    used = _Used(roofline, of_operator)
    idle_ns = time.ledger.by_cause(window)
    lacking_ns = idle_ns.pop(Cause.UNRECORDED, 0)
    unknown_ns = float(time_ns[unknown].sum()) + lacking_ns
    again = (operator != NONE) & recomputed[operator]
    found = Mfu(
        Missing.NOTHING,
        window.duration_ns,
        float((used.operations * (1 - used.again)).sum()),
        float(time_ns[again].sum()),
        unknown_ns,
        _most_of(kernels, host, operator, np.where(unknown, time_ns, 0)),
    )
    missing = _missing(host, used, unknown_ns, has_matmuls=bool((kernels.matrix & (time_ns > 0)).any()))
    if missing or roofline.peaks is None:
        return replace(found, missing=missing or Missing.PEAK)
    computes_in, peak = used.reference()
    account = time.of_window(window)
    parts_ns = {
        PeakPart.IDLE: float(sum(idle_ns.values())),
        PeakPart.COMMUNICATING: float(account.communicating_ns.sum()),
        PeakPart.COPYING: float(account.copying_ns.sum()),
        PeakPart.MEMORY_BOUND: float(time_ns[~known & ~unknown].sum()),
        PeakPart.UNKNOWN: unknown_ns,
    }
    for part, of_operators in used.split(peak).items():
        parts_ns[part] = parts_ns.get(part, 0.0) + float(of_operators.sum())
    return replace(
        found,
        parts_ns={part: parts_ns[part] for part in PeakPart},
        computes_in=computes_in,
        peak=peak,
        above_peak_ns=used.above_peak_ns(peak),
        by_step=_by_step(kernels, time_ns * used.model_share(peak)[roofline.operator], borders_ns),
    )


def _known(kernels: Kernels, host: Host, operator: Int64, roofline: Roofline) -> tuple[Bool, Bool]:
    """Masks of the kernels of operators with known FLOPs, and of those that may compute unknown ones, shape
    (k,) each. The others are memory-bound. operator: see Kernels.operators."""
    has_flops = np.array([*(found.operations > 0 for found in roofline.operators), False])
    known = has_flops[roofline.operator]
    plain = match(host.events, ATEN) & ~match(host.events, MAY_MULTIPLY)
    of_torch = (operator != NONE) & plain[operator]
    may_compute = kernels.matrix | ((kernels.family == Family.OTHER) & ~of_torch)
    return known, ~known & may_compute


def _most_of(kernels: Kernels, host: Host, operator: Int64, time_ns: Float64) -> tuple[str, ...]:
    """Name the operators, or else kernels, that take most of this time."""
    events = host.events
    launched_by = np.where(operator == NONE, kernels.event, operator)
    total = np.zeros(len(events.names))
    np.add.at(total, events.name[launched_by], time_ns)
    return tuple(events.names[i] for i in np.argsort(-total)[:_NAMED] if total[i] > 0)


def _by_step(kernels: Kernels, model_ns: Float64, borders_ns: Int64) -> tuple[float, ...]:
    """MFU of each step. model_ns: time at the peak of each kernel's model FLOPs, shape (k,)."""
    if len(borders_ns) < 2:
        return ()
    step = np.clip(np.searchsorted(borders_ns, kernels.start_ns, side="right") - 1, 0, len(borders_ns) - 2)
    total = np.bincount(step, model_ns, len(borders_ns) - 1)
    # A kernel that crosses a border counts for the step that it begins in.
    return tuple(np.minimum(total / np.diff(borders_ns), 1.0).tolist())


def _missing(host: Host, used: _Used, unknown_ns: float, *, has_matmuls: bool) -> Missing:
    known_ns = used.time_ns.sum()
    if not known_ns and not has_matmuls and unknown_ns == 0:
        return Missing.MATMULS
    if unknown_ns <= known_ns:
        return Missing.NOTHING
    return Missing.FLOPS if (host.events.shapes != NONE).any() else Missing.SHAPES


def shared_ns(start_ns: Int64, end_ns: Int64, chosen: Bool) -> Float64:
    """Return the time of each chosen span, shared evenly where several run at once; 0 for the others.

    Shape (k,). It adds up to the time in which at least one of the chosen ran."""
    start_ns, end_ns = np.where(chosen, start_ns, 0), np.where(chosen, end_ns, 0)
    times, place = np.unique(np.r_[start_ns, end_ns], return_inverse=True)
    number = len(start_ns)
    change = np.bincount(place[:number], minlength=len(times)) - np.bincount(
        place[number:], minlength=len(times)
    )
    running = np.maximum(np.cumsum(change)[:-1], 1)
    before = np.r_[0.0, np.cumsum(np.diff(times) / running)]
    shared: Float64 = before[place[number:]] - before[place[:number]]
    return shared


class _Used:
    """Operators with their time, of kernels that share the device. Shape (o,) each.

    operations: of all calls. again: share of the calls that backward repeated.
    """

    def __init__(self, roofline: Roofline, time_ns: Float64) -> None:
        found = roofline.operators
        self._found = found
        self.time_ns = time_ns
        self.operations = np.array([float(of.operations) for of in found])
        self.again = np.array([of.recomputed / of.calls for of in found])
        self._arithmetic_ns = np.array([of.arithmetic_ns for of in found])
        self._memory_ns = np.array([of.memory_ns for of in found])

    def reference(self) -> tuple[str, float]:
        """Return the format that most FLOPs are computed in, and its peak in TFLOP/s."""
        by_format: dict[tuple[str, float], float] = {}
        for of in self._found:
            if of.operations:
                key = of.computes_in, round(of.operations / of.arithmetic_ns / 1e3, 3)
                by_format[key] = by_format.get(key, 0.0) + of.operations
        return max(by_format, key=lambda key: by_format[key])

    def split(self, peak: float) -> dict[PeakPart, Float64]:
        """Split the time of the operators with known FLOPs, in ns at this peak in TFLOP/s."""
        arithmetic_ns = np.minimum(self._at_peak_ns(peak), self.time_ns)
        slower_ns = np.minimum(self._arithmetic_ns, self.time_ns) - arithmetic_ns
        left_ns = self.time_ns - arithmetic_ns - slower_ns
        memory_ns = np.clip(self._memory_ns - self._arithmetic_ns, 0, left_ns)
        return {
            PeakPart.MODEL: arithmetic_ns * (1 - self.again),
            PeakPart.RECOMPUTED: arithmetic_ns * self.again,
            PeakPart.DATA_TYPE: slower_ns,
            PeakPart.MEMORY_BOUND: memory_ns,
            PeakPart.LOW_EFFICIENCY: left_ns - memory_ns,
        }

    def model_share(self, peak: float) -> Float64:
        """Share of each operator's time that its model FLOPs take at the peak. The last is 0, for NONE."""
        model_ns = self.split(peak)[PeakPart.MODEL]
        return np.r_[model_ns / np.maximum(self.time_ns, 1.0), 0.0]

    def above_peak_ns(self, peak: float) -> float:
        """How much longer the arithmetic would take at the peak than it took."""
        return float(np.maximum(self._at_peak_ns(peak) - self.time_ns, 0).sum())

    def _at_peak_ns(self, peak: float) -> Float64:
        """Time of the arithmetic at this peak, or at the operator's own if that is higher."""
        return np.minimum(self.operations / (peak * 1e3), self._arithmetic_ns)


def recomputed(host: Host) -> Bool:
    """Mask of the events in forward passes that ran again inside of backward, shape (n,).

    Backward runs without gradients, and only an operator that runs with gradients has a sequence number of
    its own. With `create_graph=True` backward itself runs with gradients, but what its nodes call is not what
    the forward pass called. Inside of compiled code no operator shows what is recomputed.
    """
    events, tree = host.events, host.tree
    operator = events.category == Category.CPU_OP
    again = operator & (events.sequence != NONE) & (events.forward_thread <= 0) & host.in_backward
    if not again.any():
        return again
    outer = np.flatnonzero(tree.outermost_of(again))
    # What the forward pass called itself, and not one of torch's operators for it.
    forward = np.flatnonzero(operator & ~host.in_backward)
    caller = np.where(tree.parent[forward] == NONE, NONE, host.operator[tree.parent[forward]])
    forward = forward[(caller == NONE) | ~match(events, ATEN)[caller]]
    known = np.isin(_calls(events)[outer], _calls(events)[forward])
    nodes, node = np.unique(host.backward_node[outer], return_inverse=True)
    # Most, because hooks may run operators of their own.
    mostly = np.bincount(node, known, len(nodes)) > np.bincount(node, minlength=len(nodes)) / 2
    return tree.under(mask_of(outer[mostly[node]], len(events)))


def _calls(events: Events) -> Int64:
    """Number of each event's name and shapes, shape (n,)."""
    return events.name.astype(np.int64) * (len(events.input_shapes) + 1) + events.shapes + 1
