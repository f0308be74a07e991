"""Everything that the page asks about one trace, for a page without a server: the report, rules, slices of
the timeline and of memory, and the longest gaps. Bounded: what does not fit is left out, finest detail first.

The timeline is a tree of slices. The root is the whole trace. A slice with merged boxes has four children
that split its range, as long as there is room.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Final

import numpy as np
from google.protobuf.message import Message

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.clock_slice import slice_clock
from tb_gpudiag.report.slices.embedded_events import Content, Embedded, embedded_events, packed_text
from tb_gpudiag.report.slices.memory_slice import slice_memory, slice_memory_bands
from tb_gpudiag.report.slices.prepared import Prepared, read_meta
from tb_gpudiag.report.slices.slice_table import SLICES, slice_json
from tb_gpudiag.report.slices.timeline import slice_timeline
from tb_gpudiag.report.slices.timeline_chains import gap_chain
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.rules.all import RULES

# Base64 of the timeline's events and slices. With the page and the rest, the file stays below 5 MB.
EVENT_BYTES: Final = 2_000_000
TIMELINE_BYTES: Final = 3_000_000

_WIDTH: Final = 4096
_CHILDREN: Final = 4
# A slice shorter than this many µs is not split: no screen shows less.
_SHORTEST_US: Final = 20.0

# A slice with fewer events is not split either, if they are in the file: the page draws them itself.
_FEW_EVENTS: Final = 12_000

_MOST_GAPS: Final = 200

# The curve of a device's memory, in points. The page cannot ask for more detail later.
_MEMORY_WIDTH: Final = 8192

# Of bands over time: as many columns as a wide screen has.
_BANDS_WIDTH: Final = 2048

# Of step clocks: 40 KB each.
_MOST_CLOCKS: Final = 64
_CLOCK_WIDTH: Final = 1000

_LESS_DETAIL: Final = "this HTML file has no room for the whole timeline: some short events stay merged"

_ONLY_TRACE: Final = "trace"

_MOST_ROWS: Final = 150
"""Rows of each table of operators and kernels."""


def embedded(report: pb.Report, prepared: Prepared, size_bytes: int, modified_ns: int) -> Content:
    """Return the answers as plain data: the list of traces, and gzipped JSON in base64.

    prepared: of prepare_timeline, prepare_memory and prepare_calls. size_bytes, modified_ns: of the file.
    """
    has_timeline = report.trace.kind == pb.TraceInfo.trace
    events = embedded_events(prepared, EVENT_BYTES) if has_timeline else None
    slices, complete = _timeline(prepared, events) if events else ([], True)
    shown = pb.Report.FromString(report.SerializeToString())
    if not complete:
        shown.trace.notes.append(_LESS_DETAIL)
    trace = report.trace
    entry = pb.TraceEntry(
        id=_ONLY_TRACE,
        run=trace.run,
        worker=trace.worker,
        span=trace.span,
        size_bytes=size_bytes,
        modified_s=modified_ns / 1e9,
        state="ready",
        limiter=report.verdict.limiter,
        sentence=report.verdict.sentence,
        content=_ONLY_TRACE,
        kind=trace.kind,
    )
    named = {each.rule for group in (report.findings, report.clear, report.unchecked) for each in group}
    pages: dict[str, Content] = {}
    for rule in RULES:
        if rule.id in named:
            page = {"id": rule.id, "name": rule.name, "title": rule.title, "markdown": rule.page}
            pages[rule.id] = pages[rule.name] = page
    return {
        "traces": json.loads(to_json(pb.TraceList(traces=[entry], generation=1, scanned=True, whole=True))),
        "report": _packed(pb.ReportState(report=shown)),
        "rules": packed_text(json.dumps(pages)),
        "timeline": slices,
        "events": events and events.content,
        "memory": {str(device): _packed(found) for device, found in _memory(prepared)},
        "bands": {str(device): _packed(found) for device, found in _bands(prepared)},
        "tables": _tables(prepared) if has_timeline else _clocks(prepared),
        "gaps": packed_text(json.dumps(dict(_gaps(prepared)) if has_timeline else {})),
    }


def _timeline(prepared: Prepared, events: Embedded) -> tuple[list[Content], bool]:
    """Return the tree's slices, parents first, and whether the file has every event."""
    slices: list[Content] = []
    room = TIMELINE_BYTES - events.size
    complete = True
    todo: deque[tuple[float | None, float | None]] = deque([(None, None)])
    while todo:
        found = slice_timeline(prepared, *todo.popleft(), _WIDTH)
        packed = _packed(found)
        if slices and len(packed) > room:
            complete = False
            continue
        room -= len(packed)
        slices.append({"start_us": found.start_us, "end_us": found.end_us, "answer": packed})
        few = events.count(found.start_us, found.end_us) < _FEW_EVENTS
        if _is_merged(found) and not few and found.end_us - found.start_us > _SHORTEST_US:
            edges = np.linspace(found.start_us, found.end_us, _CHILDREN + 1).tolist()
            todo.extend(pairwise(edges))
    return slices, complete


