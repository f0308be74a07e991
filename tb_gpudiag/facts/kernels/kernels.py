"""Kernels: one device's GPU work, with what the kernels' names say; what moves data; unfused attention; and
time by module, in graphs as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from enum import IntEnum
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Float32, Int32, Int64, UInt8, summed
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals, ShownRanges, Window, longest, places_of_each, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import kernel_names, operators
from tb_gpudiag.vocabulary.collective_kinds import FSDP_HOOK
from tb_gpudiag.vocabulary.kernel_families import MATRIX_FAMILIES, Arithmetic, Family
from tb_gpudiag.vocabulary.kernel_names import CHANNELS_FIRST, LAYOUT_KERNEL, TF32_ROUNDING, read_names
from tb_gpudiag.vocabulary.marks import module_name, without_numbers
from tb_gpudiag.vocabulary.operators import BATCHED_MATMUL
from tb_gpudiag.vocabulary.recorded import Category


@dataclass(frozen=True)
class FamilyTime:
    """One family on one device, over the step window."""

    family: Family
    time_ns: int  # sum of durations: of kernels that overlap, each one counts
    covered_ns: int  # time in which at least one of them ran
    kernels: int
    tensor_core_ns: int  # of time_ns: on tensor cores, as far as the names say
    ranges: ShownRanges  # its longest kernels


class Kernels:
    """One device's GPU work in the step window, in order of start. Shape (k,) each.

    Spans are clipped to the window. Copies and memsets are of the family COPY.
    """

    def __init__(self, work: Int64, window: Window, joined: Work, multiprocessors: int) -> None:
        """work: the device's. joined: of all devices with its launches. multiprocessors: 0 if not known."""
        events = joined.events
        start, end = events.start_ns[work], events.end_ns[work]
        inside = (end > window.start_ns) & (start < window.end_ns)
        self.device = int(events.device[work[0]]) if len(work) else NONE
        self.event = work[inside]
        self.start_ns: Int64 = np.maximum(start[inside], window.start_ns)
        self.end_ns: Int64 = np.minimum(end[inside], window.end_ns)
        number, name = np.unique(events.name[self.event], return_inverse=True)
        self._names, self._name = [events.names[i] for i in number], name
        read = read_names(self._names)
        copies = events.category[self.event] != Category.KERNEL
        self.is_kernel: Bool = ~copies
        self.stream: Int32 = events.stream[self.event]
        place = np.searchsorted(joined.event, self.event)
        # Shape (k,): the host call that launched each, else the operator that it names, or NONE.
        self.origin: Int64 = joined.origin[place]
        # Shape (k,): blocks of the grid, NaN where blocks_per_sm was recorded instead, and where neither was.
        # A launch call says for certain whether its grid is in blocks or in threads.
        launch = joined.launch[place]
        # Shape (k,): the launch of the graph that each is in, or NONE; and when each was launched, or NONE.
        self.replay: Int64 = np.where(joined.in_graph[place], launch, NONE)
        self.launched_ns: Int64 = np.where(launch == NONE, NONE, events.start_ns[launch])
        launched = np.where(launch == NONE, np.float32(np.nan), events.blocks[launch])
        self.blocks: Float32 = np.where(np.isnan(launched), events.blocks[self.event], launched)
        recorded = events.blocks_per_sm[self.event]
        derived = self.blocks / np.float32(multiprocessors) if multiprocessors else recorded
        self.blocks_per_sm: Float32 = np.where(np.isnan(recorded), derived, recorded)
        self.warps_per_block: UInt8 = events.warps_per_block[self.event]
        self.registers: UInt8 = events.registers[self.event]
        self.shared_bytes: Int32 = events.shared_bytes[self.event]
        family = _column([r.family for r in read], name)
        self.family: UInt8 = np.where(copies, np.uint8(Family.COPY), family)
        # Whether there are convolutions: their own kernels, or a library's changes of layout around them.
        self.convolves = any(r.family == Family.CONVOLUTION for r in read) or bool(
            events.matcher.matches_some(LAYOUT_KERNEL, number.astype(np.int64)).any()
        )
        self.arithmetic: UInt8 = _column([r.arithmetic for r in read], name)
        self.arithmetic[copies] = Arithmetic.UNKNOWN
        self.unaligned: Bool = _column([r.unaligned for r in read], name).astype(np.bool_) & ~copies
        # Tensile's kernels for any size: whether rows are aligned, their sizes say.
        self.any_size: Bool = _column([r.any_size for r in read], name).astype(np.bool_) & ~copies
        self.tf32: Bool = _column([r.tf32 for r in read], name).astype(np.bool_) & ~copies
        # Mixed precision would halve the bytes that they move.
        self.shortens: Bool = _column([r.shortens for r in read], name).astype(np.bool_) & ~copies
        self.vector: Bool = _column([r.vector for r in read], name).astype(np.bool_) & ~copies
        self.small_weights: Bool = _column([r.small_weights for r in read], name).astype(np.bool_) & ~copies
        self.softmax: Bool = _column([r.softmax for r in read], name).astype(np.bool_) & ~copies

    @property
    def duration_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    def with_origin(self, origin: Int64) -> Kernels:
        """Return the same kernels with other origins, shape (k,)."""
        found = copy(self)
        found.origin = origin
        return found

    def operators(self, host: Host) -> Int64:
        """Return the operator that launched each, or NONE, shape (k,)."""
        return np.where(self.origin == NONE, NONE, host.operator[self.origin])

    @cached_property
    def matrix(self) -> Bool:
        """Mask of matmuls, convolutions and attention."""
        return np.isin(self.family, np.array(MATRIX_FAMILIES, np.uint8))

    @cached_property
    def largest(self) -> tuple[str, int]:
        """The name of the computing kernel whose calls take most time, and how long at least one of them ran;
        "" and 0 without kernels."""
        computes = self.is_kernel & (self.family != Family.COLLECTIVE)
        time_ns = np.bincount(self._name, self.duration_ns * computes, len(self._names))
        if not time_ns.any():
            return "", 0
        most = int(time_ns.argmax())
        return self._names[most], self.union(self._name == most).total

    def union(self, chosen: Bool) -> Intervals:
        """Return when at least one of the chosen ran."""
        return union(self.start_ns[chosen], self.end_ns[chosen])

    def by_family(self) -> list[FamilyTime]:
        """Return the families that occur, most time first."""
        duration = self.duration_ns
        tensor = self.arithmetic == Arithmetic.TENSOR_CORES
        found = []
        for family in Family:
            own = self.family == family
            if own.any():
                found.append(
                    FamilyTime(
                        family,
                        int(duration[own].sum()),
                        self.union(own).total,
                        int(own.sum()),
                        int(duration[own & tensor].sum()),
                        longest(self.start_ns[own], self.end_ns[own], self.device),
                    )
                )
        return sorted(found, key=lambda f: -f.time_ns)

    @cached_property
    def fp64(self) -> Bool:
        """Mask of kernels that compute with 64-bit numbers."""
        return self.arithmetic == Arithmetic.FP64


