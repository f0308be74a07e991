"""Groups of calls and of GPU work: the key of each node or cell in a table, its stack, and what a filter
matches; how often each ran in a range, and for how long. What runs across the range's borders counts with
the part of its time that is inside."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64, summed
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.prepare_calls import TimeUnit
from tb_gpudiag.report.slices.prepared import Prepared, Span, read_meta, requested_span, text_at
from tb_gpudiag.vocabulary.frames import LineKind, old_call_stack, parse_frame, place_frame
from tb_gpudiag.vocabulary.marks import merged_name, module_name
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

Floats = npt.NDArray[np.float64]


class Weights(NamedTuple):
    """Shape (m,) over nodes of the call tree, (k,) over cells of GPU work. run_ns: of the
    work that the node itself launched."""

    span: Span
    calls: Int64
    host_ns: Int64
    run_ns: Int64
    cell_count: Int64
    cell_ns: Int64
    cell_least_ns: Int64
    cell_most_ns: Int64


class CallData:
    """The prepared arrays of one trace, and what is in a range of it."""

    def __init__(self, prepared: Prepared, start_us: float | None, end_us: float | None) -> None:
        self.prepared = prepared
        self.meta = read_meta(prepared, "call_meta")
        self._names: dict[int, str] = {}
        self.unit = TimeUnit(self.meta["start_ns"], self.meta["shift"])
        span = requested_span(self.meta, start_us, end_us)
        whole = span.start_ns <= span.first_ns and span.end_ns >= span.last_ns
        self.weights = self._all(span) if whole else self._within(span)

    def array(self, name: str) -> npt.NDArray[Any]:
        return np.asarray(self.prepared[name])

    def name(self, index: int) -> str:
        """Return a text of the timeline's table of strings, which has the names of events."""
        return text_at(self.prepared, "text", index)

    def text(self, index: int) -> str:
        """Return a text of the table of other strings; "" for NONE."""
        if index == NONE:
            return ""
        return text_at(self.prepared, "call_text", index)

    def node_name(self, node: int) -> str:
        """Return the name of a node's calls, or of its thread."""
        index = int(self.prepared["call_name"][node])
        if self.prepared["call_category"][node] == Category.OTHER:
            return self.text(index)
        name = self._names.get(index)
        if name is None:
            name = self._names[index] = merged_name(self.name(index))
        return name

    @cached_property
    def parents(self) -> list[int]:
        """The node above each, or NONE."""
        return self.array("call_parent").tolist()

    def _all(self, span: Span) -> Weights:
        return Weights(
            span,
            *(self.array(f"call_{name}") for name in ("count", "ns", "run_ns")),
            *(self.array(f"cell_{name}") for name in ("count", "ns", "least_ns", "most_ns")),
        )

    def _within(self, span: Span) -> Weights:
        nodes, cells = len(self.prepared["call_parent"]), len(self.prepared["cell_node"])
        inside, ns = self.overlaps("span", span)
        node = self.array("span_node")[inside]
        count = np.bincount(node, minlength=nodes)
        host_ns = np.bincount(node, ns, nodes).astype(np.int64)
        inside, ns = self.overlaps("run", span)
        cell = self.array("run_cell")[inside]
        cell_count = np.bincount(cell, minlength=cells)
        cell_ns = np.bincount(cell, ns, cells).astype(np.int64)
        least, most = np.full(cells, np.iinfo(np.int64).max), np.zeros(cells, np.int64)
        np.minimum.at(least, cell, ns)
        np.maximum.at(most, cell, ns)
        of = self.array("cell_node").astype(np.int64)
        known = of != NONE
        run_ns = np.bincount(of[known], cell_ns[known], nodes).astype(np.int64)
        return Weights(span, count, host_ns, run_ns, cell_count, cell_ns, least, most)

    def overlaps(self, kind: str, span: Span) -> tuple[Int64, Int64]:
        """Return the spans or runs that run in the range, and for how many ns of it."""
        start, end = self.array(f"{kind}_start"), self.array(f"{kind}_end")
        low, high = self.unit.units(np.array([span.start_ns, span.end_ns]))
        inside = np.flatnonzero((start < high) & ((end > low) | ((start == end) & (start >= low))))
        first, last = np.maximum(start[inside], low), np.minimum(end[inside], high)
        return inside, (last.astype(np.int64) - first.astype(np.int64)) << self.unit.shift

    def times_us(self, kind: str, index: Int64) -> list[tuple[float, float]]:
        """Return start and end of these spans or runs."""
        start, end = (
            ((self.array(f"{kind}_{side}")[index].astype(np.int64) << self.unit.shift) + self.unit.start_ns)
            for side in ("start", "end")
        )
        return list(zip((start / 1000).tolist(), (end / 1000).tolist(), strict=True))

    def below(self, values: Int64) -> Int64:
        """Return the sum of each node's value and of those below it."""
        sums = np.r_[0, np.cumsum(values)]
        return sums[self.array("call_last")] - sums[:-1]

    def self_ns(self, around: str) -> Int64:
        """Return the host time of each node without the nodes whose `around` it is: call_parent, or
        call_caller, which leaves Python frames out."""
        around_ = self.array(around).astype(np.int64)
        known = around_ != NONE
        if around == "call_caller":
            known &= self.array("call_category") != Category.PYTHON_FUNCTION
        host_ns = self.weights.host_ns
        inner = summed(around_[known], host_ns[known], len(host_ns))
        return host_ns - inner


