"""Slices of timelines and of memory: cut by a separate process (see cutter.py), and kept ready to send.

The process starts with the first slice, is replaced if it dies, and exits when it is no longer needed.
Requests compute nothing here: a request finds its slice, or waits for the process without holding Python's
lock. Pages round ranges, so they often ask for the same slices.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from tb_gpudiag.errors import ProcessFailed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report.slices.slice_table import Argument
from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.service.settings import MIB

# Of compressed slices, each of at most a few hundred kilobytes.
KEPT_BYTES = 64 * MIB

# Requests that may wait for the process. Further requests are told to ask again.
MOST_WAITING = 64

# A slice takes some hundredths of a second. For the first slice of a large trace, the whole entry is read.
ANSWER_WITHIN_S = 20.0

# The process exits if it is not asked for this long.
IDLE_S = 300.0

# TensorBoard's other tabs and a training job go first.
NICE = 5

MODULE = "tb_gpudiag.service.cutter"

logger = logging.getLogger("tensorboard")


class SlicesBusy(Exception):
    """Too many requests are waiting."""


@dataclass(frozen=True)
class Question:
    """Which slice to cut: the path of the entry, a kind in SLICES, the arguments of its builder."""

    path: str
    kind: str
    arguments: tuple[Argument, ...]


class Slices:
    """Asks the process for slices, and keeps the last ones."""

    def __init__(self) -> None:
        # It is started by threads of requests, which end long before it does.
        self._cutter = Child(MODULE, nice=NICE, idle_s=IDLE_S, ends_with_thread=False)
        self._kept: OrderedDict[Question, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()  # guards what is kept
        self._turn = threading.Lock()  # whose holder may ask the process
        self._room = threading.BoundedSemaphore(MOST_WAITING)

    def get(self, question: Question) -> bytes:
        """Return a slice as gzipped JSON.

        Raises:
            CorruptEntry: the entry is gone or damaged.
            SlicesBusy: too many requests are waiting.
            GpudiagError: it cannot be cut.
        """
        found = self._find(question)
        if found is not None:
            return found
        if not self._room.acquire(blocking=False):
            raise SlicesBusy
        try:
            with self._turn:
                found = self._find(question)  # another request may have had it cut meanwhile
                if found is None:
                    found = self._cut(question)
                    self._keep(question, found)
                return found
        finally:
            self._room.release()

    def close(self) -> None:
        """End the process, and start none again."""
        self._cutter.close()

    def _find(self, question: Question) -> bytes | None:
        with self._lock:
            found = self._kept.get(question)
            if found is not None:
                self._kept.move_to_end(question)
            return found

    def _keep(self, question: Question, content: bytes) -> None:
        with self._lock:
            self._kept[question] = content
            self._kept_bytes += len(content)
            while self._kept_bytes > KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _cut(self, question: Question) -> bytes:
        """Ask the process, and again if it dies or hangs: a new one notices that a file is truncated."""
        what = ""
        request = {"where": question.path, "kind": question.kind, "arguments": question.arguments}
        for _ in range(2):
            try:
                return self._cutter.ask(request, ANSWER_WITHIN_S).content
            except TimeoutError:
                what = f"Cutting this part of the timeline took more than {ANSWER_WITHIN_S:g} s."
            except ChildEnded as ended:
                what = "The process that cuts parts of the timeline ended unexpectedly."
                logger.warning("gpudiag: the process that cuts slices ended with %s", ended)
        raise ProcessFailed(
            what,
            where=question.path,
            remedy="Check whether the disk of the cache responds, and whether this machine is out of memory "
            "or processes; then reload the page.",
        )
