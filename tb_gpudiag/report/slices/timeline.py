"""The timeline: prepared once from the facts, as arrays that can be kept on disk, then cut into slices for a
screen.

Lanes, from top to bottom: for each device its idle time, coloured by cause, its streams, and the depth of
their launch queues; below them the host threads that launched the work, nested. A slice costs the same
however large the trace is: see timeline_levels.py and curves.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.queue_depth import Queue
from tb_gpudiag.facts.facts import DeviceFacts, Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.curves import (
    POINTS_PER_PIXEL,
    Pyramid,
    build_pyramid,
    pack,
    slice_curve,
    unpack,
)
from tb_gpudiag.report.slices.timeline_chains import gap_chain, prepare_chains, thread_title
from tb_gpudiag.report.slices.timeline_levels import Boxes, Levels, build_levels, slice_levels
from tb_gpudiag.report.slices.timeline_text import TextTable, text_at
from tb_gpudiag.trace.events import NONE, Category, Int32, Int64

__all__ = ["gap_chain", "prepare_timeline", "slice_timeline"]

# What a screen can hold and a browser draws at once. Beyond, the fullest rows lose detail.
MOST_BOXES = 20_000

# A node has up to 16 GPUs.
MOST_DEVICES = 64

# Real jobs use up to some fifty, most of them hardly: those of least work share one lane.
MOST_STREAMS = 32

# Work on one stream overlaps by a few µs in real traces, where stamps are inexact.
MOST_ROWS_OF_STREAM = 4

# Most jobs launch on one to three streams of a device.
MOST_QUEUES_OF_DEVICE = 8
MOST_QUEUES = 64

# Of all queues' curves together: as for boxes.
MOST_POINTS = 20_000

# The main thread, autograd's, and what else launches.
MOST_THREADS = 8

# Python stacks of compiled serving code reach some eighty frames.
MOST_DEPTH = 128

MOST_STEP_MARKS = 2000

# On the wire, beside the categories of events: communication kernels (NCCL, RCCL), shown apart from others.
COLLECTIVE_KIND = 13

# Times beyond this (146 years) are not from a clock; keeps the arithmetic inside int64.
FAR_NS = 1 << 62

NS_PER_US = 1000

_LEVEL_ARRAYS = ("key", "birth", "duration_ns", "name", "kind", "gap", "count", "first")
_LEVEL_FIGURES = ("rows", "last", "origin_ns", "stride", "shift")

Prepared = Mapping[str, npt.NDArray[Any]]


class _Lanes:
    """Collects lanes from top to bottom. A row is one depth of one lane."""

    def __init__(self) -> None:
        self.lanes: list[dict[str, Any]] = []
        self.parts: list[Boxes] = []
        self.curves: list[Pyramid] = []
        self.rows = 0

    def add(
        self,
        kind: str,
        title: str,
        device: int,
        depth: Int64,
        start_ns: Int64,
        end_ns: Int64,
        name: Int32,
        category: npt.NDArray[np.uint8],
        gap: Int64 | None = None,
    ) -> None:
        count = len(start_ns)
        self.parts.append(
            Boxes(
                (self.rows + depth).astype(np.int32),
                start_ns,
                end_ns - start_ns,
                name.astype(np.int32),
                category.astype(np.uint8),
                (np.zeros(count) if gap is None else gap).astype(np.int32),
                np.ones(count, np.int32),
            )
        )
        rows = int(depth.max(initial=0)) + 1
        self.lanes.append({"kind": kind, "title": title, "device": device, "rows": rows})
        self.rows += rows

    def add_queue(self, title: str, device: int, curve: Pyramid) -> None:
        """A lane without boxes."""
        lane = {"kind": "queue", "title": title, "device": device, "rows": 0}
        self.lanes.append({**lane, "curve": len(self.curves), "most": int(curve.value.max())})
        self.curves.append(curve)


def prepare_timeline(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Everything that slices and gap chains need, as plain arrays (no objects), to be kept as it is.

    `meta` is a small JSON text; `text` and `text_first` are the table of all strings (timeline_text.py);
    `level_…` are Levels; `queue_…` the queues' curves (curves.pack); `step_…` the steps; the rest is
    described in timeline_chains.py.
    """
    events = facts.events
    texts = TextTable([*(cause.label for cause in Cause), *events.names])
    lanes = _Lanes()
    for device in facts.devices[:MOST_DEVICES]:
        _add_device(lanes, facts, device)
        _add_queues(lanes, facts, device.id)
    for thread in _threads(facts):
        _add_thread(lanes, facts, thread)
    levels = build_levels(Boxes.join(lanes.parts), lanes.rows)
    chains, chains_meta = prepare_chains(facts, facts.devices[:MOST_DEVICES], texts)
    steps = [texts.add(name) for name in facts.steps.names]
    text, text_first = texts.arrays()
    window = facts.recording
    meta = {
        "lanes": lanes.lanes,
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "levels": {name: getattr(levels, name) for name in _LEVEL_FIGURES},
        "chains": chains_meta,
    }
    return {
        "meta": np.frombuffer(json.dumps(meta).encode("ascii"), np.uint8),
        "text": text,
        "text_first": text_first,
        "step_start_ns": facts.steps.start_ns,
        "step_end_ns": facts.steps.end_ns,
        "step_name": np.array(steps, np.int32),
        **{f"level_{name}": getattr(levels, name) for name in _LEVEL_ARRAYS},
        **pack("queue", lanes.curves),
        **chains,
    }


