"""The slices of a trace that the page asks for: the parameters of each, its message, and what builds it.

Routes, the process that cuts slices, and pages in a file follow from this table. A builder takes the prepared
arrays and the parameters, in their order. Builders are imported on use: TensorBoard starts with this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from google.protobuf.message import Message

from tb_gpudiag.errors import UsageError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import to_json

QueryValues = Mapping[str, str]
"""The parameters as they were sent, by name."""


@dataclass(frozen=True)
class Integer:
    """A whole number."""

    name: str
    low: int = 0
    high: int = 2**31 - 1
    default: int | None = None
    required: bool = False

    def read(self, values: QueryValues) -> int | None:
        text = values.get(self.name)
        if text is None and not self.required:
            return self.default
        if text is None or not re.fullmatch(r"-?[0-9]{1,15}", text) or not self.low <= int(text) <= self.high:
            raise UsageError(
                f"The parameter {self.name} must be a whole number from {self.low} to {self.high}.",
                where=self.name,
            )
        return int(text)


@dataclass(frozen=True)
class Number:
    """A finite number, or none."""

    name: str

    def read(self, values: QueryValues) -> float | None:
        text = values.get(self.name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"The parameter {self.name} is not a number.", where=self.name)
        return value


@dataclass(frozen=True)
class Text:
    """A text: required unless there is a default, and cut off if it is too long."""

    name: str
    default: str | None = None
    among: tuple[str, ...] = ()  # anything if empty
    longest: int | None = None

    def read(self, values: QueryValues) -> str:
        value = values.get(self.name, self.default)
        if value is None or (not value and self.default is None):
            raise UsageError(f"The parameter {self.name} is missing.", where=self.name)
        if self.among and value not in self.among:
            raise UsageError(
                f"The parameter {self.name} must be one of {', '.join(self.among)}.", where=self.name
            )
        return value[: self.longest]


@dataclass(frozen=True)
class Together:
    """Parameters that a builder takes as one argument."""

    make: Callable[..., Any]
    parts: tuple[Integer | Number | Text, ...]

    def read(self, values: QueryValues) -> tuple[float | str | None, ...]:
        return tuple(part.read(values) for part in self.parts)


Parameter = Integer | Number | Text | Together
Argument = float | str | None | tuple[float | str | None, ...]


class WantedRows(NamedTuple):
    """Which rows of a table: the first `limit` in an order, of those whose name contains a text."""

    sort: str
    text: str = ""
    limit: int = 200


class Search(NamedTuple):
    """What to search for: a text or a pattern, in the names of a kind of events."""

    text: str
    regex: bool = False
    kind: str = "any"


LONGEST_SEARCH = 200
MOST_MATCHES = 200

SEARCHED = ("any", "operator", "kernel", "module", "call", "range", "function")
CALL_KINDS = ("operator", "range", "call", "python")
CALL_GROUPS = ("operator", "shapes", "stack", "module")
CALL_ORDERS = ("gpu_self", "gpu_total", "host_self", "host_total", "calls")
KERNEL_GROUPS = ("kernel", "operator")
KERNEL_ORDERS = ("total", "count", "mean", "max")
WEIGHTS = ("host", "gpu")

_START, _END = _SPAN = (Number("start_us"), Number("end_us"))
# Wider than any screen. The cost of a slice grows with its width.
_WIDTH = Integer("width", low=1, high=8192, default=1024)
_OF_MEMORY = "tb_gpudiag.report.slices.memory_slice"
_MEMORY_DEVICE = Integer("device", low=-1)


def _rows(order: Text) -> Together:
    limit = Integer("limit", low=1, high=2000, default=200)
    return Together(WantedRows, (order, Text("filter", "", longest=200), limit))


class SliceKind(NamedTuple):
    """A kind of slice. in_file: what a page in a file has of it, each by the parameters that choose it."""

    message: type[Message]
    module: str
    builder: str
    parameters: tuple[Parameter, ...] = ()
    in_file: tuple[QueryValues, ...] = ()

    def arguments(self, values: QueryValues) -> tuple[Argument, ...]:
        """Return the builder's arguments. Raises UsageError."""
        found = tuple(parameter.read(values) for parameter in self.parameters)
        if _END in self.parameters:
            start_us, end_us = _START.read(values), _END.read(values)
            if start_us is not None and end_us is not None and end_us <= start_us:
                raise UsageError("end_us must be greater than start_us.", where="end_us")
        return found

    def build(self, prepared: Mapping[str, Any], arguments: Sequence[Any]) -> Message:
        """Build the slice. Raises GpudiagError."""
        builder = getattr(import_module(self.module), self.builder)
        return builder(
            prepared,
            *(
                parameter.make(*argument) if isinstance(parameter, Together) else argument
                for parameter, argument in zip(self.parameters, arguments, strict=True)
            ),
        )


