"""Write recordings under torch's names, so that they appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

ENDING: Final = ".pt.trace.json"

# Neither TensorBoard nor gpudiag reads files with this ending. torch compresses if the name ends in .gz.
_UNFINISHED: Final = ".writing"

_NAME: Final = re.compile(r"(?P<worker>.+)\.(?P<time_ns>[0-9]+)\.pt\.trace\.json(?:\.gz)?", re.DOTALL)


@dataclass(frozen=True)
class WrittenRecording:
    """A recording on disk.

    time_ns: when it was written, since 1970, as in its name.
    step: of the training; it increases from recording to recording.
    events: event file for its record; "" for none.
    url: where a copy of it goes; "" if it stays.
    """

    path: str
    time_ns: int
    step: int
    rank: int
    world_size: int
    events: str = ""
    url: str = ""


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
        folder = os.path.abspath(folder)
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
            # Kineto does not raise if it cannot write.
            if not os.path.getsize(unfinished):
                raise OSError(f"torch.profiler wrote an empty file to {folder}: is the disk full?")
            before_rename()
            os.replace(unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise
        step = getattr(profiler, "step_num", None)
        # TensorBoard keeps one record per step.
        self._step = max(step if isinstance(step, int) else 0, self._step + 1)
        return WrittenRecording(path, time_ns, self._step, rank, world_size, self._event_file(worker))

    def _event_file(self, worker: str) -> str:
        """Return the worker's event file: one for each process, in a directory of its own."""
        if self._event_folder and self._events[0] != worker:
            folder = os.path.join(os.path.abspath(self._event_folder), "gpudiag", worker)
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
            self._events = worker, os.path.join(folder, name)
        return self._events[1]


def worker_and_time(name: str) -> tuple[str, int] | None:
    """Return the worker and the time of a recording's file name; None for other files."""
    match = _NAME.fullmatch(name)
    if match is None or name.startswith("."):
        return None
    return match["worker"], int(match["time_ns"])
