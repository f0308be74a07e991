"""The timeline: prepared once as arrays that can be kept on disk, then cut into slices for a screen.

A slice costs the same however large the trace is: see timeline_levels.py and prepared.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import (
    NS_PER_US,
    POINTS_PER_PIXEL,
    Prepared,
    TextTable,
    curve_message,
    pack,
    pack_meta,
    read_meta,
    requested_span,
    slice_curve,
    step_marks,
    text_at,
    unpack,
)
from tb_gpudiag.report.slices.timeline_chains import prepare_chains
from tb_gpudiag.report.slices.timeline_events import prepare_events
from tb_gpudiag.report.slices.timeline_lanes import (
    LEVEL_ARRAYS,
    LEVEL_FIGURES,
    Lanes,
    add_counters,
    add_idle,
    add_queues,
    add_streams,
    add_thread,
    read_levels,
    shown_threads,
    thread_title,
)
from tb_gpudiag.report.slices.timeline_levels import Boxes, build_levels, slice_levels

# What a screen shows and a browser draws at once. Beyond, the fullest rows lose detail.
MOST_BOXES = 20_000

# Points of all curves together.
MOST_POINTS = 20_000

# Kinds of lanes that have a curve. Its arrays begin with the same word.
CURVES = ("queue", "counter")


def prepare_timeline(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Return everything that slices and gap chains need, as plain arrays by name.

    `meta` is a small JSON text; `text` and `text_first` are the table of all strings (prepared.py);
    `level_…` are Levels; `queue_…` and `counter_…` the curves (curves.pack); `step_…` the steps. For the
    others see timeline_chains.py and timeline_events.py.
    """
    events, host, main_thread = facts.events, facts.host, facts.main_thread
    recording, recorded_steps = facts.recording, facts.recorded_steps
    devices = facts.devices
    texts = TextTable([*(cause.label for cause in Cause), *events.names])
    lanes = Lanes()
    for device in devices:
        add_idle(lanes, device)
        add_streams(lanes, device, events, facts.communication)
        add_queues(lanes, device.id, facts.launches.queues, recording.start_ns)
        add_counters(lanes, device.id, facts.trace.counters)
    for thread in shown_threads(events, facts.work.launch, main_thread):
        add_thread(lanes, thread, thread_title(events, thread, main_thread), host)
    shown = {device.id for device in devices}
    for other in sorted({counter.device for counter in facts.trace.counters} - shown):
        add_counters(lanes, other, facts.trace.counters)
    levels = build_levels(Boxes.join(lanes.parts), lanes.rows)
    chains, chains_meta = prepare_chains(devices, host, facts.work, main_thread, facts.recorded_window, texts)
    own = prepare_events(events, host, facts.links, texts)
    steps = [texts.add(name) for name in recorded_steps.names]
    text, text_first = texts.arrays()
    meta = {
        "lanes": lanes.lanes,
        "start_ns": recording.start_ns,
        "end_ns": recording.end_ns,
        "file_start_ns": facts.trace.start_ns,
        "levels": {name: getattr(levels, name) for name in LEVEL_FIGURES},
        "chains": chains_meta,
        "names": len(events.names),
    }
    return {
        "meta": pack_meta(meta),
        "text": text,
        "text_first": text_first,
        "step_start_ns": recorded_steps.start_ns,
        "step_end_ns": recorded_steps.end_ns,
        "step_name": np.array(steps, np.int32),
        **{f"level_{name}": getattr(levels, name) for name in LEVEL_ARRAYS},
        **pack("queue", lanes.curves),
        **pack("counter", lanes.counters),
        **chains,
        **own,
    }


def slice_timeline(
    prepared: Prepared, start_us: float | None, end_us: float | None, width: int
) -> pb.Timeline:
    """Return what [start_us, end_us) shows on `width` pixels. None is the recording's start or end.

    All lanes are there, with or without boxes, so that a page's layout does not depend on the range.
    """
    meta = read_meta(prepared, "meta")
    span = requested_span(meta, start_us, end_us)
    levels = read_levels(prepared, meta["levels"])
    boxes = slice_levels(levels, span.start_ns, span.end_ns, width, MOST_BOXES)
    used, name = np.unique(boxes.name, return_inverse=True)
    curves = sum(lane["kind"] in CURVES for lane in meta["lanes"])
    points = max(1, min(width, MOST_POINTS // (POINTS_PER_PIXEL * max(1, curves))))
    lanes = []
    row = 0
    for lane in meta["lanes"]:
        if lane["kind"] in CURVES:
            curve = unpack(prepared, lane["kind"], lane["curve"])
            lanes.append(
                pb.Lane(
                    kind=lane["kind"],
                    title=lane["title"],
                    device=lane["device"],
                    queue=curve_message(slice_curve(curve, span.start_ns, span.end_ns, points)),
                    queue_most=lane["most"],
                    unit=lane.get("unit", ""),
                )
            )
        else:
            low, high = np.searchsorted(boxes.row, [row, row + lane["rows"]])
            lanes.append(_box_lane(lane, row, boxes, name, slice(int(low), int(high))))
        row += lane["rows"]
    return pb.Timeline(
        start_us=span.start_ns / NS_PER_US,
        end_us=span.end_ns / NS_PER_US,
        names=[text_at(prepared, "text", index) for index in used],
        steps=step_marks(prepared, span),
        lanes=lanes,
    )


def _box_lane(
    lane: Mapping[str, Any], row: int, boxes: Boxes, name: npt.NDArray[np.intp], own: slice[int, int, None]
) -> pb.Lane:
    """The lane whose boxes are `own`. row: the lane's first row; name: index of each box's name on the
    wire."""
    return pb.Lane(
        kind=lane["kind"],
        title=lane["title"],
        device=lane["device"],
        box_start_us=(boxes.start_ns[own] / NS_PER_US).tolist(),
        box_duration_us=(boxes.duration_ns[own] / NS_PER_US).tolist(),
        box_name=name[own].tolist(),
        box_depth=(boxes.row[own] - row).tolist(),
        box_count=boxes.count[own].tolist(),
        box_kind=boxes.kind[own].tolist(),
        box_gap=boxes.number[own].tolist() if lane["kind"] == "gaps" else [],
    )
