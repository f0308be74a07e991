"""Live index of the log directory: the traces there are now, with ids that survive a restart.

A daemon thread scans the directory. Requests read the snapshot of its last scan, so they never wait for the
disk. A snapshot never changes.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial

from tb_gpudiag.errors import GpudiagError, Unreadable
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.index.records import Record, RecordReader
from tb_gpudiag.service.index.roots import RemoteRoot, Root
from tb_gpudiag.trace.files.find import Found, Tell, TraceFile, find_traces, sort_files
from tb_gpudiag.trace.files.source import is_remote

# With a page open, a new file appears after this time plus the time of the scan.
SCAN_EVERY_S = 2.0

# Without a page open, the scan only decides whether the tab is shown.
SCAN_EVERY_IDLE_S = 10.0

# A page counts as open until this long after its last request; it asks every few seconds.
ASKED_RECENTLY_S = 20.0

# Scanning takes at most this share of a processor, as it slows down TensorBoard's other routes. In a slow
# directory, where a scan mostly waits, it takes at most the second share of the time.
SHARE_OF_TIME = 0.04
SHARE_OF_WAITING = 0.25

# During the first scan, the traces found so far are shown this often.
PART_EVERY_S = 1.0

# The first scan waits this long for stores. A store that answers later starts another scan.
WAIT_FOR_STORES_S = 1.0

# A writer flushes several times per second. A file that has not changed for this long is complete.
SETTLED_AFTER_S = 3.0

# A file that keeps changing is analyzed this often.
READ_GROWING_EVERY_S = 60.0

logger = logging.getLogger("tensorboard")


@dataclass(frozen=True)
class TraceEntry:
    """One trace of the log directory.

    content: the identity of the version to analyze. It does not change while the file is being written. It is
        empty until there is a first version to read.
    record: set if the trace is gone, and only its record in an event file is left.
    """

    id: str
    file: TraceFile
    content: str
    writing: bool
    record: Record | None = None


@dataclass(frozen=True)
class Snapshot:
    """Result of one scan: traces, then records, each sorted by run, worker and span.

    generation: a number that changes whenever anything else here changes.
    """

    entries: dict[str, TraceEntry] = field(default_factory=dict)
    problems: tuple[GpudiagError, ...] = ()
    generation: int = 0
    scanned: bool = False


@dataclass
class _History:
    """State of one file: the version last seen, since when it is there, and the version to analyze."""

    identity: str
    since_s: float
    content: str
    content_set_s: float  # when `content` was set, or when writing started after that
    writing: bool  # the file is being written
    file: TraceFile | None = None  # as found by the last scan
    entry: TraceEntry | None = None  # its entry in that scan


class LogIndex:
    """Keeps a snapshot of the traces below `roots` up to date.

    on_change(snapshot) is called on the scanning thread, before anyone else gets the snapshot.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        *,
        records: RecordReader | None = None,
        find: Callable[[str, Tell], Found] | None = None,
        on_change: Callable[[Snapshot], None] = lambda _: None,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._roots = tuple(roots)
        self._records = records
        others = [root.path for root in roots]
        self._find = find or (lambda path, tell: find_traces(path, others, tell))
        self._remote = {
            root: RemoteRoot(root.path, lambda path: self._find(path, lambda _: None), self.wake, monotonic_s)
            for root in self._roots
            if is_remote(root.path)
        }
        self._on_change = on_change
        self._monotonic_s = monotonic_s
        self._wall_ns = wall_ns
        self._history: dict[str, _History] = {}
        # The generation starts at the current time, so that a page from before a restart sees a new one.
        self._snapshot = Snapshot(generation=int(wall_ns() / 1e9) % 2**31)
        self._next_part_s = monotonic_s() + PART_EVERY_S
        self._asked_s = monotonic_s()
        self._first_scan = threading.Event()
        self._wake = threading.Event()
        self._closed = False

    def start(self) -> None:
        """Start scanning, without waiting for the first scan."""
        threading.Thread(target=self._scan_forever, name="gpudiag-scan", daemon=True).start()

    def close(self) -> None:
        """Stop scanning, without waiting: the daemon thread may hang in a dead file system."""
        self._closed = True
        self._wake.set()

    def wake(self) -> None:
        """Scan now."""
        self._wake.set()

    def snapshot(self) -> Snapshot:
        """Return the result of the last scan. Asking for it keeps the scans frequent."""
        now_s = self._monotonic_s()
        if now_s - self._asked_s > ASKED_RECENTLY_S:
            self._wake.set()
        self._asked_s = now_s
        return self._snapshot

    def wait_for_first_scan(self, at_most_s: float) -> bool:
        """Wait up to `at_most_s` for the end of the first scan. Return whether it has ended."""
        return self._first_scan.wait(at_most_s)

    def scan(self) -> None:
        """Scan once. The thread does so again and again."""
        entries: dict[str, TraceEntry] = {}
        problems: list[GpudiagError] = []
        for root, found in self._search().items():
            problems.extend(found.problems)
            for file in [*found.files, *found.folders]:
                entry = self._entry(root, file)
                entries[entry.id] = entry
        for gone in self._history.keys() - entries.keys():
            del self._history[gone]
        if self._records is not None:
            problems += self._records.problems()
            entries |= self._of_records(self._records, [entry.file for entry in entries.values()])
        self._publish(entries, tuple(problems))

    def _search(self) -> dict[Root, Found]:
        """Search all roots. Stores are listed by threads of their own meanwhile."""
        for remote in self._remote.values():
            remote.ask()
        local: dict[Root, Found] = {}
        for root in self._roots:
            if root not in self._remote:
                local[root] = self._found_locally(root, local)
        if not self._snapshot.scanned:
            end_s = time.monotonic() + WAIT_FOR_STORES_S
            for remote in self._remote.values():
                remote.wait(max(0.0, end_s - time.monotonic()))
        return {
            root: self._remote[root].found() if root in self._remote else local[root] for root in self._roots
        }

    def _found_locally(self, root: Root, before: Mapping[Root, Found]) -> Found:
        """Search a root. before: files found in other roots, to show with the first ones of this root."""
        try:
            return self._find(root.path, partial(self._publish_part, root, before))
        except GpudiagError as error:
            return Found(problems=[error])
        except Exception as error:  # go on with the other directories
            what = f"The directory cannot be listed: {type(error).__name__}"
            return Found(problems=[Unreadable(what, where=root.path)])

    def _publish_part(self, root: Root, before: Mapping[Root, Found], found: Found) -> None:
        """Show what the first scan has found so far: the directory may be slow."""
        began_s = self._monotonic_s()
        if self._snapshot.scanned or began_s < self._next_part_s or not found.files:
            return
        files = list(found.files)
        sort_files(files)
        listed = [(known, file) for known, part in before.items() for file in part.files]
        entries = [self._entry(known, file) for known, file in [*listed, *((root, file) for file in files)]]
        self._publish({entry.id: entry for entry in entries}, (), scanned=False)
        took_s = self._monotonic_s() - began_s
        self._next_part_s = began_s + max(PART_EVERY_S, took_s / SHARE_OF_TIME)

    def _of_records(self, records: RecordReader, files: list[TraceFile]) -> dict[str, TraceEntry]:
        """Return the entries of the records whose trace is not among `files`."""
        found = {}
        for record in records.without_trace(files):
            before = self._snapshot.entries.get(record.id)
            if before is None or before.record is not record:
                before = TraceEntry(record.id, record.file, record.file.identity, False, record)
            found[record.id] = before
        return found

    def _entry(self, root: Root, file: TraceFile) -> TraceEntry:
        id_ = trace_id(root, file)
        now_s = self._monotonic_s()
        seen = self._history.get(id_)
        if seen is None:
            age_s = (self._wall_ns() - file.modified_ns) / 1e9
            # A store without modification times has complete objects only.
            writing = file.modified_ns > 0 and age_s < SETTLED_AFTER_S
            seen = _History(file.identity, now_s, "" if writing else file.identity, now_s, writing)
            self._history[id_] = seen
        elif seen.identity != file.identity:
            if not seen.writing:
                seen.content_set_s = now_s
            seen.identity, seen.since_s, seen.writing = file.identity, now_s, True
        if seen.writing:
            settled = now_s - seen.since_s >= SETTLED_AFTER_S
            if settled or now_s - seen.content_set_s >= READ_GROWING_EVERY_S:
                seen.content, seen.content_set_s = file.identity, now_s
            seen.writing = not settled
        entry = seen.entry
        if seen.file is file and entry and (entry.content, entry.writing) == (seen.content, seen.writing):
            return entry
        seen.file = file
        seen.entry = TraceEntry(id_, replace(file, run=root.run(file.run)), seen.content, seen.writing)
        return seen.entry

    def _publish(
        self, entries: dict[str, TraceEntry], problems: tuple[GpudiagError, ...], *, scanned: bool = True
    ) -> None:
        last = self._snapshot
        same_problems = [str(problem) for problem in problems] == [str(problem) for problem in last.problems]
        if last.scanned and same_problems and _is_same(entries, last.entries):
            return
        snapshot = Snapshot(entries, problems, last.generation + 1, scanned)
        self._on_change(snapshot)
        self._snapshot = snapshot
        self._first_scan.set()

    def _scan_forever(self) -> None:
        while not self._closed:
            began_s, began_cpu_s = self._monotonic_s(), time.thread_time()
            self._wake.clear()
            try:
                self.scan()
            except Exception as error:  # the thread must survive unexpected errors
                logger.warning("gpudiag: the log directory could not be scanned: %s", type(error).__name__)
            took_s = self._monotonic_s() - began_s
            asked_lately = self._monotonic_s() - self._asked_s <= ASKED_RECENTLY_S
            pause_s = max(
                SCAN_EVERY_S if asked_lately else SCAN_EVERY_IDLE_S,
                (time.thread_time() - began_cpu_s) / SHARE_OF_TIME,
                took_s / SHARE_OF_WAITING,
            )
            if not self._closed:
                self._wake.wait(pause_s)


def _is_same(entries: dict[str, TraceEntry], before: dict[str, TraceEntry]) -> bool:
    """Return whether the entries are the same, in the same order.

    This makes no new object for each entry: the garbage collector would stop all threads for them.
    """
    if len(entries) != len(before):
        return False
    pairs = zip(entries.values(), before.values(), strict=True)
    return all(entry is other or entry == other for entry, other in pairs)


def trace_id(root: Root, file: TraceFile) -> str:
    """Return the opaque id of a trace: 20 hexadecimal digits.

    The id stays the same after a restart, and when the log directory is moved.
    """
    return _trace_id(root, file.path, file.run, file.worker, file.span)


@lru_cache(1 << 18)
def _trace_id(root: Root, path: str, run: str, worker: str, span: str) -> str:
    below = path[len(root.path) :] if path.startswith(root.path) else path
    parts = (root.prefix, run, worker, span, below.strip("/\\"))
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()
