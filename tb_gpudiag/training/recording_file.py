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
class Recording:
    """A recording on disk. time_ns: when it was written, since 1970, as in its name."""

    path: str
    time_ns: int
    step: int
    rank: int
    world_size: int


class RecordingFiles:
    """Files of one process in one folder."""

    def __init__(self, folder: str, worker_name: str | None, *, use_gzip: bool) -> None:
        self._folder = folder
        self._worker_name = worker_name
        self._use_gzip = use_gzip
        self._count = 0

    def write(
        self, profiler: Any, before_rename: Callable[[], None], *, rank: int, world_size: int
    ) -> Recording:
        """Export the profiler's recording. Call before_rename when the file is complete and has no name yet.

        Raises whatever the profiler raises, and OSError.
        """
        folder = os.path.abspath(self._folder)
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
        self._count += 1
        step = getattr(profiler, "step_num", None)
        return Recording(path, time_ns, step if isinstance(step, int) else self._count, rank, world_size)


def worker_and_time(name: str) -> tuple[str, int] | None:
    """Return the worker and the time of a recording's file name; None for other files."""
    match = _NAME.fullmatch(name)
    if match is None or name.startswith("."):
        return None
    return match["worker"], int(match["time_ns"])
