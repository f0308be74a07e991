"""Recordings on disk: written whole under torch's names, kept within a bound, and found beside those of other
ranks."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import field
from enum import IntEnum
from typing import Any, Final

from tb_gpudiag.frozen import dataclass

ENDING: Final = ".pt.trace.json"

# Neither TensorBoard nor gpudiag reads files with this ending. torch compresses if the name ends in .gz.
_UNFINISHED: Final = ".writing"

_NAME: Final = re.compile(r"(?P<worker>.+)\.(?P<time_ns>[0-9]+)\.pt\.trace\.json(?:\.gz)?", re.DOTALL)

# Recordings that could not be deleted and are tried again: bounded, because deleting may not be allowed.
MOST_UNDELETED: Final = 100

# Ranks end the same step together, but take different times to write.
WAIT_S = 120.0

MOST_RANKS: Final = 64
"""Rank 0 reads the traces of all ranks. For more ranks, this would need a machine of its own."""


@dataclass(frozen=True)
class WrittenRecording:
    """A recording on disk.

    time_ns: when it was written, since 1970, as in its name.
    step: of the training; it increases from recording to recording.
    events: event file for its record; "" for none.
    """

    path: str
    time_ns: int
    step: int
    rank: int
    world_size: int
    events: str = ""


class RecordingFiles:
    """Files of one process. event_folder: for event files of our own; "" for none."""

    def __init__(self, worker_name: str | None, *, use_gzip: bool, event_folder: str = "") -> None:
        self._worker_name = worker_name
        self._use_gzip = use_gzip
        self._event_folder = event_folder
        self._events = ("", "")  # worker, event file
        self._step = -1

    def write(
        self, folder: str, profiler: Any, before_rename: Callable[[], None], *, rank: int, world_size: int
    ) -> WrittenRecording:
        """Export the profiler's recording to a folder. before_rename: called when the file is complete and
        has no name yet.

        Raises whatever the profiler raises, and OSError.
        """
        os.makedirs(folder, exist_ok=True)
        # Each time anew: a fork has another process id.
        worker = self._worker_name or f"{socket.gethostname()}_{os.getpid()}"
        time_ns = time.time_ns()
        name = f"{worker}.{time_ns}{ENDING}"
        compressed = ".gz" if self._use_gzip else ""
        unfinished = os.path.join(folder, f".{name}{_UNFINISHED}{compressed}")
        path = os.path.join(folder, name + compressed)
        try:
            profiler.export_chrome_trace(unfinished)
            if _is_empty(unfinished):
                raise OSError(f"torch.profiler wrote no whole file to {folder}: is the disk full?")
            before_rename()
            os.replace(unfinished, path)
        except BaseException:
            for left in (unfinished, f"{unfinished}.tmp"):  # Kineto writes the second one first
                with contextlib.suppress(OSError):
                    os.unlink(left)
            raise
        step = getattr(profiler, "step_num", None)
        # TensorBoard keeps one record per step.
        self._step = max(step if isinstance(step, int) else 0, self._step + 1)
        return WrittenRecording(path, time_ns, self._step, rank, world_size, self._event_file(worker))

    def _event_file(self, worker: str) -> str:
        """Return the worker's event file: one for each process, in a directory of its own."""
        if self._event_folder and self._events[0] != worker:
            folder = os.path.join(self._event_folder, "gpudiag", worker)
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
            self._events = worker, os.path.join(folder, name)
        return self._events[1]


def _is_empty(path: str) -> bool:
    """Whether Kineto could not write: it raises nothing, and torch packs even a file without content."""
    with (
        contextlib.suppress(OSError, EOFError),
        (gzip.open if path.endswith(".gz") else open)(path, "rb") as file,
    ):
        return not file.read(1)
    return True


def worker_and_time(name: str) -> tuple[str, int] | None:
    """Return the worker and the time of a recording's file name; None for other files."""
    match = _NAME.fullmatch(name)
    if match is None or name.startswith("."):
        return None
    return match["worker"], int(match["time_ns"])


