"""Slices of timelines and of memory, cut by a process of its own (see cutter.py) and kept ready to send.

The process starts with the first slice, is replaced if it dies, and exits by itself when it is not needed.
Here, no request computes anything: it finds its slice or waits for the process, without holding Python's
lock. Pages ask for the same slices: they round what they ask for.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass

from tb_gpudiag.errors import ProcessFailed
from tb_gpudiag.service.processes.child import Child, ChildEnded
from tb_gpudiag.service.settings import MIB

# Slices are kept compressed, of at most a few hundred kilobytes each.
KEPT_BYTES = 64 * MIB

# Requests that may wait for the process. More are answered at once that they have to ask again.
MOST_WAITING = 64

# A slice takes some hundredths of a second. The first one of a large trace reads all of its entry.
ANSWER_WITHIN_S = 20.0

# Without questions, the process exits after this long and gives everything back.
IDLE_S = 300.0

# Other processes go first: those of TensorBoard's other tabs, and a training job.
NICE = 5

MODULE = "tb_gpudiag.service.slices.cutter"

Argument = float | str | None

logger = logging.getLogger("tensorboard")


class SlicesBusy(Exception):
    """Too many requests are waiting already."""


@dataclass(frozen=True)
class Question:
    """A slice to cut: of the entry at `path`, of a kind in cutter.SLICERS, with that function's arguments."""

    path: str
    kind: str
    arguments: tuple[Argument, ...]


class Slices:
    """Asks the process for slices, and keeps those that were asked for last."""

    def __init__(self) -> None:
        # Threads of requests start it, and end before it does.
        self._cutter = Child(MODULE, nice=NICE, idle_s=IDLE_S, ends_with_thread=False)
        self._kept: OrderedDict[Question, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()  # of what is kept
        self._turn = threading.Lock()  # of the process
        self._room = threading.BoundedSemaphore(MOST_WAITING)

    def get(self, question: Question) -> bytes:
        """Return a slice as gzipped JSON.

        Raises:
            CorruptEntry: the entry is gone or damaged.
            SlicesBusy: too many others are waiting.
            GpudiagError: it cannot be cut.
        """
        found = self._find(question)
        if found is not None:
            return found
        if not self._room.acquire(blocking=False):
            raise SlicesBusy
        try:
            with self._turn:
                found = self._find(question)  # another request may have asked for the same
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
        """Ask the process, and a new one if it dies or hangs: a file that was cut off is found to be so
        then."""
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
