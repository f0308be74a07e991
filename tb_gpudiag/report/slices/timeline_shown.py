"""The events that lanes show, by their numbers: where each is, and which of them a range has.

A box of one event (`birth` 0) in a lane of events is that event. So the boxes are the list of all events, and
nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.intervals import expand
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, read_meta, text_at
from tb_gpudiag.report.slices.timeline_levels import Boxes, Levels, segment_ranges

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
