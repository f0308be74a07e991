"""The table of runs: a row for each folder with traces, and what has changed since a page last asked,
in parts of bounded size. Also which recordings belong to a job or a run, as far as their names tell."""

from __future__ import annotations

import json
import secrets
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import urgency
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.index.log_index import TraceEntry
from tb_gpudiag.trace.files.file_names import named_rank
from tb_gpudiag.vocabulary.recorded import FileKind
from tb_gpudiag.wording.format import share

# How many removed ids are remembered. A page that missed more removals gets the whole list.
MOST_REMOVED = 10_000


class ListChanges(NamedTuple):
    """Changes since a number: ids that are new or have changed, and ids that are gone.

    number: what the page knows after these changes. whole: the page must forget what it had.
    more: the page must ask again at once.
    """

    changed: list[str]
    removed: list[str]
    number: int
    whole: bool
    more: bool


class Listing:
    """The number of the last change of each id. Not thread-safe: the caller locks."""

    def __init__(self) -> None:
        # Before all changes. Random, so that no number of a page from before a restart is one of ours.
        self.first = self.number = secrets.randbelow(2**31)
        self._of_id: dict[str, int] = {}
        self._removed: OrderedDict[str, int] = OrderedDict()
        self._forgotten = self.first  # removals up to this number may be forgotten
        # All changes in the order of their numbers, including those that a later one of the same id replaced.
        self._numbers: list[int] = []
        self._ids: list[str] = []

    def change(self, ids: Iterable[str]) -> None:
        """Note that these ids are new or have changed."""
        for id_ in ids:
            self.number += 1
            self._of_id[id_] = self.number
            self._removed.pop(id_, None)
            self._numbers.append(self.number)
            self._ids.append(id_)
        if len(self._ids) > 2 * len(self._of_id) + MOST_REMOVED:
            kept = [at for at, id_ in enumerate(self._ids) if self._of_id.get(id_) == self._numbers[at]]
            self._numbers = [self._numbers[at] for at in kept]
            self._ids = [self._ids[at] for at in kept]

    def remove(self, ids: Iterable[str]) -> None:
        """Note that these ids are gone."""
        for id_ in ids:
            self.number += 1
            self._of_id.pop(id_, None)
            self._removed[id_] = self.number
            if len(self._removed) > MOST_REMOVED:
                self._forgotten = self._removed.popitem(last=False)[1]

    def has_removed(self, id_: str) -> bool:
        """Return whether this id was removed, and not too long ago."""
        return id_ in self._removed

    def touch(self) -> None:
        """Note that something other than ids has changed."""
        self.number += 1

    def since(self, known: int | None, most: int) -> ListChanges:
        """Return at most `most` of the changes since `known`, in their order.

        If `known` is None or no number of this listing, return the changes since the beginning.
        """
        whole = known is None or not self._forgotten <= known <= self.number
        after = self.first if whole or known is None else known
        removed = [] if whole else [id_ for id_, number in self._removed.items() if number > after]
        changed: list[str] = []
        for at in range(bisect_right(self._numbers, after), len(self._numbers)):
            if self._of_id.get(self._ids[at]) != self._numbers[at]:
                continue
            if len(changed) == most:
                return ListChanges(changed, removed, self._of_id[changed[-1]], whole, more=True)
            changed.append(self._ids[at])
        return ListChanges(changed, removed, self.number, whole, more=False)


# Rows in one answer: a quarter of a megabyte, before compression.
MOST_ROWS = 500

# Fields of a row that say what is wrong. What is wrong with a rank is not what is wrong with its job.
_OF_THE_VERDICT = (
    *("limiter", "sentence", "why", "first_rule", "first_title"),
    *("saving_share", "low_saving_share", "severity", "growth_bytes_per_step"),
)

# Smaller changes between recordings are noise.
LEAST_CHANGE = 0.02


class TraceStates(Protocol):
    """What is known about each trace. The methods take locks."""

    def described(self, entry: TraceEntry) -> pb.TraceEntry:
        """Return the trace's entry in the list of traces, with its state."""

    def summary_of(self, entry: TraceEntry) -> Mapping[str, str] | None:
        """Return the summary of an analyzed trace for the list; None if the trace is not analyzed."""

    def job_of(self, entry: TraceEntry) -> Mapping[str, str] | None:
        """Return the summary of the job that the trace is a rank of: empty for no job, None if unknown."""


class Changes(NamedTuple):
    """Runs that have changed.

    part: their names. traces: of each of them; never modified later. total: number of all runs.
    folders: several folders have several runs each, so the page groups runs by folder.
    """

    part: ListChanges
    traces: list[list[TraceEntry]]
    total: int
    folders: bool


