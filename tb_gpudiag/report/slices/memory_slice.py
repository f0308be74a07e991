"""A range of one device's memory curve, and which allocations in the range stayed live.

Ranges include both ends, so that a range up to the recording's end contains the last event. The curve at the
range's end is the curve before its start, plus what was allocated in it, minus what was freed.
"""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.curves import slice_curve, unpack
from tb_gpudiag.report.slices.memory_history import NEVER_NS, device_index
from tb_gpudiag.report.slices.prepared import (
    NS_PER_US,
    Prepared,
    Span,
    curve_message,
    read_meta,
    requested_span,
    step_marks,
    text_at,
)
from tb_gpudiag.vocabulary.frames import LineKind

MOST_SITES = 50
"""Rows of the table of allocation sites."""


def slice_memory(
    prepared: Prepared, device: int | None, start_us: float | None, end_us: float | None, width: int
) -> pb.MemorySlice:
    """Return a range of one device's memory for `width` pixels. None is the first device, or the
    recording's start or end. Raises UsageError: the trace has no memory of this device."""
    meta = read_meta(prepared, "memory_meta")
    index = device_index(meta, device)
    span = requested_span(meta, start_us, end_us)
    allocated, reserved = (
        slice_curve(unpack(prepared, "memory_curve", curve), span.start_ns, span.end_ns + 1, width)
        for curve in (2 * index, 2 * index + 1)
    )
    found = pb.MemorySlice(
        state="ready",
        progress=1.0,
        device=meta["devices"][index],
        start_us=span.start_ns / NS_PER_US,
        end_us=span.end_ns / NS_PER_US,
        trace_start_us=span.first_ns / NS_PER_US,
        trace_end_us=span.last_ns / NS_PER_US,
        allocated=curve_message(allocated),
        reserved=curve_message(reserved),
        exact=allocated.exact and reserved.exact,
        steps=step_marks(prepared, span, "memory_"),
    )
    _add_frees(found, prepared, index, span)
    _add_allocations(found, prepared, index, span)
    if not meta["paired"][index]:
        _forget_survivors(found)
    return found


def _forget_survivors(found: pb.MemorySlice) -> None:
    """Mark survivors as unknown, for a trace whose frees do not name their allocation."""
    found.survived_bytes = found.kept_bytes = NONE
    for site in found.sites:
        site.survived_bytes = site.kept_bytes = NONE


def _within(prepared: Prepared, first: str, time: str, index: int, span: Span) -> slice[int, int, None]:
    """The device's rows in the range, both ends included."""
    low, high = prepared[first][index : index + 2].tolist()
    own = np.asarray(prepared[time])[low:high]
    left, right = np.searchsorted(own, span.start_ns), np.searchsorted(own, span.end_ns, side="right")
    return slice(low + int(left), low + int(right))


def _add_frees(found: pb.MemorySlice, prepared: Prepared, index: int, span: Span) -> None:
    rows = _within(prepared, "memory_frees_first", "memory_free_ns", index, span)
    found.freed_bytes = int(prepared["memory_free_bytes"][rows].sum())
    found.frees = rows.stop - rows.start


def _add_allocations(found: pb.MemorySlice, prepared: Prepared, index: int, span: Span) -> None:
    rows = _within(prepared, "memory_allocations_first", "memory_made_ns", index, span)
    size, freed, group = (
        np.asarray(prepared[f"memory_{name}"])[rows] for name in ("bytes", "freed_ns", "group")
    )
    alive = np.flatnonzero(freed > span.end_ns)
    kept = alive[freed[alive] == NEVER_NS]
    found.allocated_bytes, found.allocations = int(size.sum()), len(size)
    found.survived_bytes, found.survivors = int(size[alive].sum()), len(alive)
    found.kept_bytes = int(size[kept].sum())
    groups = len(prepared["memory_groups"])
    count = np.bincount(group, minlength=groups)
    allocated, survived, left = (
        np.bincount(group[some], size[some], groups) for some in (slice(None), alive, kept)
    )
    # Most survived bytes first, then most allocated bytes.
    order = np.lexsort((-allocated, -survived))[:MOST_SITES]
    for site in order[count[order] > 0].tolist():
        operator, place = site_of(prepared, site)
        found.sites.add(
            operator=operator,
            place=place,
            allocated_bytes=float(allocated[site]),
            allocations=int(count[site]),
            survived_bytes=float(survived[site]),
            kept_bytes=float(left[site]),
        )


def site_of(prepared: Prepared, group: int) -> tuple[str, pb.Place | None]:
    """Return operator and place of a group of allocations."""
    operator, file, line, function, kind = (int(part) for part in prepared["memory_groups"][group])
    text = [
        text_at(prepared["memory_text"], prepared["memory_text_first"], index)
        for index in (operator, file, function)
    ]
    place = pb.Place(
        file=text[1], line=line, line_kind=LineKind(kind).name, function=text[2], operator=text[0]
    )
    return text[0], place if text[1] or text[2] else None
