"""The table of runs: a row for each folder with traces, and what has changed since a page last asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.index import TraceEntry
from tb_gpudiag.service.listing import Listing
from tb_gpudiag.service.related import time_ns

# Rows in one answer: a quarter of a megabyte, before compression.
MOST_ROWS = 500

Described = Callable[[TraceEntry], pb.TraceEntry]
"""Returns the trace's entry in the list of traces, with its state."""

Summary = Callable[[TraceEntry], Mapping[str, str] | None]
"""Returns what the list shows of an analyzed trace; None for others."""


class Runs:
    """Which runs there are, and which of them have changed. Not safe for threads: the caller locks."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._traces: dict[str, list[TraceEntry]] = {}  # by run, the newest last

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

    def change(self, runs: Iterable[str]) -> None:
        """Note that the analysis of a trace of these runs has changed."""
        self._listing.change({run for run in runs if run in self._traces})

    def table(self, known: int | None, described: Described, summary: Summary) -> pb.RunTable:
        """Return the rows that have changed since `known`, as `Listing.since` does."""
        if known == self._listing.number:
            return pb.RunTable(generation=known, unchanged=True)
        part = self._listing.since(known, MOST_ROWS)
        return pb.RunTable(
            rows=[_row(run, self._traces[run], described, summary) for run in part.changed],
            generation=part.number,
            total=len(self._traces),
            removed=part.removed,
            whole=part.whole,
            more=part.more,
        )


def _row(run: str, traces: Sequence[TraceEntry], described: Described, summary: Summary) -> pb.RunRow:
    """Return the row of a run: figures of its newest analyzed recording, and the state of the newest one."""
    newest = traces[-1]
    row = pb.RunRow()
    for trace in reversed(traces):
        found = summary(trace)
        if found is not None and found.get("row"):
            row = from_json(found["row"], pb.RunRow)
            newest = trace
            break
    state = described(newest)
    workers = Counter(trace.file.worker for trace in traces if trace.file.kind == newest.file.kind)
    row.id = row.run = run
    row.worker = newest.file.worker
    row.kind = "job" if len(workers) > 1 and newest.file.kind == "trace" else newest.file.kind
    row.ranks = len(workers)
    row.recordings = max(workers.values())
    row.time_s = row.time_s or time_ns(newest) / 1e9
    row.state = state.state
    row.trace_id = newest.id
    if state.HasField("error"):
        row.error.CopyFrom(state.error)
    return row