def _is_merged(found: pb.Timeline) -> bool:
    """Return whether zooming in shows more."""
    return any(
        any(count > 1 for count in lane.box_count)
        or (lane.HasField("queue") and list(lane.queue.low) != list(lane.queue.high))
        for lane in found.lanes
    )


def _memory(prepared: Prepared) -> Iterator[tuple[int, pb.MemorySlice]]:
    if "memory_meta" in prepared:
        for device in read_meta(prepared, "memory_meta")["devices"]:
            found = slice_memory(prepared, int(device), None, None, _MEMORY_WIDTH)
            found.exact = True  # the page must not ask for more
            yield int(device), found


def _bands(prepared: Prepared) -> Iterator[tuple[int, pb.MemoryBands]]:
    """Yield the bands of each device whose frees are known, over the whole recording."""
    if "memory_meta" in prepared:
        meta = read_meta(prepared, "memory_meta")
        for device, paired in zip(meta["devices"], meta["paired"], strict=True):
            if paired:
                yield int(device), slice_memory_bands(prepared, int(device), None, None, _BANDS_WIDTH)


def _gaps(prepared: Prepared) -> Iterator[tuple[str, Content]]:
    """Yield the longest gaps by device and number."""
    length = np.asarray(prepared["gap_end_ns"]) - np.asarray(prepared["gap_start_ns"])
    places = read_meta(prepared, "meta")["chains"]
    for row in islice(np.argsort(-length, kind="stable").tolist(), _MOST_GAPS):
        place = next(p for p in places if p["first_gap"] <= row < p["first_gap"] + p["gaps"])
        gap = row - place["first_gap"]
        chain = gap_chain(prepared, place["device"], gap)
        yield f"{place['device']}:{gap}", json.loads(slice_json(chain))


def _tables(prepared: Prepared) -> Content:
    """Return the slices that are in a file whole, over the whole recording, by their kind. The page filters
    and sorts the rows that are there."""
    return {
        kind: {
            "about": list(slice_kind.in_file[0]),
            "answers": {
                "/".join(values.values()): _packed(
                    slice_kind.build(prepared, slice_kind.arguments({**values, "limit": str(_MOST_ROWS)}))
                )
                for values in slice_kind.in_file
            },
        }
        for kind, slice_kind in SLICES.items()
        if slice_kind.in_file
    }


def _clocks(prepared: Prepared) -> Content:
    """Return the whole run of each rank, of step clocks."""
    ranks = read_meta(prepared, "clock_meta")["ranks"][:_MOST_CLOCKS] if "clock_meta" in prepared else []
    answers = {str(rank): _packed(slice_clock(prepared, rank, None, None, _CLOCK_WIDTH)) for rank in ranks}
    return {"clock": {"about": ["rank"], "answers": answers}} if answers else {}


def _packed(message: Message) -> str:
    return packed_text(slice_json(message))