class _Kept(IntEnum):
    """States of a recording. The first one is deleted first."""

    CLEAN = 0  # diagnosed, without findings
    FOUND = 1
    UNKNOWN = 2  # not diagnosed yet, skipped, or could not be: never deleted


class KeptFiles:
    """The recordings of a handler that are on disk, at most `most`, and those that were not diagnosed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._states: dict[str, _Kept] = {}  # by path, oldest first
        self._undeleted: list[str] = []
        self._lock = threading.Lock()

    def make_room(self) -> None:
        """Delete recordings until there is room for one more: the least telling first, then the oldest."""
        with self._lock:
            self._delete_down_to(self._most - 1, self._states)

    def _delete_down_to(self, most: int, among: Iterable[str]) -> None:
        """Delete diagnosed recordings among these until `most` are left."""
        diagnosed = [path for path in among if self._states[path] != _Kept.UNKNOWN]
        diagnosed.sort(key=lambda path: self._states[path])
        for path in diagnosed[: max(0, len(self._states) - most)]:
            del self._states[path]
            self._undeleted.append(path)
        self._undeleted = [path for path in self._undeleted if not _delete(path)][-MOST_UNDELETED:]

    def add(self, path: str) -> None:
        """Add a recording that waits for its diagnosis."""
        with self._lock:
            self._states[path] = _Kept.UNKNOWN

    def settle(self, path: str, *, found: bool) -> None:
        """Note whether the diagnosis found anything."""
        with self._lock:
            if path in self._states:
                self._states[path] = _Kept.FOUND if found else _Kept.CLEAN
                self._delete_down_to(self._most, [*self._states][:-1])  # the newest one stays


def _delete(path: str) -> bool:
    """Delete a recording. Return False if that failed, for example because network storage is away."""
    try:
        os.unlink(path)
    except FileNotFoundError:  # others have deleted it
        return True
    except OSError:
        return False
    return True


@dataclass
class RankFiles:
    """Files of all ranks of the job that rank 0's recording belongs to. paths: those found so far."""

    recording: WrittenRecording
    earliest_ns: int  # files from before this time belong to the previous recording
    since_s: float = field(default_factory=time.monotonic)
    paths: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, recording: WrittenRecording, before_ns: int) -> RankFiles | None:
        """Return what to look for; None if this is not rank 0 of several ranks.

        before_ns: when rank 0 wrote the previous recording; 0 if there is none.
        """
        if recording.rank != 0 or not 1 < recording.world_size <= MOST_RANKS:
            return None
        earliest_ns = max(recording.time_ns - int(WAIT_S * 1e9), (recording.time_ns + before_ns) // 2)
        return cls(recording, earliest_ns)

    @property
    def folder(self) -> str:
        """Where the files are."""
        return os.path.dirname(self.recording.path)

    def are_there(self, names: Iterable[str]) -> bool:
        """Look for the files among `names`: of each worker, the one written closest to rank 0's."""
        closest: dict[str, tuple[int, str]] = {}
        for name in names:
            found = worker_and_time(name)
            if found is None or found[1] < self.earliest_ns:
                continue
            one = (abs(found[1] - self.recording.time_ns), f"{self.folder}/{name}")
            closest[found[0]] = min(one, closest.get(found[0], one))
        self.paths = sorted(path for _, path in closest.values())
        return len(self.paths) >= self.recording.world_size

    def is_late(self) -> bool:
        """Return whether it is time to give up."""
        return time.monotonic() - self.since_s > WAIT_S

    def what_is_missing(self) -> str:
        """Say how many files were found."""
        return (
            f"{len(self.paths)} of {self.recording.world_size} ranks wrote a recording in {WAIT_S:g} s, so "
            "there is no verdict on the job. Ranks need the same folder, and a worker name each."
        )
