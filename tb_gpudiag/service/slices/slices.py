"""Slices of timelines and of memory, cut by a process of its own (see cutter.py) and kept ready to send.

The process starts with the first slice, is replaced if it dies, and exits by itself when it is not needed.
Here, no request computes anything: it finds its slice or waits for the process, without holding Python's
lock. Pages ask for the same slices: they round what they ask for.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

from tb_gpudiag.errors import JobFailed
from tb_gpudiag.service.caches.cache_entry import CorruptEntry
from tb_gpudiag.service.processes.piped_process import end, start
from tb_gpudiag.service.settings import MIB
from tb_gpudiag.service.slices.slice_messages import Answer, Question

# Slices are kept compressed, of at most a few hundred kilobytes each.
KEPT_BYTES = 64 * MIB

# Requests that may wait for the process. More are answered at once that they have to ask again.
MOST_WAITING = 64

# A slice takes some hundredths of a second. The first one of a large trace reads all of its entry.
ANSWER_WITHIN_S = 20.0

COMMAND = (sys.executable, "-m", "tb_gpudiag.service.slices.cutter")

logger = logging.getLogger("tensorboard")


class Busy(Exception):
    """Too many requests are waiting already."""


class Slices:
    """Asks the process for slices, and keeps those that were asked for last."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = tuple(command)
        self._kept: OrderedDict[Question, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()  # of what is kept
        self._turn = threading.Lock()  # of the process
        self._room = threading.BoundedSemaphore(MOST_WAITING)
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def get(self, question: Question) -> bytes:
        """Return a slice as gzipped JSON.

        Raises:
            CorruptEntry: the entry is gone or damaged.
            Busy: too many others are waiting.
            GpudiagError: it cannot be cut.
        """
        found = self._find(question)
        if found is not None:
            return found
        if not self._room.acquire(blocking=False):
            raise Busy
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
        """Kill the process."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()

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
        answer = self._answer(question)
        if answer.state == "corrupt":
            raise CorruptEntry(question.path)
        if answer.state == "failed":
            raise answer.error()
        return answer.content

    def _answer(self, question: Question) -> Answer:
        """Ask the process, and a new one if it dies or hangs: a file that was cut off is found to be so
        then."""
        what = ""
        for _ in range(2):
            try:
                return self._exchange(question)
            except TimeoutError:
                what = f"Cutting this part of the timeline took more than {ANSWER_WITHIN_S:g} s."
            except (OSError, EOFError):
                what = "The process that cuts parts of the timeline ended unexpectedly."
            self._stop()
        raise JobFailed(
            what,
            where=question.path,
            remedy="Check whether the disk of the cache responds, and whether this machine is out of memory "
            "or processes; then reload the page.",
        )

    def _exchange(self, question: Question) -> Answer:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        deadline_s = time.monotonic() + ANSWER_WITHIN_S
        descriptor = process.stdout.fileno()
        os.write(process.stdin.fileno(), question.to_line())

        def read(size: int) -> bytes:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise TimeoutError
            return os.read(descriptor, size)

        return Answer.read(read)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise EOFError
        self._stop()
        return start(self._command)

    def _stop(self) -> None:
        """End the process, if there is one, and close its pipes."""
        process, self._process = self._process, None
        if process is None:
            return
        code = process.poll()
        if code:
            logger.warning("gpudiag: the process that cuts slices ended with code %d", code)
        end(process)
