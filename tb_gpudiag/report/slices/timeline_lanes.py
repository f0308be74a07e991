"""Lanes of the timeline from top to bottom: per device its idle time, its streams, their launch queues and
its counters, then the host threads and the counters that are of no device; and the events that they show.

A box of one event (`birth` 0) in a lane of events is that event. So the boxes are the list of all events, and
nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, mask_of
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.handover import busiest_threads
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import expand
from tb_gpudiag.facts.core.queue_depth import Queue
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, Pyramid, build_pyramid, read_meta, text_at
from tb_gpudiag.report.slices.timeline_levels import Boxes, Levels, segment_ranges
from tb_gpudiag.trace.events import Counter, Events

LEVEL_ARRAYS = ("key", "birth", "duration_ns", "name", "kind", "number", "count", "first")
LEVEL_FIGURES = ("rows", "last", "origin_ns", "stride", "shift")


def read_levels(prepared: Prepared, figures: Mapping[str, int]) -> Levels:
    """Return the levels that prepare_timeline stored."""
    # Plain views: NumPy's own class for mapped files makes each small operation slower.
    arrays: dict[str, Any] = {name: np.asarray(prepared[f"level_{name}"]) for name in LEVEL_ARRAYS}
    whole: dict[str, Any] = {name: figures[name] for name in LEVEL_FIGURES}
    return Levels(**arrays, **whole)


class Shown:
    """Events of a prepared timeline. An index is the box's place in the levels."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.meta = read_meta(prepared, "meta")
        self.levels = read_levels(prepared, self.meta["levels"])
        self.lanes: list[dict[str, Any]] = self.meta["lanes"]
        rows = [lane["rows"] for lane in self.lanes]
        self.lane_of_row = np.repeat(np.arange(len(rows)), rows)
        self.first_row = np.cumsum([0, *rows])[:-1]

    def rows_of(self, *kinds: str) -> Bool:
        """Mask of the rows of lanes of these kinds."""
        chosen = np.array([lane["kind"] in kinds for lane in self.lanes], np.bool_)
        return chosen[self.lane_of_row] if len(self.lane_of_row) else np.zeros(0, np.bool_)

    @cached_property
    def are_events(self) -> Bool:
        """Mask of the boxes that are an event."""
        levels = self.levels
        rows = self.rows_of("stream", "thread")
        of_segment = np.tile(rows, levels.last + 2)
        return np.repeat(of_segment, np.diff(levels.first)) & (levels.birth == 0)

    def boxes(self, index: Int64) -> Boxes:
        segment = np.searchsorted(self.levels.first, index, side="right") - 1
        return self.levels.boxes(index, segment.astype(np.int64))

    def of_numbers(self, numbers: Int64) -> Boxes:
        """Return the events with these numbers, in their order. Events that no lane shows are left out."""
        index = np.flatnonzero(np.isin(self.levels.number, numbers) & self.are_events)
        found = self.boxes(index)
        order = np.argsort(numbers, kind="stable")
        at = order[np.searchsorted(numbers[order], found.number)]
        return found.take(np.argsort(at, kind="stable"))

    def between(self, start_ns: int, end_ns: int, rows: Bool) -> Boxes:
        """Return the events of some rows that overlap [start, end), with their whole lengths."""
        levels = self.levels
        segment = np.flatnonzero(np.tile(rows, levels.last + 2)).astype(np.int64)
        low, high = segment_ranges(levels, segment, start_ns, end_ns)
        owner, index = expand(low, high)
        single = levels.birth[index] == 0
        found = levels.boxes(index[single], segment[owner[single]])
        overlaps = (found.start_ns < end_ns) & (found.start_ns + found.duration_ns > start_ns)
        return found.take(overlaps)

    def at(self, lane: int, depth: int, time_ns: int) -> Boxes:
        """Return the event of a lane's row that runs at this time, or the next one that begins: at most
        one."""
        before, after = self._around(lane, depth, time_ns)
        running = before.take(before.start_ns + before.duration_ns > time_ns)
        return running if len(running) else after

    def before(self, lane: int, depth: int, time_ns: int) -> Boxes:
        """Return the last event of a lane's row that begins before this time: at most one."""
        return self._around(lane, depth, time_ns)[0]

    def _around(self, lane: int, depth: int, time_ns: int) -> tuple[Boxes, Boxes]:
        """Return the last event of a row that begins before this time, and the first one that does not."""
        levels = self.levels
        row = int(self.first_row[lane]) + depth
        before, after = [], []
        # In each segment of the row, skip the merged boxes.
        for segment in range(row, (levels.last + 2) * levels.rows, levels.rows):
            low, high = levels.first[segment : segment + 2].tolist()
            single = low + np.flatnonzero(levels.birth[low:high] == 0)
            found = levels.boxes(single, np.full(len(single), segment, np.int64))
            at = int(np.searchsorted(found.start_ns, time_ns))
            before.append(found.take(np.arange(max(at - 1, 0), at)))
            after.append(found.take(np.arange(at, min(at + 1, len(found)))))
        last, first = Boxes.join(before), Boxes.join(after)
        return (
            last.take(np.argsort(-last.start_ns, kind="stable")[:1]),
            first.take(np.argsort(first.start_ns, kind="stable")[:1]),
        )

    def text(self, index: int) -> str:
        return text_at(self.prepared, "text", index)

    def messages(self, boxes: Boxes) -> list[pb.TimelineEvent]:
        lanes = self.lane_of_row[boxes.row].tolist()
        return [
            pb.TimelineEvent(
                number=number,
                name=self.text(name),
                kind=kind,
                lane=lane,
                depth=row - int(self.first_row[lane]),
                start_us=start_ns / NS_PER_US,
                duration_us=duration_ns / NS_PER_US,
            )
            for number, name, kind, lane, row, start_ns, duration_ns in zip(
                boxes.number.tolist(),
                boxes.name.tolist(),
                boxes.kind.tolist(),
                lanes,
                boxes.row.tolist(),
                boxes.start_ns.tolist(),
                boxes.duration_ns.tolist(),
                strict=True,
            )
        ]


