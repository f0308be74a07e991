"""How often calls and GPU work ran in a range, and for how long. What runs across the range's borders counts
with the part of its time that is inside."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64, summed
from tb_gpudiag.report.slices.operators.prepare_calls import TimeUnit
from tb_gpudiag.report.slices.prepared import Prepared, Span, read_meta, requested_span, text_at
from tb_gpudiag.vocabulary.marks import merged_name
from tb_gpudiag.vocabulary.recorded import Category

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