def slice_timeline(
    prepared: Prepared, start_us: float | None, end_us: float | None, width: int
) -> pb.Timeline:
    """What [start_us, end_us) shows on `width` pixels. None stands for the trace's own start or end.

    All lanes are there, with or without boxes, so that a page's layout does not depend on where one looks.
    """
    meta = json.loads(bytes(prepared["meta"]))
    first_ns, last_ns = int(meta["start_ns"]), int(meta["end_ns"])
    start_ns = first_ns if start_us is None else clamped_ns(start_us)
    end_ns = max(last_ns if end_us is None else clamped_ns(end_us), start_ns)
    boxes = slice_levels(_levels(prepared, meta["levels"]), start_ns, end_ns, width, MOST_BOXES)
    used, name = np.unique(boxes.name, return_inverse=True)
    timeline = pb.Timeline(
        state="ready",
        progress=1.0,
        start_us=start_ns / NS_PER_US,
        end_us=end_ns / NS_PER_US,
        trace_start_us=first_ns / NS_PER_US,
        trace_end_us=last_ns / NS_PER_US,
        names=[text_at(prepared["text"], prepared["text_first"], index) for index in used],
        steps=step_marks(prepared, start_ns, end_ns),
    )
    row = 0
    queues = sum(lane["kind"] == "queue" for lane in meta["lanes"])
    points = max(1, min(width, MOST_POINTS // (POINTS_PER_PIXEL * max(1, queues))))
    for lane in meta["lanes"]:
        if lane["kind"] == "queue":
            curve = slice_curve(unpack(prepared, "queue", lane["curve"]), start_ns, end_ns, points)
            timeline.lanes.add(
                kind="queue",
                title=lane["title"],
                device=lane["device"],
                queue=pb.Curve(
                    time_us=(curve.time_ns / NS_PER_US).tolist(),
                    low=curve.low.tolist(),
                    high=curve.high.tolist(),
                ),
                queue_most=lane["most"],
            )
            continue
        low, high = np.searchsorted(boxes.row, [row, row + lane["rows"]])
        own = slice(int(low), int(high))
        timeline.lanes.add(
            kind=lane["kind"],
            title=lane["title"],
            device=lane["device"],
            box_start_us=(boxes.start_ns[own] / NS_PER_US).tolist(),
            box_duration_us=(boxes.duration_ns[own] / NS_PER_US).tolist(),
            box_name=name[own].tolist(),
            box_depth=(boxes.row[own] - row).tolist(),
            box_count=boxes.count[own].tolist(),
            box_kind=boxes.kind[own].tolist(),
            box_gap=boxes.gap[own].tolist() if lane["kind"] == "gaps" else [],
        )
        row += lane["rows"]
    return timeline


def _add_device(lanes: _Lanes, facts: Facts, device: DeviceFacts) -> None:
    events, ledger = facts.events, device.ledger
    zeros = np.zeros(len(ledger), np.int64)
    lanes.add(
        "gaps",
        f"GPU {device.id} idle",
        device.id,
        zeros,
        ledger.start_ns,
        ledger.end_ns,
        ledger.cause.astype(np.int32),
        zeros.astype(np.uint8),
        ledger.gap,
    )
    work = device.busy.work
    kind = np.where(facts.communication, COLLECTIVE_KIND, events.category)
    streams, own = np.unique(events.stream[work], return_inverse=True)
    time = np.bincount(own, events.duration_ns[work], len(streams))
    shown = np.zeros(len(streams), np.bool_)
    shown[np.argsort(-time, kind="stable")[:MOST_STREAMS]] = True
    groups = [(f"stream {streams[i]}", own == i) for i in np.flatnonzero(shown)]
    if not shown.all():
        groups.append((f"{np.count_nonzero(~shown)} further streams", ~shown[own]))
    for title, chosen in groups:
        some = work[chosen]
        lanes.add(
            "stream",
            f"GPU {device.id} {title}",
            device.id,
            _rows_for(events.start_ns[some], events.end_ns[some]),
            events.start_ns[some],
            events.end_ns[some],
            _names(events.name[some]),
            kind[some].astype(np.uint8),
        )


def _add_queues(lanes: _Lanes, facts: Facts, device: int) -> None:
    """Those in which something waited, of the streams with most launches."""
    queues = [queue for queue in facts.queues if queue.device == device and len(queue.depth.depth)]
    most = sorted(queues, key=lambda queue: -len(queue.call))[:MOST_QUEUES_OF_DEVICE]
    for queue in sorted(most[: MOST_QUEUES - len(lanes.curves)], key=lambda queue: queue.stream):
        lanes.add_queue(f"GPU {device} stream {queue.stream} queue", device, _curve(queue, facts))


def _curve(queue: Queue, facts: Facts) -> Pyramid:
    """From the recording's beginning."""
    time, depth = queue.depth
    first = np.array([facts.recording.start_ns])
    empty = first[first < time[0]]
    return build_pyramid(np.r_[empty, time], np.r_[np.zeros_like(empty), depth])


def _add_thread(lanes: _Lanes, facts: Facts, thread: int) -> None:
    events, tree = facts.events, facts.host.tree
    depth = tree.depth
    some = np.flatnonzero((events.thread == thread) & (depth >= 0) & (depth < MOST_DEPTH))
    lanes.add(
        "thread",
        thread_title(facts, thread),
        NONE,
        depth[some].astype(np.int64),
        tree.start_ns[some],
        events.end_ns[some],
        _names(events.name[some]),
        events.category[some],
    )


def _threads(facts: Facts) -> list[int]:
    """The main thread, then those that launched GPU work (without any: that ran operators), the busiest
    first."""
    events, launch = facts.events, facts.work.launch
    working = launch[launch != NONE]
    if not len(working):
        working = events.where(Category.CPU_OP)
    threads, count = np.unique(events.thread[working], return_counts=True)
    others = [int(t) for t in threads[np.argsort(-count, kind="stable")] if t != facts.main_thread]
    main = [facts.main_thread] if facts.main_thread != NONE else []
    return [*main, *others][:MOST_THREADS]


def _names(name: Int32) -> Int32:
    """Event names stand behind the causes in the table of strings."""
    return (name + len(Cause)).astype(np.int32)


def _rows_for(start_ns: Int64, end_ns: Int64) -> Int64:
    """Shape of `start_ns` (ascending): how many earlier spans are open as each begins, as far as rows go."""
    open_before = np.arange(len(start_ns)) - np.searchsorted(np.sort(end_ns), start_ns, side="right")
    rows: Int64 = np.clip(open_before, 0, MOST_ROWS_OF_STREAM - 1)
    return rows


def _levels(prepared: Prepared, figures: Mapping[str, int]) -> Levels:
    # Plain views: NumPy's own class for mapped files makes each small operation slower.
    arrays: dict[str, Any] = {name: np.asarray(prepared[f"level_{name}"]) for name in _LEVEL_ARRAYS}
    whole: dict[str, Any] = {name: figures[name] for name in _LEVEL_FIGURES}
    return Levels(**arrays, **whole)


def step_marks(prepared: Prepared, start_ns: int, end_ns: int, prefix: str = "") -> list[pb.StepMark]:
    """The steps that a stretch shows, of the arrays whose names begin so; of very many only some."""
    start, end = prepared[f"{prefix}step_start_ns"], prepared[f"{prefix}step_end_ns"]
    text, text_first, name = (prepared[f"{prefix}{part}"] for part in ("text", "text_first", "step_name"))
    shown = np.flatnonzero((start < end_ns) & (end > start_ns))
    shown = shown[:: len(shown) // MOST_STEP_MARKS + 1]
    return [
        pb.StepMark(
            name=text_at(text, text_first, name[i]),
            start_us=start[i] / NS_PER_US,
            end_us=end[i] / NS_PER_US,
        )
        for i in shown
    ]


def clamped_ns(us: float) -> int:
    """A time that a client asks for, to the nearest nanosecond, however far from any."""
    return round(min(max(us * NS_PER_US, -FAR_NS), FAR_NS))