# Real jobs use up to some fifty streams, most of them hardly: those with least work share a lane.
MOST_STREAMS = 32

# Work on one stream overlaps by a few µs in real traces, where timestamps are inexact.
MOST_ROWS_OF_STREAM = 4

# Most jobs launch on one to three streams of a device.
MOST_QUEUES_OF_DEVICE = 8
MOST_QUEUES = 64

# Monitors write about ten per GPU. All are listed in the Recording view.
MOST_COUNTERS = 16

# The main thread, autograd's, and others that launch.
MOST_THREADS = 8

# Python stacks of compiled serving code reach some eighty frames.
MOST_DEPTH = 128

# Kind of a box next to the categories of events: communication kernels (NCCL, RCCL) have their own color.
COLLECTIVE_KIND = 13


class Lanes:
    """Collects lanes from top to bottom. A row is one depth of one lane."""

    def __init__(self) -> None:
        self.lanes: list[dict[str, Any]] = []
        self.parts: list[Boxes] = []
        self.curves: list[Pyramid] = []
        self.counters: list[Pyramid] = []
        self.rows = 0

    def add(self, kind: str, title: str, device: int, boxes: Boxes) -> None:
        """Add a lane of boxes, whose rows count from 0."""
        rows = int(boxes.row.max(initial=0)) + 1
        self.parts.append(replace(boxes, row=boxes.row + np.int32(self.rows)))
        self.lanes.append({"kind": kind, "title": title, "device": device, "rows": rows})
        self.rows += rows

    def add_curve(self, kind: str, title: str, device: int, curve: Pyramid, **more: str) -> None:
        """Add a lane of a queue or a counter, which has a curve and no boxes."""
        curves = self.curves if kind == "queue" else self.counters
        lane = {"kind": kind, "title": title, "device": device, "rows": 0, **more}
        self.lanes.append({**lane, "curve": len(curves), "most": curve.value.max().item()})
        curves.append(curve)


def add_idle(lanes: Lanes, device: DeviceFacts) -> None:
    ledger = device.ledger
    zeros = np.zeros(len(ledger), np.int64)
    boxes = Boxes.of(zeros, ledger.start_ns, ledger.end_ns, ledger.cause, zeros, ledger.gap)
    lanes.add("gaps", f"GPU {device.id} idle", device.id, boxes)