def slice_json(found: Any) -> str:
    """Return the JSON of what a page asked for: it is ready, unless it says that it failed."""
    if found.state == pb.ReportState.queued:
        found.state, found.progress = pb.ReportState.ready, 1.0
    return to_json(found)


SLICES: Mapping[str, SliceKind] = {
    "timeline": SliceKind(
        pb.Timeline, "tb_gpudiag.report.slices.timeline", "slice_timeline", (*_SPAN, _WIDTH)
    ),
    "clock": SliceKind(
        pb.ClockSlice,
        "tb_gpudiag.report.slices.clock_slice",
        "slice_clock",
        (Integer("rank"), Number("start"), Number("end"), Integer("width", low=1, high=2000, default=1000)),
    ),
    "memory": SliceKind(pb.MemorySlice, _OF_MEMORY, "slice_memory", (_MEMORY_DEVICE, *_SPAN, _WIDTH)),
    "memoryState": SliceKind(
        pb.MemoryState, _OF_MEMORY, "slice_memory_state", (_MEMORY_DEVICE, Number("at_us"))
    ),
    "memoryBands": SliceKind(
        pb.MemoryBands,
        _OF_MEMORY,
        "slice_memory_bands",
        (_MEMORY_DEVICE, *_SPAN, Integer("width", low=1, high=2048, default=1024)),
    ),
    "segments": SliceKind(
        pb.SegmentMap,
        "tb_gpudiag.report.slices.segment_map",
        "slice_segments",
        (_MEMORY_DEVICE, Number("at_us")),
    ),
    "gap": SliceKind(
        pb.GapChain,
        "tb_gpudiag.report.slices.timeline_chains",
        "gap_chain",
        (Integer("device", required=True), Integer("gap", high=2**32 - 1, required=True)),
    ),
    "find": SliceKind(
        pb.Matches,
        "tb_gpudiag.report.slices.timeline_range",
        "find_events",
        (
            Together(
                Search,
                (
                    # One character more than is allowed, so that the search can say so.
                    Text("text", "", longest=LONGEST_SEARCH + 1),
                    Integer("regex", high=1, default=0),
                    Text("kind", "any", among=SEARCHED),
                ),
            ),
            Integer("limit", low=1, high=MOST_MATCHES, default=50),
            Integer("from"),
            Number("near_us"),
        ),
    ),
    "event": SliceKind(
        pb.EventDetails,
        "tb_gpudiag.report.slices.timeline_events",
        "event_details",
        (
            Integer("event"),
            Integer("lane"),
            Integer("depth"),
            Number("start_us"),
            Integer("previous", high=1, default=0),
        ),
    ),
    "range": SliceKind(
        pb.RangeStatistics, "tb_gpudiag.report.slices.timeline_range", "range_statistics", _SPAN
    ),
    "operators": SliceKind(
        pb.OperatorTable,
        "tb_gpudiag.report.slices.operators.operator_table",
        "slice_operators",
        (
            Text("kind", "operator", among=CALL_KINDS),
            Text("group", "operator", among=CALL_GROUPS),
            _rows(Text("sort", "gpu_self", among=CALL_ORDERS)),
            *_SPAN,
        ),
        (
            *({"kind": "operator", "group": group} for group in CALL_GROUPS),
            *({"kind": kind, "group": "operator"} for kind in CALL_KINDS[1:]),
        ),
    ),
    "kernels": SliceKind(
        pb.KernelTable,
        "tb_gpudiag.report.slices.operators.operator_table",
        "slice_kernels",
        (
            Text("group", "kernel", among=KERNEL_GROUPS),
            _rows(Text("sort", "total", among=KERNEL_ORDERS)),
            *_SPAN,
        ),
        tuple({"group": group} for group in KERNEL_GROUPS),
    ),
    "calls": SliceKind(
        pb.CallDetails,
        "tb_gpudiag.report.slices.operators.call_details",
        "slice_call_details",
        (
            Text("kind", "operator", among=(*CALL_KINDS, "kernel")),
            Text("group", "operator", among=(*CALL_GROUPS, "kernel")),
            Integer("key", high=10**15 - 1, required=True),
            *_SPAN,
        ),
    ),
    "callTree": SliceKind(
        pb.CallTree,
        "tb_gpudiag.report.slices.operators.call_details",
        "slice_call_tree",
        (Text("weight", "host", among=WEIGHTS), Integer("root"), *_SPAN),
        tuple({"weight": weight} for weight in WEIGHTS),
    ),
    "roofline": SliceKind(
        pb.RooflinePlot, "tb_gpudiag.report.slices.operators.prepare_calls", "slice_roofline", (), ({},)
    ),
}