def _column(values: Sequence[int], name: Int64) -> UInt8:
    return np.array(values, np.uint8)[name]


class Move(IntEnum):
    """Kinds of data movement. Of nested operators, the first kind in this order is the purpose."""

    CAST = 0  # to another number format
    LAYOUT = 1  # the same numbers in another order, or made contiguous
    COPY = 2  # into another tensor


_OPERATORS = (
    (Move.CAST, operators.CAST),
    (Move.LAYOUT, operators.LAYOUT_CHANGE),
    (Move.COPY, operators.COPY),
)


def find_moves(kernels: Kernels, host: Host) -> Int64:
    """Return the Move of each of the kernels, or NONE, shape (k,). Copies from and to the host are NONE."""
    events = host.events
    operator = kernels.operators(host)
    found = np.full(len(operator), NONE, np.int64)
    here = kernels.is_kernel | match_some(events, kernel_names.ON_DEVICE, kernels.event)
    here &= (operator != NONE) & match_some(events, operators.DATA_MOVER, operator)
    if here.any():
        found[here] = moves_of(host, operator[here])
        # A copy by the copy engine moves bytes as they are: both tensors have the same format and layout.
        found[(found != NONE) & ~kernels.is_kernel] = Move.COPY
    found[kernels.is_kernel & match_some(events, LAYOUT_KERNEL, kernels.event)] = Move.LAYOUT
    found[of_rounding(kernels, host)] = Move.CAST
    return found


def of_rounding(kernels: Kernels, host: Host) -> Bool:
    """Mask of the kernels with which cuDNN rounds a convolution's inputs to TF32, shape (k,)."""
    return kernels.is_kernel & match_some(host.events, TF32_ROUNDING, kernels.event)


def of_channels_first(kernels: Kernels, host: Host) -> Bool:
    """Mask of the kernels with which cuDNN changes the layout of channels-first tensors, shape (k,)."""
    return kernels.is_kernel & match_some(host.events, CHANNELS_FIRST, kernels.event)


def _of_fsdp(host: Host) -> Bool:
    """Mask of the events in FSDP's own work, shape (n,)."""
    return host.tree.under(match(host.events, FSDP_HOOK))