def add_streams(lanes: Lanes, device: DeviceFacts, events: Events, communication: Bool) -> None:
    """Add the device's streams with most work, and one lane for all others.

    communication: mask of the events that are communication kernels.
    """
    work = device.busy.work
    kind = np.where(communication, COLLECTIVE_KIND, events.category)
    for title, chosen in _streams(events.stream[work], events.duration_ns[work]):
        some = work[chosen]
        start_ns, end_ns = events.start_ns[some], events.end_ns[some]
        names = name_index(events.name[some])
        # Row of each span, so that overlapping spans do not share one; start_ns is ascending.
        open_before = np.arange(len(start_ns)) - np.searchsorted(np.sort(end_ns), start_ns, side="right")
        boxes = Boxes.of(
            np.clip(open_before, 0, MOST_ROWS_OF_STREAM - 1), start_ns, end_ns, names, kind[some], some
        )
        lanes.add("stream", f"GPU {device.id} {title}", device.id, boxes)


def _streams(stream: Int32, duration_ns: Int64) -> list[tuple[str, Bool]]:
    """Title of each lane, and mask of the work in it."""
    streams, own = np.unique(stream, return_inverse=True)
    time = np.bincount(own, duration_ns, len(streams))
    shown = mask_of(np.argsort(-time, kind="stable")[:MOST_STREAMS], len(streams))
    lanes = [(f"stream {streams[i]}", own == i) for i in np.flatnonzero(shown)]
    if not shown.all():
        lanes.append((f"{np.count_nonzero(~shown)} other streams", ~shown[own]))
    return lanes


def add_queues(lanes: Lanes, device: int, queues: Sequence[Queue], recording_start_ns: int) -> None:
    """Add the launch queues of the device's streams with most launches, if anything waited in them."""
    own = [queue for queue in queues if queue.device == device and (queue.begun_ns > queue.issued_ns).any()]
    most = sorted(own, key=lambda queue: -len(queue.call))[:MOST_QUEUES_OF_DEVICE]
    for queue in sorted(most[: MOST_QUEUES - len(lanes.curves)], key=lambda queue: queue.stream):
        title = f"GPU {device} stream {queue.stream} queue"
        # Depth of the queue from the recording's start.
        time, depth = queue.depth
        first = np.array([recording_start_ns])
        empty = first[first < time[0]]
        lanes.add_curve(
            "queue", title, device, build_pyramid(np.r_[empty, time], np.r_[np.zeros_like(empty), depth])
        )


def add_counters(lanes: Lanes, device: int, counters: Sequence[Counter]) -> None:
    """Add the curves of a device's counters, those with most samples. device: NONE for those of no device."""
    own = [counter for counter in counters if counter.device == device and counter.timed]
    for counter in own[: MOST_COUNTERS - len(lanes.counters)]:
        title = counter.name if device == NONE else f"GPU {device} {counter.name}"
        curve = build_pyramid(counter.time_ns, counter.value)
        lanes.add_curve("counter", title, device, curve, unit=counter.unit)


def add_thread(lanes: Lanes, thread: int, title: str, host: Host) -> None:
    events, tree = host.events, host.tree
    depth = tree.depth
    some = np.flatnonzero((events.thread == thread) & (depth >= 0) & (depth < MOST_DEPTH))
    names, kind = name_index(events.name[some]), events.category[some]
    boxes = Boxes.of(depth[some], tree.start_ns[some], events.end_ns[some], names, kind, some)
    lanes.add("thread", title, NONE, boxes)


def shown_threads(events: Events, launch: Int64, main_thread: int) -> list[int]:
    """The main thread, then threads that launch GPU work, busiest first. Without GPU work, threads that run
    operators."""
    main = [main_thread] if main_thread != NONE else []
    return [*main, *busiest_threads(events, launch, main_thread)][:MOST_THREADS]


def thread_title(events: Events, thread: int, main_thread: int) -> str:
    """Name of a host thread."""
    known = events.threads[thread]
    title = f"{known.name} ({known.tid})" if known.name else f"thread {known.tid}"
    return f"main: {title}" if thread == main_thread else title


def name_index(name: Int32) -> Int32:
    """Index of event names in the table of strings, where they follow the causes."""
    return (name + len(Cause)).astype(np.int32)
