"""Files to download: made by a process of their own (see exporter.py) and passed on as they come.

No file is written, and the content is never in memory as a whole.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tb_gpudiag.errors import JobFailed, LimitReached
from tb_gpudiag.service.analyses.protocol import error_of
from tb_gpudiag.service.caches.cache_entry import CorruptEntry
from tb_gpudiag.service.processes.piped_process import end, start
from tb_gpudiag.trace.files.find import TraceFile

# Each takes one core, and for HTML the memory of the timeline.
MOST_AT_ONCE = 2

# Reading the cached result takes a second or two. After that, content comes steadily.
FIRST_BYTES_WITHIN_S = 60.0

PIECE_BYTES = 256 << 10

COMMAND = (sys.executable, "-m", "tb_gpudiag.service.exporter")

# The line before the content, and the line if the analysis is gone or damaged.
READY = b"ready\n"
CORRUPT = b"corrupt\n"

FORMATS = {"trace": "json.gz", "html": "html", "markdown": "md", "json": "json"}
"""What can be exported, and the ending of the file's name."""


@dataclass(frozen=True)
class Order:
    """What the process makes: a format of the trace whose analysis is in the cache entry at `entry`."""

    entry: str
    file: TraceFile
    format: str
    memory_limit_bytes: int
    parent: int  # process id of TensorBoard

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        data = json.loads(line)
        return cls(**{**data, "file": TraceFile(**data["file"])})

    @property
    def name(self) -> str:
        """A file name that is safe everywhere."""
        about = ".".join(filter(None, (self.file.worker, self.file.span)))
        return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', about)[:100]}.gpudiag.{FORMATS[self.format]}"


@dataclass
class Export:
    """A file as it is made. Iterate over it once, and close it in any case."""

    name: str
    _process: subprocess.Popen[bytes]
    _room: threading.BoundedSemaphore
    _closed: bool = False

    def __iter__(self) -> Iterator[bytes]:
        assert self._process.stdout is not None
        try:
            while piece := self._process.stdout.read(PIECE_BYTES):
                yield piece
            if self._process.wait() != 0:
                # The response has begun: a broken connection tells the browser that the file is not whole.
                raise JobFailed("The export ended before the file was complete.")
        finally:
            self.close()

    def close(self) -> None:
        """End the process."""
        if not self._closed:
            self._closed = True
            end(self._process)
            self._room.release()


class Exports:
    """Starts the processes, a few at a time."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = tuple(command)
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)

    def start(self, order: Order) -> Export:
        """Return the file once its first bytes are there.

        Raises:
            LimitReached: others are being made.
            CorruptEntry: the analysis is gone or damaged.
            GpudiagError: it cannot be made.
        """
        if not self._room.acquire(blocking=False):
            raise LimitReached(
                f"{MOST_AT_ONCE} other files are being exported.", remedy="Try again when they are complete."
            )
        process = None
        try:
            process = self._started(order)
            self._wait_for_content(process, order)
        except BaseException:
            if process is not None:
                end(process)
            self._room.release()
            raise
        return Export(order.name, process, self._room)

    def _started(self, order: Order) -> subprocess.Popen[bytes]:
        try:
            return start(self._command)
        except OSError as error:
            raise JobFailed(
                f"No process could be started: {error.strerror or error}.",
                where=order.file.path,
                remedy="Check whether this machine is out of memory or processes.",
            ) from error

    def _wait_for_content(self, process: subprocess.Popen[bytes], order: Order) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which reading from it shows
            process.stdin.write(order.to_line())
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([process.stdout], [], [], FIRST_BYTES_WITHIN_S)
            byte = process.stdout.read(1) if readable else b""
            if not byte:
                raise JobFailed("The process that makes the file ended or hangs.", where=order.file.path)
            line += byte
        if line == READY:
            return
        if line == CORRUPT:
            raise CorruptEntry(order.entry)
        raise error_of(json.loads(line))
