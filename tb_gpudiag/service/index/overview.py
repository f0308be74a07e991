"""What the pages list: traces and runs, and the state of the analysis of each.

Scans of the log directory and changes of analyses update the lists. Pages ask for what has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.service.analyses.reductions import Reduced
from tb_gpudiag.service.analyses.task import Pending, ResultKeys, keys_of, problem
from tb_gpudiag.service.caches.cache import Cache
from tb_gpudiag.service.caches.cache_entry import CacheEntry
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.caches.sharing import Sharing
from tb_gpudiag.service.index.log_index import Snapshot, TraceEntry
from tb_gpudiag.service.index.runs import (
    Listing,
    Runs,
    by_run,
    first_rows,
    newest_analyzed,
    of_several_ranks,
    place_of,
    ranks_of,
    table_of,
)
from tb_gpudiag.trace.files.file_names import named_rank

# Traces in one answer: half a megabyte, before compression.
MOST_LISTED = 2000

# Files and folders that cannot be read and are named. Further ones are only counted.
MOST_PROBLEMS = 100


class Overview:
    """Lists of traces and of runs. Safe for threads.

    state_of(key) returns the state of the analysis that makes a cache entry; None if there is none.
    known_job: see Reductions.
    """

    def __init__(
        self,
        cache: Cache,
        state_of: Callable[[str], Pending | None],
        known_job: Callable[[Sequence[TraceEntry], Container[str]], Mapping[str, str] | None],
        shared: SharedCache | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._cache = cache
        self._state_of = state_of
        self._known_job = known_job
        self._sharing = Sharing(shared, self._found_elsewhere)
        self._listing = Listing()
        self._listed = Snapshot()  # the scan that is listed
        self._keys: dict[str, ResultKeys | None] = {}  # by id; None while there is nothing to read
        self._ids: dict[str, list[str]] = {}  # by key
        self._places: dict[str, int] = {}  # by id: its place in the list
        self._notes: list[str] = []
        self._summaries: dict[str, dict[str, str] | None] = {}
        self._runs = Runs()
        self._jobs: dict[str, Mapping[str, str]] = {}  # summaries of jobs, by the id of a rank's trace

    def traces(self, known: int | None = None) -> pb.TraceList:
        """List the traces that have changed since the generation `known`, with the state of each analysis.

        Without `known`, or if it is no generation of this list, all traces are listed. If there are many, the
        answer contains some of them, and says so.
        """
        with self._lock:
            if self._notes != (notes := self.notes()):
                self._notes = notes
                self._listing.touch()
            if known == self._listing.number:
                return pb.TraceList(generation=known, unchanged=True)
            part = self._listing.since(known, MOST_LISTED)
            listed, places = self._listed, self._places
        problems = [*listed.problems[:MOST_PROBLEMS]]
        if len(listed.problems) > MOST_PROBLEMS:
            left_out = len(listed.problems) - MOST_PROBLEMS
            problems.append(GpudiagError(f"{left_out:,} other files or folders could not be read."))
        problems += map(GpudiagError, notes)
        entries = [listed.entries[id_] for id_ in sorted(part.changed, key=places.__getitem__)]
        return pb.TraceList(
            traces=[self.described(entry) for entry in entries],
            generation=part.number,
            scanned=listed.scanned,
            problems=[problem(error) for error in problems],
            removed=part.removed,
            whole=part.whole,
            more=part.more,
        )

    def runs(self, known: int | None = None, first: int | None = None) -> pb.RunTable:
        """Return the rows of the table of runs that have changed since the generation `known`.

        first: return this many rows, those that the page shows first, and the generation before all changes.
        """
        with self._lock:
            scanned = self._listed.scanned
            changes = self._runs.changes(known) if first is None else self._runs.all(first)
        if changes is None:
            return pb.RunTable(generation=known, unchanged=True, scanned=scanned)
        # Without the lock: asking for the state of an analysis takes the queue's lock, which the queue holds
        # while it calls `changed`, which takes our lock.
        if first is not None:
            changes = first_rows(changes, self, first)
        table = table_of(changes, self)
        table.scanned = scanned
        return table

    def look_up(self, snapshot: Snapshot) -> None:
        """Take over a scan, and look for results that are there already. Runs on the scanning thread."""
        before = self._listed.entries
        changed = {id_ for id_, entry in snapshot.entries.items() if before.get(id_) is not entry}
        # The keys of each trace, by id. changed: ids of traces that are new or have changed.
        keys = {
            id_: keys_of(entry) if id_ in changed else self._keys[id_]
            for id_, entry in snapshot.entries.items()
        }
        ids = _by_key(keys)
        there = self._cache.keys()
        # The summary of each key, or None if there is no result.
        found = {
            key: self._summaries.get(key) or (self._summary(key) if key in there else None) for key in ids
        }
        runs = by_run(snapshot.entries.values())
        jobs = self._found_jobs(runs, there, lambda entry: _first(found, keys[entry.id]))
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
            # Take over the runs of a scan, and the jobs that were found. The lock is held.
            kept = snapshot.entries.keys() - {e.id for run in self._runs.changed_in(runs) for e in runs[run]}
            others = {id_: job for id_, job in self._jobs.items() if id_ in kept}
            self._runs.update(runs)
            self._runs.change(snapshot.entries[id_].file.run for id_ in jobs if id_ not in others)
            self._jobs = {**jobs, **others}
            self._runs.change(snapshot.entries[id_].file.run for key in new for id_ in ids[key])
        missing = {id_: of for id_, of in keys.items() if of is not None and _first(summaries, of) is None}
        self._sharing.look_for({of.report: snapshot.entries[id_].file for id_, of in missing.items()})

    def ready(self, key: str, entry: CacheEntry) -> None:
        """Note that there is a result, and share it."""
        with self._lock:
            self._summaries[key] = dict(entry.summary)
        self._sharing.offer(entry)

    def entries(self) -> Mapping[str, TraceEntry]:
        """Return the traces of the last scan, by id."""
        return self._listed.entries

    def may_be_gone(self, id_: str) -> bool:
        """Return whether a trace that is not listed was there, as far as is known: before the first scan has
        ended, it may have been."""
        with self._lock:
            return not self._listed.scanned or self._listing.has_removed(id_)

    def notes(self) -> list[str]:
        """Return why results are not kept, or not shared."""
        return [note for note in (self._cache.note, self._sharing.note) if note]

    def close(self) -> None:
        """Stop sharing, without waiting."""
        self._sharing.close()

    def _found_elsewhere(self, key: str, summary: Mapping[str, str]) -> None:
        """Note that another user has a result, which the analysis will take over."""
        with self._lock:
            if key in self._summaries and not self._summaries[key]:
                self._summaries[key] = dict(summary)
                self._note_change(key)

    def note_job(self, id_: str, found: Reduced | Pending) -> None:
        """Note the answer about the job of this trace."""
        if isinstance(found, Pending):
            if found.state != "failed":
                return
            job: Mapping[str, str] = {}  # not a rank of a job that can be read
        else:
            job = found.summary
        with self._lock:
            entry = self._listed.entries.get(id_)
            if entry is not None and self._jobs.get(id_) != job:
                self._jobs[id_] = job
                self._runs.change([entry.file.run])

    def changed(self, key: str) -> None:
        """Note that the state of an analysis has changed."""
        with self._lock:
            self._note_change(key)

    def forget(self, key: str) -> None:
        """Note that the result of this key is gone."""
        with self._lock:
            self._summaries[key] = None
            self._note_change(key)

    def described(self, entry: TraceEntry) -> pb.TraceEntry:
        """See TraceStates."""
        keys = self._keys.get(entry.id)
        summary = self.summary_of(entry)
        # Who opens a trace with a report alone has it analyzed again, for its timeline.
        found = (self._state_of(key) for key in keys or () if not self._summaries.get(key))
        analysis = next((of for of in found if of is not None and not (summary and of.error)), None)
        return pb.TraceEntry(
            id=entry.id,
            run=entry.file.run,
            worker=entry.file.worker,
            span=entry.file.span,
            size_bytes=entry.file.size_bytes,
            modified_s=entry.file.modified_ns / 1e9,
            state=analysis.state if analysis is not None else "ready" if summary is not None else "new",
            error=problem(analysis.error) if analysis is not None and analysis.error is not None else None,
            limiter=summary.get("limiter") if summary else None,
            sentence=summary.get("sentence", "") if summary else "",
            writing=entry.writing,
            content=entry.content,
            kind=entry.file.kind if entry.record is None else "record",
            origin=summary.get("origin", "") if summary else "",
            of_rank=entry.file.kind == "snapshot" and named_rank(entry.file.worker) is not None,
        )

    def job_of(self, entry: TraceEntry) -> Mapping[str, str] | None:
        """See TraceStates."""
        return self._jobs.get(entry.id)

    def summary_of(self, entry: TraceEntry) -> Mapping[str, str] | None:
        """See TraceStates."""
        if entry.record is not None:
            return entry.record.summary
        return _first(self._summaries, self._keys.get(entry.id))

    def _found_jobs(
        self,
        runs: Mapping[str, list[TraceEntry]],
        there: Container[str],
        summary_of: Callable[[TraceEntry], Mapping[str, str] | None],
    ) -> dict[str, Mapping[str, str]]:
        """Return the summaries of jobs that are in the cache and not known yet, by the id of a trace."""
        changed = set(self._runs.changed_in(runs))
        jobs = {}
        for run, traces in runs.items():
            newest = newest_analyzed(traces, summary_of)
            if of_several_ranks(traces, newest) and (run in changed or newest.id not in self._jobs):
                known = self._known_job(ranks_of(traces, newest), there)
                if known is not None:
                    jobs[newest.id] = known
        return jobs

    def _summary(self, key: str) -> dict[str, str] | None:
        entry = self._cache.find(key)
        if entry is None:
            return None
        if entry.summary.get("row"):
            place_of(entry.summary["row"])  # parsed here, where no page waits for it
        return dict(entry.summary)

    def _note_change(self, key: str) -> None:
        """Note that the state of the traces with this key has changed. The lock is held."""
        ids = self._ids.get(key, ())
        self._listing.change(ids)
        entries = self._listed.entries
        self._runs.change(entries[id_].file.run for id_ in ids if id_ in entries)


def _by_key(keys: Mapping[str, ResultKeys | None]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for id_, of in keys.items():
        for key in of or ():
            ids.setdefault(key, []).append(id_)
    return ids


def _first(summaries: Mapping[str, dict[str, str] | None], keys: ResultKeys | None) -> dict[str, str] | None:
    """Return the summary of the first result that is there."""
    return next((found for key in keys or () if (found := summaries.get(key))), None)