MOST_FRAMES = 64
"""Innermost frames. Those further out are the same everywhere in a script."""

_SHORT = 3

KINDS: Mapping[str, tuple[Category, ...]] = {
    "operator": (Category.CPU_OP,),
    "range": (Category.USER_ANNOTATION,),
    "call": CALL_CATEGORIES,
    "python": (Category.PYTHON_FUNCTION,),
}
"""What a table can be about."""

OUTSIDE = 0
"""Key of what is in no module, and of GPU work that no operator launched."""


def stack_of(data: CallData, node: int) -> pb.CallStack:
    """Return what is around a node, innermost first: its own stack, or in backward the forward operator's."""
    found = pb.CallStack()
    parents, category = data.parents, data.array("call_category")
    forward = int(data.array("call_forward")[node])
    stacks = data.array("call_stack")
    text = int(stacks[node])
    if text == NONE and forward != NONE:
        text = int(stacks[forward])
    at = parents[node]
    if forward != NONE and int(data.array("call_frame")[node]) != NONE and not _in_python(data, node):
        found.forward, at = True, forward
    if text != NONE:
        found.forward = forward != NONE and int(stacks[node]) == NONE
        names = old_call_stack(data.text(text))
        found.frames.extend(
            pb.CallFrame(name=name[:300], kind=Category.PYTHON_FUNCTION) for name in names[:MOST_FRAMES]
        )
        found.more_frames = max(0, len(names) - MOST_FRAMES)
        return found
    around = []
    while at != NONE:
        around.append(at)
        at = parents[at]
    around = around[:-1]  # without the thread
    found.frames.extend(
        pb.CallFrame(name=data.node_name(call), kind=int(category[call])) for call in around[:MOST_FRAMES]
    )
    found.more_frames = max(0, len(around) - MOST_FRAMES)
    return found


def _in_python(data: CallData, node: int) -> bool:
    """Whether Python frames of its own thread are around the node."""
    parents, python = data.array("call_parent"), data.array("call_python")
    above = int(parents[node])
    return above != NONE and int(python[above]) != NONE