def moves_of(host: Host, operator: Int64) -> Int64:
    """Return the Move of operators, or NONE, shape (k,). FSDP copies what it sends: no fix is the user's."""
    found = np.full(len(operator), NONE, np.int64)
    here = (operator != NONE) & match_some(host.events, operators.DATA_MOVER, operator)
    here &= ~_of_fsdp(host)[operator]
    if here.any():
        found[here] = host.purpose(_OPERATORS, len(Move))[0][operator[here]]
    return np.where(found == len(Move), NONE, found)


def cpu_moves_of(host: Host, operator: Int64) -> Int64:
    """Return the Move of operators on a CPU, where joining tensors is copying, or NONE, shape (k,)."""
    joins = (operator != NONE) & match_some(host.events, operators.JOINER, operator)
    joins &= ~_of_fsdp(host)[operator]
    return np.where(joins, Move.COPY, moves_of(host, operator))


# Scale, mask, cast, dropout and so on, between the softmax and each matmul.
_MOST_BETWEEN = 8


@dataclass(frozen=True, eq=False)
class UnfusedAttention:
    """Unfused attention on one device over the step window."""

    softmax: Int64  # events: one for each time that attention ran, forward or backward
    matmuls: Bool  # mask over Kernels, shape (k,): the two around each softmax
    between: Bool  # mask over Kernels, shape (k,): from one matmul to the other; fusing removes them


def unfused_attention(kernels: Kernels, host: Host) -> UnfusedAttention:
    """Find unfused attention.

    Only matmuls that operators for batches launched count: a classifier's softmax is between others. Kernels
    of a graph have no operator, so none is found there.
    """
    events = host.events
    between = np.zeros(len(kernels.event), np.bool_)
    matmuls = np.zeros(len(kernels.event), np.bool_)
    found = [np.zeros(0, np.int64)]
    operator = kernels.operators(host)
    batched = (kernels.family == Family.GEMM) & (operator != NONE)
    batched &= match(host.events, BATCHED_MATMUL)[operator]
    for _, own in places_of_each(events.stream[kernels.event]):
        if not kernels.softmax[own].any():
            continue
        matmul = np.flatnonzero(kernels.matrix[own] | (kernels.family[own] == Family.COLLECTIVE))
        at = np.flatnonzero(kernels.softmax[own])
        after = np.searchsorted(matmul, at)
        inner = (after > 0) & (after < len(matmul))
        at, after = at[inner], after[inner]
        first, second = matmul[after - 1], matmul[after]
        fits = batched[own[first]] & batched[own[second]]
        fits &= (at - first <= _MOST_BETWEEN) & (second - at <= _MOST_BETWEEN)
        at, first, second = at[fits], first[fits], second[fits]
        found.append(kernels.event[own[at]])
        matmuls[own[first]] = matmuls[own[second]] = True
        # +1 after each first matmul, -1 at each second one: the sum is above 0 between them.
        marks = summed(first + 1, 1, len(own) + 1)
        np.add.at(marks, second, -1)
        between[own[np.cumsum(marks)[:-1] > 0]] = True
    return UnfusedAttention(np.concatenate(found), matmuls, between)


@dataclass(frozen=True)
class ModuleTime:
    """Modules whose names differ in their numbers only, such as the layers of a model.

    module: their name with `*` for each number; "" for work outside of modules. modules: how many they are.
    time_ns: sum of durations.
    """

    module: str
    modules: int
    kernels: int
    time_ns: int


def by_module(kernels: Kernels, host: Host) -> list[ModuleTime]:
    """Return the time of a device's work by module, most time first; empty where no work has a module.

    Work of a CUDA graph has the module that its annotation names (torch.cuda.graph_annotations), other work
    the innermost nn.Module around the call that launched it. host: whose events the kernels' origins are.
    """
    events = host.events
    names = [module_name(name) for name in events.names]
    around = np.append(host.names(host.module), NONE)[kernels.origin]
    annotated = events.annotation[kernels.event].astype(np.int64)
    code = np.where(annotated == NONE, around, annotated + len(names))
    found, member = np.unique(code, return_inverse=True)
    texts = [*names, *events.annotations, ""]  # NONE is the last one
    of_pattern: dict[str, list[int]] = {}
    for place, i in enumerate(found.tolist()):
        of_pattern.setdefault(without_numbers(texts[i]), []).append(place)
    time_ns = np.bincount(member, kernels.duration_ns, len(found)).astype(np.int64)
    count = np.bincount(member, minlength=len(found))
    rows = [
        ModuleTime(pattern, len(places), int(count[places].sum()), int(time_ns[places].sum()))
        for pattern, places in of_pattern.items()
    ]
    named = any(row.module for row in rows)
    return sorted(rows, key=lambda row: -row.time_ns) if named else []
