"""Everything that the plugin serves, without HTTP: the live list of traces, reports, slices of timelines.

No request waits for an analysis, a scan or a store: a request returns what is known now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tb_gpudiag.errors import CorruptEntry, GpudiagError, LimitReached, Unreadable, UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.slice_table import SLICES, QueryValues
from tb_gpudiag.service.analyses.analysis_queue import MODULE, AnalysisQueue
from tb_gpudiag.service.analyses.reductions import Reduced, Reductions
from tb_gpudiag.service.analyses.task import Pending, Task, keys_of
from tb_gpudiag.service.caches.cache import Cache
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.exports import Export, Exports, Order
from tb_gpudiag.service.index.log_index import LogIndex, Snapshot, TraceEntry
from tb_gpudiag.service.index.overview import Overview
from tb_gpudiag.service.index.records import RecordReader
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.service.index.runs import newest_of_runs, ranks_of, recordings_of
from tb_gpudiag.service.settings import Settings
from tb_gpudiag.service.slices import Question, Slices, SlicesBusy
from tb_gpudiag.trace.files.source import is_remote
from tb_gpudiag.version import __version__

_Found = TypeVar("_Found")


_WRITING = Pending("queued", stage="The file is still being written.")


class UnknownTrace(Exception):
    """The log directory has no trace with this id."""


class GoneTrace(UnknownTrace):
    """It had one, or may have had."""


class Service:
    """Serves one log directory. Starts a scanning thread at once, and processes when they are needed."""

    def __init__(
        self,
        roots: Sequence[Root],
        settings: Settings,
        *,
        records: RecordReader | None = None,
        module: str = MODULE,
    ) -> None:
        self._cache = Cache(settings.cache_directory, settings.cache_bytes)
        self._overview = Overview(
            self._cache,
            lambda key: self._analyses.state(key),
            lambda ranks, there: self._reductions.known_job(ranks, there),
            SharedCache.of(settings),
        )
        self._analyses = AnalysisQueue(
            settings,
            self._cache,
            on_change=self._overview.changed,
            on_ready=self._overview.ready,
            module=module,
        )
        self._slices = Slices()
        self._exports = Exports()
        self._memory_limit_bytes = settings.memory_limit_bytes
        self._reductions = Reductions(self._cache, self._analyses)
        self._records = records
        self._left_at_start = settings.analyze_at_start
        self._index = LogIndex(roots, records=records, on_change=self._take_over)
        self._index.start()
        if records is not None:
            records.start(self._index.wake)

    def close(self) -> None:
        """Stop threads and processes, without waiting for them."""
        self._index.close()
        if self._records is not None:
            self._records.close()
        self._analyses.close()
        self._slices.close()
        self._overview.close()

    def has_traces(self, wait_s: float) -> bool:
        """Return whether the last scan found traces, or a store did not answer.

        Wait at most `wait_s` for the first scan to end.
        """
        if wait_s > 0:
            self._index.wait_for_first_scan(wait_s)
        last = self._index.snapshot()
        return bool(last.entries) or any(is_remote(problem.where) for problem in last.problems)

    def traces(self, known: int | None = None) -> pb.TraceList:
        """List the traces that have changed: see Overview."""
        self._index.snapshot()  # keeps the scans frequent
        return self._overview.traces(known)

    def runs(self, known: int | None = None, first: int | None = None) -> pb.RunTable:
        """Return the rows of the runs that have changed: see Overview."""
        self._index.snapshot()
        return self._overview.runs(known, first)

    def report(self, id_: str) -> bytes | Pending:
        """Return the ReportState as gzipped JSON, or queue the analysis. It may be of one that still runs.
        Raises UnknownTrace: there is no such trace (any more)."""
        entry = self._entry(id_)
        if entry.record is not None:
            return entry.record.answer
        found = self._result(id_, lambda key, _: self._read_report(key))
        keys = keys_of(entry)
        if not isinstance(found, Pending) or found.state == "failed" or keys is None:
            return found
        if self._cache.place(keys.report) is None:
            self._analyses.cancel(keys.report)  # it would read the trace a second time
            return found.report or found
        try:
            return found.report or self._read_report(keys.report)
        except (CorruptEntry, OSError):
            return found

    def report_ahead(self, id_: str) -> Pending:
        """Have a trace diagnosed that nobody waits for, without its timeline. Return how far that is. Raises
        UnknownTrace: there is no such trace (any more)."""
        entry = self._entry(id_)
        keys = keys_of(entry)
        if keys is None:
            return _WRITING if entry.record is None else Pending("failed", error=_no_trace(entry))
        if self._cache.place(keys.whole) is not None or self._cache.place(keys.report) is not None:
            return Pending("ready", 1.0)
        return self._analyses.ask(keys.report, Task(entry.file, "report"), awaited=False)

    def slice(self, kind: str, id_: str, values: QueryValues) -> bytes | Pending:
        """Return a slice of the trace's timeline or memory, as gzipped JSON. kind, values: of SLICES.

        Raises:
            UnknownTrace: there is no such trace (any more).
            UsageError: a value is invalid, or the trace has nothing there.
        """
        arguments = SLICES[kind].arguments(values)
        entry = self._entry(id_)
        error = _without_trace(entry)
        if error is not None and (kind, entry.file.kind) != ("clock", "clock"):
            return Pending("failed", error=error)
        return self._result(id_, lambda _, path: self._slices.get(Question(str(path), kind, arguments)))

    def export(self, id_: str, format_: str, rule: str = "") -> Export | Pending:
        """Start to make a file of the trace and its analysis, in a format of exports.FORMATS.

        rule: of the finding that a `dispute` is about.

        Raises:
            UnknownTrace: there is no such trace (any more).
            LimitReached: too many other files are being made.
            UsageError: this trace cannot be exported in this format.
        """
        entry = self._entry(id_)
        if entry.record is not None:
            raise _no_trace(entry)
        file, limit = entry.file, self._memory_limit_bytes
        found = self._result(
            id_, lambda _, path: self._exports.start(Order(str(path), file, format_, limit, rule))
        )
        if isinstance(found, Pending) and isinstance(found.error, LimitReached):
            raise found.error
        return found

    def job(self, id_: str, *, awaited: bool = True) -> bytes | Pending:
        """Return the ReportState of the job that this trace is a rank of, as gzipped JSON. awaited: see
        AnalysisQueue.ask. Raises UnknownTrace: there is no such trace (any more)."""
        entry = self._entry(id_)
        error = _without_trace(entry)
        if error is not None:
            return Pending("failed", error=error)
        ranks = ranks_of(self._entries().values(), entry)
        found = self._reductions.ask("job", [ranks], awaited=awaited)
        self._overview.note_job(id_, found)
        return _content(found)

    def history(self, run: str) -> bytes | Pending:
        """Return the ReportState of a run, as gzipped JSON. Raises UnknownTrace: there is no such run
        (any more)."""
        found = recordings_of(self._entries(), run)
        if not found:
            raise GoneTrace(run)
        traces = [entry for entry in found if entry.record is None]
        records = [entry.record for entry in found if entry.record is not None]
        return _content(self._reductions.ask("history", [traces], records))

    def compare(self, base: str, candidate: str) -> bytes | Pending:
        """Return the ReportState of two traces, as gzipped JSON. Raises UnknownTrace: one of them is
        not there (any more)."""
        entries = [self._entry(base), self._entry(candidate)]
        for entry in entries:
            error = _without_trace(entry)
            if error is not None:
                return Pending("failed", error=error)
        return _content(self._reductions.ask("compare", [[entry] for entry in entries]))

    def cancel(self, id_: str) -> bool:
        """Stop the queued or running analysis of this trace. Return False if there is none."""
        entry = self._entries().get(id_)
        keys = keys_of(entry) if entry is not None else None
        stopped = [self._analyses.cancel(key) for key in keys or ()]
        return any(stopped)

    def status(self) -> dict[str, Any]:
        """Return the state of the service, for troubleshooting."""
        snapshot = self._index.snapshot()
        return {
            "version": __version__,
            "scanned": snapshot.scanned,
            "traces": len(snapshot.entries),
            "jobs": self._analyses.counts(),
            "cache_bytes": self._cache.size_bytes(),
            "notes": self._overview.notes(),
        }

    def _take_over(self, snapshot: Snapshot) -> None:
        """Take over a scan. After the first one that found traces, analyze as many runs as the user wants."""
        self._overview.look_up(snapshot)
        if self._left_at_start and snapshot.entries:
            for trace in newest_of_runs(snapshot.entries.values())[: self._left_at_start]:
                keys = keys_of(trace)
                if keys is not None and self._cache.place(keys.whole) is None:
                    self._analyses.begin(keys.whole, Task(trace.file))
            self._left_at_start = 0

    def _entries(self) -> Mapping[str, TraceEntry]:
        """Return the traces that are listed, by id."""
        self._index.snapshot()  # keeps the scans frequent
        return self._overview.entries()

    def _entry(self, id_: str) -> TraceEntry:
        entry = self._entries().get(id_)
        if entry is None:
            raise GoneTrace(id_) if self._overview.may_be_gone(id_) else UnknownTrace(id_)
        return entry

    def _read_report(self, key: str) -> bytes:
        entry = self._cache.find(key)
        if entry is None:
            raise CorruptEntry.at(key)
        return entry.report_gz()

    def _result(self, id_: str, read: Callable[[str, Path], _Found]) -> _Found | Pending:
        """Return what `read` returns for the trace's cache entry. Queue the analysis if there is no entry."""
        trace = self._entry(id_)
        keys = keys_of(trace)
        if keys is None:
            return _WRITING if trace.record is None else Pending("failed", error=_no_trace(trace))
        key = keys.whole
        path = self._cache.place(key)
        if path is not None:
            try:
                return read(key, path)
            except CorruptEntry:
                self._cache.drop(path)
                self._overview.forget(key)
            except SlicesBusy:
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
        return self._analyses.ask(key, Task(trace.file))


def _content(found: Reduced | Pending) -> bytes | Pending:
    return found.content if isinstance(found, Reduced) else found


def _without_trace(entry: TraceEntry) -> UsageError | None:
    """Return why an entry has a report and no more; None if it has a trace."""
    if entry.file.kind == "hang":
        return UsageError(
            "Dumps of the flight recorder have no times and no memory.",
            where=entry.file.path,
            remedy="They say which rank holds up the job: see the summary.",
        )
    if entry.file.kind == "clock":
        return UsageError(
            "A step clock has steps and phases, and no events.",
            where=entry.file.path,
            remedy="The recordings that it asked for have them: see its summary.",
        )
    return _no_trace(entry) if entry.record is not None else None


def _no_trace(entry: TraceEntry) -> UsageError:
    return UsageError(
        "The trace was not kept: this is the record that the training job left in an event file.",
        where=entry.file.path,
        remedy="The record has the verdict, the findings and the steps: see the summary.",
    )