class Runs:
    """Which runs there are, and which of them have changed. Not thread-safe: the caller locks."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._traces: dict[str, list[TraceEntry]] = {}  # by run, the newest last
        self._folders = False

    def changed_in(self, traces: Mapping[str, list[TraceEntry]]) -> list[str]:
        """Return which of these runs are new or have other traces now."""
        return [run for run, found in traces.items() if self._traces.get(run) != found]

    def update(self, traces: dict[str, list[TraceEntry]]) -> None:
        """Take over the runs of a scan."""
        self._listing.remove(self._traces.keys() - traces.keys())
        self._listing.change(self.changed_in(traces))
        self._traces = traces
        runs_in = Counter(map(_folder, traces))
        self._folders = sum(count > 1 for count in runs_in.values()) > 1

    def change(self, runs: Iterable[str]) -> None:
        """Note that the analysis of a trace in each of these runs has changed."""
        self._listing.change({run for run in runs if run in self._traces})

    def changes(self, known: int | None) -> Changes | None:
        """Return the runs that have changed since `known` (see Listing.since); None if no run has."""
        if known == self._listing.number:
            return None
        part = self._listing.since(known, MOST_ROWS)
        return self._changes(part, part.changed)

    def all(self, at_once: int) -> Changes | None:
        """Return all runs. If there are more than `at_once`, the page knows of none of them afterwards."""
        if len(self._traces) <= at_once:
            return self.changes(None)
        runs = list(self._traces)
        return self._changes(ListChanges(runs, [], self._listing.first, whole=True, more=True), runs)

    def _changes(self, part: ListChanges, runs: Iterable[str]) -> Changes:
        return Changes(part, [self._traces[run] for run in runs], len(self._traces), self._folders)


def by_run(entries: Iterable[TraceEntry]) -> dict[str, list[TraceEntry]]:
    """Return the traces of each run, the oldest first."""
    traces: dict[str, list[TraceEntry]] = {}
    for entry in entries:
        traces.setdefault(entry.file.run, []).append(entry)
    for found in traces.values():
        found.sort(key=time_ns)
    return traces


def newest_of_runs(entries: Iterable[TraceEntry]) -> list[TraceEntry]:
    """Return the newest trace of each run, the newest first."""
    return sorted((found[-1] for found in by_run(entries).values()), key=time_ns, reverse=True)


def table_of(changes: Changes, states: TraceStates) -> pb.RunTable:
    """Return the rows of the runs that have changed. Call it without holding a lock."""
    part = changes.part
    return pb.RunTable(
        rows=[_row(traces, states) for traces in changes.traces],
        generation=part.number,
        total=changes.total,
        removed=part.removed,
        whole=part.whole,
        more=part.more,
        folders=changes.folders,
    )


def first_rows(changes: Changes, states: TraceStates, most: int) -> Changes:
    """Return the runs that the page shows first: the most urgent ones, by folder if `folders`."""
    ordered = sorted(changes.traces, key=lambda traces: _place(traces, states), reverse=True)
    if changes.folders:
        places: dict[str, int] = {}
        for traces in ordered:
            places.setdefault(_folder(traces[0].file.run), len(places))
        ordered.sort(key=lambda traces: places[_folder(traces[0].file.run)])
    return changes._replace(traces=ordered[:most])


def _place(traces: Sequence[TraceEntry], states: TraceStates) -> tuple[float, ...]:
    """Return how urgent the newest analyzed recording is, and when it was made."""
    newest = newest_analyzed(traces, states.summary_of)
    found = _row_in(states.summary_of(newest))
    if of_several_ranks(traces, newest):
        job = states.job_of(newest)
        found = _row_in(job) or (found if job is not None else "")
    return place_of(found) if found else (*place_of("{}")[:-1], time_ns(traces[-1]) / 1e9)


def newest_analyzed(
    traces: Sequence[TraceEntry], summary_of: Callable[[TraceEntry], Mapping[str, str] | None]
) -> TraceEntry:
    """Return the newest analyzed recording; if there is none, the newest one."""
    return next((trace for trace in reversed(traces) if _row_in(summary_of(trace))), traces[-1])


def of_several_ranks(traces: Sequence[TraceEntry], newest: TraceEntry) -> bool:
    """Return whether a run has traces of several workers, which may be the ranks of a job."""
    workers = _workers(traces, newest)
    kind = newest.file.kind if newest.record is None else "record"
    if kind == "snapshot":
        return len({named_rank(worker) for worker in workers} - {None}) > 1
    return kind == "trace" and len(workers) > 1


def _workers(traces: Sequence[TraceEntry], newest: TraceEntry) -> Counter[str]:
    return Counter(trace.file.worker for trace in traces if trace.file.kind == newest.file.kind)


def _row_in(found: Mapping[str, str] | None) -> str:
    return found.get("row", "") if found is not None else ""


@lru_cache(1 << 17)
def place_of(row: str) -> tuple[float, ...]:
    """Return how urgent a RunRow in JSON is, and its time. Parsing thousands takes a tenth of a second."""
    fields = defaultdict(int, {"first_rule": "", **json.loads(row)})
    return (*urgency(fields.__getitem__), fields["time_s"])


def _folder(run: str) -> str:
    return run.rpartition("/")[0]


def _row(traces: Sequence[TraceEntry], states: TraceStates) -> pb.RunRow:
    """Return the row of a run: figures and state of its newest analyzed recording or job."""
    newest = newest_analyzed(traces, states.summary_of)
    row = _figures(newest, states)
    before = _recording_before(traces, newest, states)
    change = change_between(before, row) if before is not None else ""
    state = states.described(newest)
    workers = _workers(traces, newest)
    several = of_several_ranks(traces, newest)
    alone = state.kind == pb.TraceInfo.snapshot and not several  # of one process, whatever their names
    row.kind, row.state, row.ranks = state.kind, state.state, 1 if alone else len(workers)
    if several:
        row = _of_job(row, states.job_of(newest))
    row.id = row.run = newest.file.run
    row.worker = newest.file.worker
    row.change = change
    row.recordings = sum(workers.values()) if alone else max(workers.values())
    row.time_s = max(map(time_ns, traces)) / 1e9  # the same before and after an analysis
    row.trace_id = newest.id
    if state.HasField("error"):
        row.error.CopyFrom(state.error)
    return row


def _figures(trace: TraceEntry, states: TraceStates) -> pb.RunRow:
    found = _row_in(states.summary_of(trace))
    return from_json(found, pb.RunRow) if found else pb.RunRow()


def _recording_before(
    traces: Sequence[TraceEntry], newest: TraceEntry, states: TraceStates
) -> pb.RunRow | None:
    """Return the figures of the same worker's last analyzed recording before the newest one."""
    others = [trace for trace in traces[: traces.index(newest)] if trace.file.worker == newest.file.worker]
    for trace in reversed(others):
        if _row_in(states.summary_of(trace)):
            return _figures(trace, states)
    return None


