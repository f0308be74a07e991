"""The child's side of child.py: `python -m tb_gpudiag.service.processes MODULE PARENT NICE IDLE_S`.

The process lowers its priority, imports MODULE, and answers requests with `MODULE.answer(request, reply)`,
until stdin ends. PARENT: a process id; Linux ends this process with that one. 0 for no such process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn

from tb_gpudiag.errors import Defect, GpudiagError, out_of_memory, used_up
from tb_gpudiag.service.processes.child import ChildMessage, MessageKind, of_error, take
from tb_gpudiag.service.processes.memory_limit import (
    limit_memory,
    memory_bytes,
    release_memory,
)
from tb_gpudiag.service.processes.process_setup import (
    die_with_parent,
    do_without_pandas,
    lower_priority,
    without_collecting,
)

# A progress bar cannot show more than this.
SAY_EVERY_S: Final = 0.1

PIPE_BYTES: Final = 1 << 20

# A process that keeps more after a request is replaced, so that memory does not add up over many files, and
# the next file has all of its limit but this share.
MOST_KEPT_BYTES: Final = 256 << 20
SHARE_KEPT: Final = 1 / 8

AnswerRequest = Callable[[dict[str, Any], "Reply"], ChildMessage]


class Reply:
    """Sends messages to the parent. Ends this process if the parent no longer reads them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._said_s = 0.0
        self._stage = ""
        self._limit_bytes = 0
        self._lowest = True
        self.where = ""  # the file that the current request is about

    def begin(self, where: str) -> None:
        """Begin with a request, about this file."""
        self.where, self._stage = where, ""

    def progress(self, share: float, stage: str) -> None:
        """Report the share of the work that is done, from 0 to 1. Call it as often as you like."""
        now_s = time.monotonic()
        if stage != self._stage or now_s - self._said_s >= SAY_EVERY_S:
            self._stage, self._said_s = stage, now_s
            fields = {"share": min(max(share, 0.0), 1.0), "stage": stage}
            self.send(ChildMessage(fields, kind=MessageKind.PROGRESS))

    def piece(self, content: bytes) -> None:
        """Send a part of a file."""
        self.send(ChildMessage(content=content, kind=MessageKind.PIECE))

    def bound_memory(self, limit_bytes: int) -> None:
        """Limit the memory of this process, which ends with an error beyond that. The first limit counts."""
        if not self._limit_bytes:
            self._limit_bytes = limit_bytes
            self._lowest = limit_memory(limit_bytes, self._exceeded)

    def is_full(self) -> bool:
        """Return whether requests have left so much in memory that another process answers the next one."""
        most_bytes = min(MOST_KEPT_BYTES, self._limit_bytes * SHARE_KEPT)
        if not self._limit_bytes or memory_bytes() <= most_bytes:
            return False
        release_memory()
        return memory_bytes() > most_bytes

    def end_if_used_up(self, error: Exception) -> None:
        """Answer that memory or processes ran out, if this error says so, and end this process: its libraries
        may no longer work."""
        limit_bytes = self._limit_bytes if self._lowest else 0
        if reached := used_up(error, where=self.where, limit_bytes=limit_bytes):
            self._end(of_error(reached))

    def send(self, message: ChildMessage) -> None:
        with self._lock:
            unsent = memoryview(message.packed())
            try:
                while unsent:
                    unsent = unsent[os.write(self._descriptor, unsent) :]
            except OSError:
                os._exit(1)

    def _exceeded(self) -> None:
        self._end(of_error(out_of_memory(self._limit_bytes, self.where)))

    def _end(self, message: ChildMessage) -> NoReturn:
        self.send(replace(message, kind=MessageKind.LAST_ERROR))
        os._exit(1)


def main() -> None:
    """Answer requests until stdin ends or, with IDLE_S, none comes for a while."""
    module, parent, nice, idle_s = sys.argv[1:]
    faulthandler.enable()
    # What libraries print must not get between the messages.
    reply = Reply(_widened(os.dup(1)))
    os.dup2(2, 1)
    if int(parent):
        die_with_parent(int(parent))
    lower_priority(int(nice))
    do_without_pandas()
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), name="gpudiag-requests", daemon=True).start()
    with without_collecting():
        answer: AnswerRequest = importlib.import_module(module).answer
    with contextlib.suppress(Empty):
        while True:
            serve(answer, requests.get(timeout=float(idle_s) or None), reply)
    # Not sys.exit: the reading thread never ends, and there is nothing to clean up.
    os._exit(0)


def serve(answer: AnswerRequest, request: dict[str, Any], reply: Reply) -> None:
    """Answer one request, whatever happens."""
    reply.begin(str(request.get("where", "")))
    try:
        found = answer(request, reply)
        is_last = reply.is_full()
        reply.send(replace(found, kind=MessageKind.LAST_ANSWER) if is_last else found)
        if is_last:
            os._exit(0)
    except GpudiagError as error:
        reply.send(of_error(error))
    except Exception as error:
        reply.end_if_used_up(error)
        # Log the place, not the message: that may contain anything from the trace.
        traceback.print_tb(error.__traceback__)
        reply.send(of_error(Defect.of(error, where=reply.where, remedy="Please report this bug.")))


def _widened(pipe: int) -> int:
    """Let the pipe hold a whole slice, so that TensorBoard can read it at once."""
    with contextlib.suppress(ImportError, AttributeError, OSError):  # not on this system, or not allowed here
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return pipe


def _read(requests: SimpleQueue[dict[str, Any]]) -> None:
    """Read requests until stdin ends, as it does however the parent ends. Then, exit."""
    received = bytearray()
    with contextlib.suppress(Exception):
        while content := os.read(0, 1 << 20):
            received += content
            while (request := take(received)) is not None:
                requests.put(request.fields)
    os._exit(0)
