"""The live log directory: which traces there are now, under ids that survive a restart.

One daemon thread scans. Requests read its last snapshot, which never changes once made, and never wait for
the disk.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tb_gpudiag.errors import GpudiagError, Unreadable
from tb_gpudiag.service.roots import Root
from tb_gpudiag.trace.find import Found, TraceFile, find_traces

# Someone who looks at the page sees a new file within this time (and the scan's own).
SCAN_EVERY_S = 2.0

# When nobody looks, the tab's visibility is all that depends on the scan.
SCAN_EVERY_IDLE_S = 10.0

# Someone looks while the last request is younger than this; the page asks every few seconds.
ASKED_RECENTLY_S = 20.0

# The scan of a large or slow directory must not become this process's main occupation: at most this share of
# the time.
SHARE_OF_TIME = 0.1

# A writer flushes several times a second; a file that was still for this long is taken as written.
SETTLED_AFTER_S = 3.0

# A file that never comes to rest is read as it is, this often.
READ_GROWING_EVERY_S = 60.0

logger = logging.getLogger("tensorboard")


@dataclass(frozen=True)
class TraceEntry:
    """One trace of the log directory. `content` is the identity of the version to analyse: while a file is
    being written it stays what it was, and it is empty until there is a first version worth reading."""

    id: str
    file: TraceFile
    content: str
    writing: bool


@dataclass(frozen=True)
class Snapshot:
    """What one scan found, in the order of runs, workers and spans. `generation` changes when anything else
    does."""

    entries: dict[str, TraceEntry] = field(default_factory=dict)
    problems: tuple[GpudiagError, ...] = ()
    generation: int = 0
    scanned: bool = False


@dataclass
class _History:
    """What was seen of one file: the version last seen, since when, and the version last given out to be
    read."""

    identity: str
    since_s: float
    content: str
    given_out_s: float
    moving: bool


class LogIndex:
    """Keeps a snapshot of the traces below `roots` fresh.

    `on_change(snapshot)` is called on the scanning thread, before the snapshot is given to anyone.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        *,
        find: Callable[[str], Found] = find_traces,
        on_change: Callable[[Snapshot], None] = lambda _: None,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._roots = tuple(roots)
        self._find = find
        self._on_change = on_change
        self._monotonic_s = monotonic_s
        self._wall_ns = wall_ns
        self._history: dict[str, _History] = {}
        # Starts at the clock, so that a page that was open before a restart sees that the list is another
        # one.
        self._snapshot = Snapshot(generation=int(wall_ns() / 1e9) % 2**31)
        self._asked_s = monotonic_s()
        self._first_scan = threading.Event()
        self._wake = threading.Event()
        self._closed = False

    def start(self) -> None:
        """Begins to scan; returns at once."""
        threading.Thread(target=self._scan_for_ever, name="gpudiag-scan", daemon=True).start()

    def close(self) -> None:
        """Ends the thread at its next turn. Does not wait for it: it is a daemon and may hang in a dead file
        system."""
        self._closed = True
        self._wake.set()

    def snapshot(self) -> Snapshot:
        """The last scan's result, at once. Asking for it keeps the scans frequent."""
        now_s = self._monotonic_s()
        if now_s - self._asked_s > ASKED_RECENTLY_S:
            self._wake.set()
        self._asked_s = now_s
        return self._snapshot

    def wait_for_first_scan(self, at_most_s: float) -> bool:
        """Whether the first scan has ended; waits up to `at_most_s` for it."""
        return self._first_scan.wait(at_most_s)

    def scan(self) -> None:
        """One scan, here and now; what the thread does again and again."""
        entries: dict[str, TraceEntry] = {}
        problems: list[GpudiagError] = []
        for root in self._roots:
            try:
                found = self._find(root.path)
            except GpudiagError as error:
                problems.append(error)
                continue
            except (
                Exception
            ) as error:  # a store's driver may raise anything; the other directories still count
                problems.append(
                    Unreadable(f"The directory cannot be listed: {type(error).__name__}", where=root.path)
                )
                continue
            problems.extend(found.problems)
            for file in found.files:
                entry = self._entry(root, file)
                entries[entry.id] = entry
        for gone in self._history.keys() - entries.keys():
            del self._history[gone]
        self._publish(entries, tuple(problems))

    def _entry(self, root: Root, file: TraceFile) -> TraceEntry:
        id_ = trace_id(root, file)
        now_s = self._monotonic_s()
        seen = self._history.get(id_)
        if seen is None:
            age_s = (self._wall_ns() - file.modified_ns) / 1e9
            # A store that gives no time of change holds whole objects only.
            moving = file.modified_ns > 0 and age_s < SETTLED_AFTER_S
            seen = _History(file.identity, now_s, "" if moving else file.identity, now_s, moving)
            self._history[id_] = seen
        elif seen.identity != file.identity:
            if not seen.moving:
                seen.given_out_s = now_s
            seen.identity, seen.since_s, seen.moving = file.identity, now_s, True
        if seen.moving:
            settled = now_s - seen.since_s >= SETTLED_AFTER_S
            if settled or now_s - seen.given_out_s >= READ_GROWING_EVERY_S:
                seen.content, seen.given_out_s = file.identity, now_s
            seen.moving = not settled
        return TraceEntry(id_, replace(file, run=root.run(file.run)), seen.content, seen.moving)

    def _publish(self, entries: dict[str, TraceEntry], problems: tuple[GpudiagError, ...]) -> None:
        last = self._snapshot
        same_problems = [str(problem) for problem in problems] == [str(problem) for problem in last.problems]
        if last.scanned and same_problems and list(entries.items()) == list(last.entries.items()):
            return
        snapshot = Snapshot(entries, problems, last.generation + 1, scanned=True)
        self._on_change(snapshot)
        self._snapshot = snapshot
        self._first_scan.set()

    def _scan_for_ever(self) -> None:
        while not self._closed:
            began_s = self._monotonic_s()
            self._wake.clear()
            try:
                self.scan()
            except Exception as error:  # the thread must outlive what nobody thought of
                logger.warning("gpudiag: the log directory could not be scanned: %s", type(error).__name__)
            took_s = self._monotonic_s() - began_s
            asked_lately = self._monotonic_s() - self._asked_s <= ASKED_RECENTLY_S
            pause_s = max(SCAN_EVERY_S if asked_lately else SCAN_EVERY_IDLE_S, took_s / SHARE_OF_TIME)
            if not self._closed:
                self._wake.wait(pause_s)


def trace_id(root: Root, file: TraceFile) -> str:
    """An opaque name of a trace: 20 hexadecimal digits, the same after a restart, or where the directory has
    moved."""
    below = file.path[len(root.path) :] if file.path.startswith(root.path) else file.path
    parts = (root.prefix, file.run, file.worker, file.span, below.strip("/\\"))
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()