def _of_job(row: pb.RunRow, job: Mapping[str, str] | None) -> pb.RunRow:
    """Return the row of the job that `row` is a rank of: the verdict of one rank is not that of the job."""
    if job is None:
        row.kind = pb.TraceInfo.job
        if row.state == pb.TraceEntry.ready:
            row.state = pb.TraceEntry.ranks
        for name in _OF_THE_VERDICT:
            row.ClearField(name)
    elif _row_in(job):
        found = from_json(job["row"], pb.RunRow)
        found.state = row.state
        return found
    return row


def change_between(before: pb.RunRow, now: pb.RunRow) -> str:
    """Say what changed since the previous recording in step time and memory; "" if nothing did.

    The step time counts as changed if the middle halves of the step times of both recordings do not overlap.
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


# Of a job with more ranks, the first ones are read; of a run with more recordings, the newest ones.
MOST_MEMBERS = 4_000

_NS_PER_MS = 1_000_000
# Spans are Unix times: in ms until torch 2.1, then in ns. Files named by users have other numbers, all less
# than the time of any day since 2001.
_LEAST_MS_SPAN = 10**12
_LEAST_NS_SPAN = 10**16


def ranks_of(entries: Iterable[TraceEntry], chosen: TraceEntry) -> list[TraceEntry]:
    """Return the traces that may be the job of this one: of each worker of its run, the one nearest in time.

    The chosen trace comes first, then the others by worker: the key of the answer depends on the order.
    Whether they are one job is decided when they are read.
    """
    nearest: dict[str, TraceEntry] = {chosen.file.worker: chosen}
    at_ns = time_ns(chosen)
    for entry in _files_of(entries, chosen.file.run, chosen.file.kind):
        if entry.record is not None:
            continue
        worker = entry.file.worker
        if worker == chosen.file.worker:
            continue
        known = nearest.get(worker)
        if known is None or abs(time_ns(entry) - at_ns) < abs(time_ns(known) - at_ns):
            nearest[worker] = entry
    others = sorted(nearest.keys() - {chosen.file.worker})
    return [chosen, *(nearest[worker] for worker in others)][:MOST_MEMBERS]


def recordings_of(entries: Mapping[str, TraceEntry], run: str) -> list[TraceEntry]:
    """Return the recordings of a run, the oldest first, including those with only a record."""
    found = sorted(_files_of(entries.values(), run, "trace"), key=time_ns)
    return found[-MOST_MEMBERS:]


def time_ns(entry: TraceEntry) -> int:
    """Return when the trace was written: by its name, or by the file's time if the name does not tell."""
    span = int(entry.file.span[:19] or 0)
    if span >= _LEAST_NS_SPAN:
        return span
    return span * _NS_PER_MS if span >= _LEAST_MS_SPAN else entry.file.modified_ns


def _files_of(entries: Iterable[TraceEntry], run: str, kind: FileKind) -> Iterable[TraceEntry]:
    return (entry for entry in entries if entry.file.run == run and entry.file.kind == kind)
