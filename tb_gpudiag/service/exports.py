"""Files to download: made by a separate process (see exporter.py), and passed on piece by piece.

No file is written to disk, and TensorBoard never has the whole content in memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tb_gpudiag.errors import LimitReached, ProcessFailed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.processes.child import Child, ChildEnded, ChildMessage
from tb_gpudiag.trace.files.find import TraceFile

# Each takes one core, and for HTML the memory of the timeline.
MOST_AT_ONCE = 2

# Reading the cached result takes a second or two. After that, pieces come steadily.
BYTES_WITHIN_S = 60.0

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


@dataclass
class Export:
    """A file that is being made. Iterate over it once, and close it in any case."""

    name: str
    _first: ChildMessage
    _others: Iterator[ChildMessage]
    _child: Child
    _room: threading.BoundedSemaphore
    _closed: bool = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            # The response has begun: an error breaks the connection, which tells the browser that the file is
            # incomplete.
            yield self._first.content
            yield from (message.content for message in self._others)
        finally:
            self.close()

    def close(self) -> None:
        """End the process."""
        if not self._closed:
            self._closed = True
            self._child.stop()
            self._room.release()


class Exports:
    """Starts the processes, a few at a time."""

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)

    def start(self, order: Order) -> Export:
        """Return the file once its first bytes are there.

        Raises:
            LimitReached: too many other files are being made.
            CorruptEntry: the analysis is gone or damaged.
            GpudiagError: it cannot be made.
        """
        if not self._room.acquire(blocking=False):
            raise LimitReached(
                f"{MOST_AT_ONCE} other files are being exported.", remedy="Try again when they are complete."
            )
        child = Child(MODULE)
        try:
            messages = child.messages(order.request(), BYTES_WITHIN_S, each=True)
            return Export(order.name, next(messages), messages, child, self._room)
        except BaseException as error:
            child.stop()
            self._room.release()
            if isinstance(error, ChildEnded | TimeoutError):
                raise ProcessFailed(
                    "The process that makes the file ended or hangs.", where=order.file.path
                ) from error
            raise
