"""Everything the plugin serves, without HTTP: the live list of traces, reports, and slices of timelines.

No request waits for an analysis, a scan or a store: it returns what is known now.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tb_gpudiag.errors import GpudiagError, LimitReached, Unreadable, UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.cache import Cache
from tb_gpudiag.service.entry import CorruptEntry, Entry
from tb_gpudiag.service.exports import Export, Exports, Order
from tb_gpudiag.service.index import LogIndex, Snapshot, TraceEntry
from tb_gpudiag.service.jobs import COMMAND, Jobs
from tb_gpudiag.service.listing import Listing
from tb_gpudiag.service.pending import Pending, diagnosis_key
from tb_gpudiag.service.record_rows import history_with
from tb_gpudiag.service.records import RecordReader
from tb_gpudiag.service.reductions import Reductions
from tb_gpudiag.service.related import ranks_of, recordings_of
from tb_gpudiag.service.roots import Root
from tb_gpudiag.service.runs import Runs, first_rows, gain_of, table_of
from tb_gpudiag.service.settings import Settings
from tb_gpudiag.service.slice_messages import Argument, Question
from tb_gpudiag.service.slices import Busy, Slices
from tb_gpudiag.version import __version__

# Traces in one answer: half a megabyte, before compression.
MOST_LISTED = 2000

# Files and folders that cannot be read: more are counted.
MOST_PROBLEMS = 100


Found = TypeVar("Found")


class UnknownTrace(Exception):
    """The log directory has no trace with this id."""


class Service:
    """Analyses of one log directory. Starts a scanning thread at once, and processes when needed."""

    def __init__(
        self,
        roots: Sequence[Root],
        settings: Settings,
        *,
        records: RecordReader | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._lock = threading.Lock()
        self._cache = Cache(settings.cache_directory, settings.cache_bytes)
        self._jobs = Jobs(
            settings, self._cache, on_change=self._changed, on_ready=self._ready, command=command
        )
        self._listing = Listing()
        self._listed = Snapshot()  # what the listing is of
        self._keys: dict[str, str] = {}  # by id; empty while there is nothing to read
        self._ids: dict[str, list[str]] = {}  # by key
        self._places: dict[str, int] = {}  # in the order of the list
        self._note = ""
        self._summaries: dict[str, dict[str, str] | None] = {}
        self._slices = Slices()
        self._exports = Exports()
        self._memory_limit_bytes = settings.memory_limit_bytes
        self._runs = Runs()
        self._reductions = Reductions(self._cache, self._jobs)
        self._records = records
        self._index = LogIndex(roots, records=records, on_change=self._look_up)
        self._index.start()
        if records is not None:
            records.start(self._index.wake)

    def close(self) -> None:
        """Stop the thread and the processes, without waiting for them."""
        self._index.close()
        if self._records is not None:
            self._records.close()
        self._jobs.close()
        self._slices.close()

    def has_traces(self, wait_s: float) -> bool:
        """Return whether the last scan found traces. Wait at most `wait_s` for the first scan to end."""
        if wait_s > 0:
            self._index.wait_for_first_scan(wait_s)
        return bool(self._index.snapshot().entries)

    def traces(self, known: int | None = None) -> pb.TraceList:
        """List the traces that have changed since the generation `known`, with the state of each analysis.

        Without `known`, or if it is not a generation of this list, all traces are listed. If there are many,
        the answer has a part of them, and says so.
        """
        self._index.snapshot()  # keeps the scans frequent
        with self._lock:
            if self._note != self._cache.note:
                self._note = self._cache.note
                self._listing.touch()
            if known == self._listing.number:
                return pb.TraceList(generation=known, unchanged=True)
            part = self._listing.since(known, MOST_LISTED)
            listed, places = self._listed, self._places
        problems = [*listed.problems[:MOST_PROBLEMS]]
        if len(listed.problems) > MOST_PROBLEMS:
            left_out = len(listed.problems) - MOST_PROBLEMS
            problems.append(GpudiagError(f"{left_out:,} other files or folders could not be read."))
        if self._note:
            problems.append(GpudiagError(self._note))
        entries = [listed.entries[id_] for id_ in sorted(part.changed, key=places.__getitem__)]
        return pb.TraceList(
            traces=[self._described(entry) for entry in entries],
            generation=part.number,
            scanned=listed.scanned,
            version=__version__,
            problems=[problem(error) for error in problems],
            removed=part.removed,
            whole=part.whole,
            more=part.more,
        )

    def runs(self, known: int | None = None, first: int | None = None) -> pb.RunTable:
        """Return the rows of the table of runs that have changed since the generation `known`.

        first: return the rows that the page shows first, this many, and the generation before all changes.
        """
        scanned = self._index.snapshot().scanned
        with self._lock:
            changes = self._runs.changes(known) if first is None else self._runs.all(first)
        if changes is None:
            return pb.RunTable(generation=known, unchanged=True, scanned=scanned)
        # Without the lock: the state of a job takes the lock that is held while a change of a job takes ours.
        if first is not None:
            changes = first_rows(changes, self._summary_of, first)
        table = table_of(changes, self._described, self._summary_of)
        table.scanned = scanned
        return table

    def report(self, id_: str) -> bytes | Pending:
        """Return the ReportState as gzipped JSON, or queue the analysis.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
        """
        record = self._entry(id_).record
        return record.answer if record is not None else self._result(id_, self._read_report)

    def timeline(self, id_: str, start_us: float | None, end_us: float | None, width: int) -> bytes | Pending:
        """Return the Timeline from `start_us` to `end_us` (None: of the trace), for `width` pixels.

        All slices are gzipped JSON.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
        """
        return self._slice(id_, "timeline", start_us, end_us, width)

    def memory(
        self, id_: str, device: int | None, start_us: float | None, end_us: float | None, width: int
    ) -> bytes | Pending:
        """Return the MemorySlice of a device (None: the first one) for `width` pixels.

        None as `start_us` or `end_us` means the start or end of the recording.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
            UsageError: the trace has no memory events of this device.
        """
        return self._slice(id_, "memory", device, start_us, end_us, width)

    def gap(self, id_: str, device: int, gap: int) -> bytes | Pending:
        """Return the GapChain of a gap: why the GPU was idle before, during and after it.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
            UsageError: the trace has no such gap.
        """
        return self._slice(id_, "gap", device, gap)

    def find(
        self,
        id_: str,
        text: str,
        regex: bool,
        kind: str,
        limit: int,
        first: int | None,
        near_us: float | None,
    ) -> bytes | Pending:
        """Return the Matches of a search for names: from the one with index `first`, else those near a time.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
            UsageError: the text cannot be searched for.
        """
        return self._slice(id_, "find", text, regex, kind, limit, first, near_us)

    def event(self, id_: str, number: int) -> bytes | Pending:
        """Return the EventDetails of an event.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
            UsageError: the timeline shows no such event.
        """
        return self._slice(id_, "event", number)

    def event_at(self, id_: str, lane: int, depth: int, start_us: float, previous: bool) -> bytes | Pending:
        """Return the EventDetails of the event in a row of the timeline at a time, or of the next one.
        previous: of the last one that begins before.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
            UsageError: the row has none.
        """
        return self._slice(id_, "event_at", lane, depth, start_us, previous)

    def range(self, id_: str, start_us: float | None, end_us: float | None) -> bytes | Pending:
        """Return the RangeStatistics of a time range (None: of the trace).

        Raises:
            UnknownTrace: there is no such trace, or no longer.
        """
        return self._slice(id_, "range", start_us, end_us)

    def export(self, id_: str, format_: str) -> Export | Pending:
        """Start to make a file of the trace and its analysis, in a format of exports.FORMATS.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
            LimitReached: others are being made.
            UsageError: this trace cannot be exported so.
        """
        entry = self._entry(id_)
        if entry.record is not None:
            raise _no_trace(entry)
        file, limit = entry.file, self._memory_limit_bytes
        found = self._result(
            id_, lambda _, path: self._exports.start(Order(str(path), file, format_, limit, os.getpid()))
        )
        if isinstance(found, Pending) and isinstance(found.error, LimitReached):
            raise found.error
        return found

    def calls(self, kind: str, id_: str, *arguments: Argument) -> bytes | Pending:
        """Return a table of operators or kernels, a row of one in detail, the call tree, or the roofline.

        kind: `operators`, `kernels`, `calls`, `callTree` or `roofline`; the arguments are those of the
        function in cutter.SLICERS.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
            UsageError: an argument is none of those there are.
        """
        return self._slice(id_, kind, *arguments)

    def job(self, id_: str) -> bytes | Pending:
        """Return the JobState of the job that this trace is a rank of, as gzipped JSON.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
        """
        entry = self._entry(id_)
        if entry.record is not None:
            return Pending("failed", error=_no_trace(entry))
        return self._reductions.ask("job", [ranks_of(self._index.snapshot().entries, id_)])

    def history(self, run: str) -> bytes | Pending:
        """Return the HistoryState of a run, as gzipped JSON.

        Raises:
            UnknownTrace: there is no such run, or no longer.
        """
        found = recordings_of(self._index.snapshot().entries, run)
        if not found:
            raise UnknownTrace(run)
        points = [entry.record.point for entry in found if entry.record is not None]
        traces = [entry for entry in found if entry.record is None]
        if not traces:
            return history_with(None, run, points)
        answer = self._reductions.ask("history", [traces])
        return answer if isinstance(answer, Pending) or not points else history_with(answer, run, points)

    def compare(self, base: str, candidate: str) -> bytes | Pending:
        """Return the ComparisonState of two traces, as gzipped JSON.

        Raises:
            UnknownTrace: one of them is not there, or no longer.
        """
        entries = [self._entry(base), self._entry(candidate)]
        for entry in entries:
            if entry.record is not None:
                return Pending("failed", error=_no_trace(entry))
        return self._reductions.ask("compare", [[entry] for entry in entries])

    def cancel(self, id_: str) -> bool:
        """Stop the queued or running analysis of this trace. Return False if there is none.

        Raises:
            UnknownTrace: there is no such trace, or no longer.
        """
        return self._jobs.cancel(diagnosis_key(self._entry(id_)))

    def status(self) -> dict[str, Any]:
        """Return the state of the service, for troubleshooting."""
        snapshot = self._index.snapshot()
        return {
            "version": __version__,
            "scanned": snapshot.scanned,
            "traces": len(snapshot.entries),
            "jobs": self._jobs.counts(),
            "cache_bytes": self._cache.size_bytes(),
            "notes": [self._cache.note] if self._cache.note else [],
        }

    def _entry(self, id_: str) -> TraceEntry:
        entry = self._index.snapshot().entries.get(id_)
        if entry is None:
            raise UnknownTrace(id_)
        return entry

    def _read_report(self, key: str, _path: Path) -> bytes:
        entry = self._cache.find(key)
        if entry is None:
            raise CorruptEntry(key)
        return entry.report_gz()

    def _slice(self, id_: str, kind: str, *arguments: Argument) -> bytes | Pending:
        return self._result(id_, lambda _, path: self._slices.get(Question(str(path), kind, arguments)))

    def _result(self, id_: str, read: Callable[[str, Path], Found]) -> Found | Pending:
        """Return `read` of the trace's cache entry. Queue an analysis if there is none or it is corrupt."""
        trace = self._entry(id_)
        if trace.record is not None:
            return Pending("failed", error=_no_trace(trace))
        if not trace.content:
            return Pending("queued", stage="The file is still being written.")
        key = diagnosis_key(trace)
        path = self._cache.place(key)
        if path is not None:
            try:
                return read(key, path)
            except CorruptEntry:
                self._cache.drop(path)
                self._forget(key)
            except Busy:
                return Pending("queued", stage="Many pages are asking for slices.")
            except UsageError:
                raise
            except GpudiagError as error:
                return Pending("failed", error=error)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                return Pending(
                    "failed",
                    error=Unreadable(f"The cached result cannot be read: {reason}.", where=str(path)),
                )
        job = self._jobs.ask(key, trace.file)
        return Pending(job.state, job.progress, job.stage, job.error)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._summaries[key] = None
            self._note_change(key)

    def _described(self, entry: TraceEntry) -> pb.TraceEntry:
        key = self._keys.get(entry.id, "")
        summary = self._summary_of(entry)
        job = self._jobs.state(key) if summary is None else None
        return pb.TraceEntry(
            id=entry.id,
            run=entry.file.run,
            worker=entry.file.worker,
            span=entry.file.span,
            size_bytes=entry.file.size_bytes,
            modified_s=entry.file.modified_ns / 1e9,
            state="ready" if summary is not None else job.state if job is not None else "new",
            error=problem(job.error) if job is not None and job.error is not None else None,
            limiter=summary.get("limiter", "") if summary else "",
            sentence=summary.get("sentence", "") if summary else "",
            writing=entry.writing,
            content=entry.content,
            kind=entry.file.kind if entry.record is None else "record",
        )

    def _summary_of(self, entry: TraceEntry) -> Mapping[str, str] | None:
        if entry.record is not None:
            return entry.record.summary
        return self._summaries.get(self._keys.get(entry.id, ""))

    def _look_up(self, snapshot: Snapshot) -> None:
        """Look for results from earlier, or from another TensorBoard. Runs on the scanning thread."""
        before = self._listed.entries
        changed = {id_ for id_, entry in snapshot.entries.items() if before.get(id_) is not entry}
        keys = {id_: self._keys[id_] for id_ in snapshot.entries if id_ not in changed}
        keys.update({id_: diagnosis_key(snapshot.entries[id_]) for id_ in changed})
        ids = _by_key(keys)
        found = self._found(ids)
        with self._lock:  # an analysis may have finished meanwhile
            summaries = {key: self._summaries.get(key) or summary for key, summary in found.items()}
            new = [key for key in summaries if summaries[key] and not self._summaries.get(key)]
            changed.update(*(ids[key] for key in new))
            self._summaries, self._keys, self._ids = summaries, keys, ids
            self._places = {id_: place for place, id_ in enumerate(snapshot.entries)}
            self._listed = snapshot
            self._listing.remove(before.keys() - snapshot.entries.keys())
            self._listing.change(id_ for id_ in snapshot.entries if id_ in changed)
            self._listing.touch()  # the problems may have changed
            self._runs.update(snapshot.entries)
            self._runs.change(snapshot.entries[id_].file.run for key in new for id_ in ids[key])

    def _found(self, keys: Iterable[str]) -> dict[str, dict[str, str] | None]:
        """Return the summary of each key that is not empty, None if there is no result."""
        there = self._cache.keys()
        return {
            key: self._summaries.get(key) or (self._summary(key) if key in there else None)
            for key in keys
            if key
        }

    def _summary(self, key: str) -> dict[str, str] | None:
        entry = self._cache.find(key)
        if entry is None:
            return None
        if entry.summary.get("row"):
            gain_of(entry.summary["row"])  # parsed here, where no page waits for it
        return dict(entry.summary)

    def _ready(self, key: str, entry: Entry) -> None:
        with self._lock:
            self._summaries[key] = dict(entry.summary)

    def _changed(self, key: str) -> None:
        with self._lock:
            self._note_change(key)

    def _note_change(self, key: str) -> None:
        """Note that the state of the traces with this key has changed. The lock is held."""
        ids = self._ids.get(key, ())
        self._listing.change(ids)
        entries = self._listed.entries
        self._runs.change(entries[id_].file.run for id_ in ids if id_ in entries)


def problem(error: GpudiagError) -> pb.Problem:
    """Convert an error to its message."""
    return pb.Problem(what=error.what, where=error.where, remedy=error.remedy)


def _no_trace(entry: TraceEntry) -> UsageError:
    return UsageError(
        "The trace was not kept: this is the record that the training job left in an event file.",
        where=entry.file.path,
        remedy="The record has the verdict, the findings and the steps: see the summary.",
    )


def _by_key(keys: Mapping[str, str]) -> dict[str, list[str]]:
    """Ids of each key."""
    ids: dict[str, list[str]] = {}
    for id_, key in keys.items():
        ids.setdefault(key, []).append(id_)
    return ids
