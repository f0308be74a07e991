"""Files to download: made by a separate process (see exporter.py), and passed on piece by piece.

No file is written to disk, and TensorBoard never has the whole content in memory.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any

from tb_gpudiag.errors import LimitReached, ProcessFailed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.processes.child import Child, ChildEnded, ChildMessage
from tb_gpudiag.trace.files.find import TraceFile

# Each takes one core, and for HTML the memory of the timeline.
MOST_AT_ONCE = 2

# Reading the cached result takes a second or two. After that, pieces come steadily.
BYTES_WITHIN_S = 60.0

# A piece is taken in seconds over a slow connection, too.
TAKEN_WITHIN_S = 60.0

MODULE = "tb_gpudiag.service.exporter"

FORMATS = {
    "trace": "json.gz",
    "html": "html",
    "markdown": "md",
    "json": "json",
    "tables": "zip",
    "dispute": "zip",
}
"""Formats, and the extension of the file's name."""


@dataclass(frozen=True)
class Order:
    """Which file to make of a trace and of the cache entry of its analysis. rule: see Service.export."""

    entry: str
    file: TraceFile
    format: str
    memory_limit_bytes: int
    rule: str = ""

    def request(self) -> dict[str, Any]:
        return {"where": self.file.path, "order": asdict(self)}

    @classmethod
    def of(cls, request: dict[str, Any]) -> Order:
        data = request["order"]
        return cls(**{**data, "file": TraceFile(**data["file"])})

    @property
    def name(self) -> str:
        """A file name that is safe everywhere."""
        about = ".".join(filter(None, (self.file.worker, self.file.span)))
        return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', about)[:100]}.gpudiag.{FORMATS[self.format]}"


@dataclass(eq=False)
class Export:
    """A file that is being made. Iterate over it once, and close it in any case."""

    name: str
    _first: ChildMessage
    _others: Iterator[ChildMessage]
    _child: Child
    _leave: Callable[[Export], None]
    _given_s: float = math.inf  # when a piece was given to who has not asked for the next one yet

    def __iter__(self) -> Iterator[bytes]:
        try:
            # The response has begun: an error breaks the connection, which tells the browser that the file is
            # incomplete.
            for message in chain([self._first], self._others):
                self._given_s = time.monotonic()
                yield message.content
                self._given_s = math.inf
        finally:
            self.close()

    @property
    def is_stalled(self) -> bool:
        """Whether nobody takes it: a browser has paused the download, or its machine sleeps."""
        return time.monotonic() - self._given_s > TAKEN_WITHIN_S

    def end(self) -> None:
        """End the process, from any thread."""
        self._child.close()

    def close(self) -> None:
        """End the process."""
        self._child.stop()
        self._leave(self)


class Exports:
    """Starts the processes, a few at a time. One that nobody takes makes room for another."""

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._running: list[Export] = []
        self._lock = threading.Lock()

    def start(self, order: Order) -> Export:
        """Return the file once its first bytes are there.

        Raises:
            LimitReached: too many other files are being made.
            CorruptEntry: the analysis is gone or damaged.
            GpudiagError: it cannot be made.
        """
        if not self._room.acquire(blocking=False) and not self._take_over():
            raise LimitReached(
                f"{MOST_AT_ONCE} other files are being exported.", remedy="Try again when they are complete."
            )
        child = Child(MODULE, nice=0)  # somebody waits for it
        try:
            messages = child.messages(order.request(), BYTES_WITHIN_S, each=True)
            export = Export(order.name, next(messages), messages, child, self._leave)
            with self._lock:
                self._running.append(export)
            return export
        except BaseException as error:
            child.stop()
            self._room.release()
            if isinstance(error, ChildEnded | TimeoutError):
                raise ProcessFailed(
                    "The process that makes the file ended or hangs.",
                    where=order.file.path,
                    remedy="Try again. Check whether this machine is out of memory or very busy.",
                ) from error
            raise

    def _take_over(self) -> bool:
        """Take the room of an export that nobody takes. Return whether there was one."""
        with self._lock:
            stalled = next((export for export in self._running if export.is_stalled), None)
            if stalled is None:
                return False
            self._running.remove(stalled)
        stalled.end()
        return True

    def _leave(self, export: Export) -> None:
        with self._lock:
            if export in self._running:
                self._running.remove(export)
                self._room.release()