def short_stack(data: CallData, node: int) -> list[str]:
    """Return the innermost frames that a user could change, else the innermost ones: innermost first."""
    frames = [frame.name for frame in stack_of(data, node).frames if frame.kind == Category.PYTHON_FUNCTION]
    kind = LineKind.DEFINITION if int(data.array("call_frame")[node]) != NONE else LineKind.RUNNING
    own = [str(frame) for frame in (place_frame(name, kind) for name in frames) if frame is not None]
    if own:
        return own[:_SHORT]
    return [str(parse_frame(name, kind) or name) for name in frames[:_SHORT]]


def of_kind(data: CallData, kind: str) -> Bool:
    """Mask of the nodes of this kind, shape (m,)."""
    return np.isin(data.array("call_category"), np.array(KINDS[kind], np.uint8))


def node_keys(data: CallData, group: str, kind: str) -> Int64:
    """Return the key of each node of this kind, NONE for other nodes, shape (m,)."""
    name = data.array("call_name").astype(np.int64)
    if group == "operator":
        key = name
    elif group == "module":
        key = _module_names(data, data.array("call_module"))
    else:
        # More than there are shapes or stacks.
        key = name * (len(data.prepared["call_code"]) + len(data.prepared["call_text_first"]) + 1) + (
            (data.array("call_shapes").astype(np.int64) + 1) if group == "shapes" else _stacks(data)
        )
    return np.where(of_kind(data, kind), key, NONE)


def _stacks(data: CallData) -> Int64:
    """Return a number of each node's call stack, 0 if it has none: its Python functions, else the recorded
    text."""
    code, stack, forward = (
        data.array(f"call_{part}").astype(np.int64) for part in ("code", "stack", "forward")
    )
    stack = np.where((stack == NONE) & (forward != NONE), stack[forward], stack)
    return np.where((code > 0) | (stack == NONE), code, stack + len(code) + 1)


def _module_names(data: CallData, module: Int64) -> Int64:
    """Return a key of each module's name, OUTSIDE for NONE."""
    named = data.array("call_name").astype(np.int64)[module] + 1
    return np.where(module == NONE, OUTSIDE, named)


def modules_inside(data: CallData, values: Int64) -> Int64:
    """Return the sum for each module node over itself and the modules inside it, 0 for other nodes.

    values: of each node, counted for the module that it runs in."""
    module = data.array("call_module").astype(np.int64)
    known = module != NONE
    own = summed(module[known], values[known], len(values))
    is_module = module == np.arange(len(module))
    return np.where(is_module, data.below(own), 0)


def module_keys(data: CallData) -> Int64:
    """Return the key of each module node, NONE for other nodes, shape (m,)."""
    module = data.array("call_module").astype(np.int64)
    is_module = module == np.arange(len(module))
    return np.where(is_module, _module_names(data, module), NONE)


def cell_keys(data: CallData, group: str) -> Int64:
    """Return the key of each cell of GPU work, shape (k,)."""
    name = data.array("cell_name").astype(np.int64)
    if group == "kernel":
        return name
    return name * (len(data.prepared["text_first"]) + 1) + cell_operators(data) + 1


def cell_operators(data: CallData) -> Int64:
    """Return the name of the operator or range that launched each cell's work, or NONE, shape (k,)."""
    node = data.array("cell_node").astype(np.int64)
    if not len(data.prepared["call_owner"]):
        return node
    owner = np.where(node == NONE, NONE, data.array("call_owner").astype(np.int64)[node])
    return np.where(owner == NONE, NONE, data.array("call_name").astype(np.int64)[owner])


def matching(data: CallData, names: Int64, text: str) -> Bool:
    """Mask of the names that contain the text, upper and lower case alike, shape of `names`."""
    if not text:
        return np.ones(len(names), np.bool_)
    wanted = text.casefold()
    known, member = np.unique(names, return_inverse=True)
    found = [index >= 0 and wanted in module_name(data.name(index)).casefold() for index in known.tolist()]
    return np.array(found, np.bool_)[member] if len(known) else np.zeros(0, np.bool_)
