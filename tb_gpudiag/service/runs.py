"""The table of runs: a row for each folder with traces, and what has changed since a page last asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.index import TraceEntry
from tb_gpudiag.service.listing import Listing, Part
from tb_gpudiag.service.related import time_ns
from tb_gpudiag.wording.format import share

# Rows in one answer: a quarter of a megabyte, before compression.
MOST_ROWS = 500

# Smaller changes are noise from recording to recording.
LEAST_CHANGE = 0.02

Described = Callable[[TraceEntry], pb.TraceEntry]
"""Returns the trace's entry in the list of traces, with its state."""

Summary = Callable[[TraceEntry], Mapping[str, str] | None]
"""Returns what the list shows of an analyzed trace; None for others."""


class Changes(NamedTuple):
    """What has changed: `traces` of each run of `part`, never modified later.

    total: number of all runs. folders: whether several folders have several runs, so that the page shows the
    runs by folder.
    """

    part: Part
    traces: list[list[TraceEntry]]
    total: int
    folders: bool


class Runs:
    """Which runs there are, and which of them have changed. Not safe for threads: the caller locks."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._traces: dict[str, list[TraceEntry]] = {}  # by run, the newest last
        self._folders = False

    def update(self, entries: Mapping[str, TraceEntry]) -> None:
        """Take over the traces of a scan."""
        traces: dict[str, list[TraceEntry]] = {}
        for entry in entries.values():
            traces.setdefault(entry.file.run, []).append(entry)
        for found in traces.values():
            found.sort(key=time_ns)
        self._listing.remove(self._traces.keys() - traces.keys())
        self._listing.change(run for run, found in traces.items() if self._traces.get(run) != found)
        self._traces = traces
        runs_in = Counter(map(_folder, traces))
        self._folders = sum(count > 1 for count in runs_in.values()) > 1

    def change(self, runs: Iterable[str]) -> None:
        """Note that the analysis of a trace of these runs has changed."""
        self._listing.change({run for run in runs if run in self._traces})

    def changes(self, known: int | None) -> Changes | None:
        """Return the runs that have changed since `known`, as `Listing.since` does; None if none has."""
        if known == self._listing.number:
            return None
        part = self._listing.since(known, MOST_ROWS)
        return self._changes(part, part.changed)

    def all(self, at_once: int) -> Changes | None:
        """Return all runs, as changes after which the page knows of none if there are more than `at_once`."""
        if len(self._traces) <= at_once:
            return self.changes(None)
        runs = list(self._traces)
        return self._changes(Part(runs, [], self._listing.first, whole=True, more=True), runs)

    def _changes(self, part: Part, runs: Iterable[str]) -> Changes:
        return Changes(part, [self._traces[run] for run in runs], len(self._traces), self._folders)


def table_of(changes: Changes, described: Described, summary: Summary) -> pb.RunTable:
    """Return the rows of the runs that have changed. Call it without a lock: `described` takes one."""
    part = changes.part
    return pb.RunTable(
        rows=[_row(traces, described, summary) for traces in changes.traces],
        generation=part.number,
        total=changes.total,
        removed=part.removed,
        whole=part.whole,
        more=part.more,
        folders=changes.folders,
    )


def first_rows(changes: Changes, summary: Summary, most: int) -> Changes:
    """Return the runs that the page shows first: with the most to gain, by folder if there are folders."""
    ordered = sorted(changes.traces, key=lambda traces: _gain(traces, summary), reverse=True)
    if changes.folders:
        places: dict[str, int] = {}
        for traces in ordered:
            places.setdefault(_folder(traces[0].file.run), len(places))
        ordered.sort(key=lambda traces: places[_folder(traces[0].file.run)])
    return changes._replace(traces=ordered[:most])


def _gain(traces: Sequence[TraceEntry], summary: Summary) -> tuple[float, float]:
    """Return what a fix saves in the newest analyzed recording, and its time."""
    for trace in reversed(traces):
        found = summary(trace)
        if found is not None and found.get("row"):
            return gain_of(found["row"])
    return 0.0, time_ns(traces[-1]) / 1e9


@lru_cache(1 << 17)
def gain_of(row: str) -> tuple[float, float]:
    """Return `saving_share` and `time_s` of a RunRow in JSON. Parsing thousands takes a tenth of a second."""
    fields = json.loads(row)
    return fields.get("saving_share", 0.0), fields.get("time_s", 0.0)


def _folder(run: str) -> str:
    return run.rpartition("/")[0]


def _row(traces: Sequence[TraceEntry], described: Described, summary: Summary) -> pb.RunRow:
    """Return the row of a run: figures of its newest analyzed recording, and the state of the newest one."""
    analyzed = _analyzed(traces, summary)
    newest, row = next(analyzed, (traces[-1], pb.RunRow()))
    before = next((other for trace, other in analyzed if trace.file.worker == newest.file.worker), None)
    if before is not None:
        row.change = change_between(before, row)
    state = described(newest)
    workers = Counter(trace.file.worker for trace in traces if trace.file.kind == newest.file.kind)
    row.id = row.run = newest.file.run
    row.worker = newest.file.worker
    row.kind = state.kind
    if len(workers) > 1 and state.kind == "trace":
        row.kind = "job"
    row.ranks = len(workers)
    row.recordings = max(workers.values())
    row.time_s = row.time_s or time_ns(newest) / 1e9
    row.state = state.state
    row.trace_id = newest.id
    if state.HasField("error"):
        row.error.CopyFrom(state.error)
    return row


def _analyzed(traces: Sequence[TraceEntry], summary: Summary) -> Iterator[tuple[TraceEntry, pb.RunRow]]:
    """Yield the analyzed recordings with their rows, the newest first."""
    for trace in reversed(traces):
        found = summary(trace)
        if found is not None and found.get("row"):
            yield trace, from_json(found["row"], pb.RunRow)


def change_between(before: pb.RunRow, now: pb.RunRow) -> str:
    """Say what changed since the recording before: step time and memory. "" if nothing did.

    A step counts as changed if the middle halves of both recordings' steps do not overlap.
    """
    changes = []
    apart = now.low_step_us > before.high_step_us or now.high_step_us < before.low_step_us
    if before.step_us > 0 and now.step_us > 0 and apart:
        ratio = now.step_us / before.step_us - 1
        if abs(ratio) >= LEAST_CHANGE:
            changes.append(f"step {share(abs(ratio))} {'slower' if ratio > 0 else 'faster'}")
    memory = now.memory_share - before.memory_share
    if before.memory_share > 0 and now.memory_share > 0 and abs(memory) >= LEAST_CHANGE:
        changes.append(f"memory from {share(before.memory_share)} to {share(now.memory_share)}")
    return ", ".join(changes)
