"""Child processes that answer requests: start, limit, ask and end them. serving.py is the other side.
Messages have one format in both directions.

`multiprocessing` would run the main script of a program that embeds TensorBoard a second time. This module
imports only the standard library, because it also runs inside training jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import field
from enum import IntEnum
from typing import IO, Any, Final

from tb_gpudiag import errors
from tb_gpudiag.errors import GpudiagError, ProcessFailed
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.processes.process_setup import NICE, SIGKILL, worker_environment

_HEAD: Final = struct.Struct("<BII")  # kind, bytes of the fields, bytes of the content

# Far larger than any real message.
_MOST_FIELD_BYTES: Final = 256 << 20
_MOST_CONTENT_BYTES: Final = 1 << 30


class MessageKind(IntEnum):
    REQUEST = 1
    PROGRESS = 2  # share from 0 to 1, and stage
    PIECE = 3  # a part of a file
    ANSWER = 4
    ERROR = 5  # a GpudiagError
    LAST_ERROR = 6  # the same, and the process ends
    LAST_ANSWER = 7  # an answer, and the process ends


@dataclass(frozen=True)
class ChildMessage:
    """One message. In a request, the field `where` names the file that errors are about."""

    fields: dict[str, Any] = field(default_factory=dict)
    content: bytes = b""
    kind: MessageKind = MessageKind.ANSWER

    def packed(self) -> bytes:
        fields = json.dumps(self.fields).encode("ascii")
        return _HEAD.pack(self.kind, len(fields), len(self.content)) + fields + self.content


def take(received: bytearray) -> ChildMessage | None:
    """Remove the first message from what was received; None if it is not complete yet. Raises ValueError:
    the other side sent no message."""
    if len(received) < _HEAD.size:
        return None
    kind, field_bytes, content_bytes = _HEAD.unpack_from(received)
    if field_bytes > _MOST_FIELD_BYTES or content_bytes > _MOST_CONTENT_BYTES:
        raise ValueError("a message is too large")
    middle = _HEAD.size + field_bytes
    end = middle + content_bytes
    if len(received) < end:
        return None
    found = ChildMessage(
        json.loads(received[_HEAD.size : middle]), bytes(received[middle:end]), MessageKind(kind)
    )
    del received[:end]
    return found


def of_error(error: GpudiagError) -> ChildMessage:
    fields = {"error": type(error).__name__, "what": error.what, "where": error.where, "remedy": error.remedy}
    return ChildMessage(fields, kind=MessageKind.ERROR)


def error_in(message: ChildMessage) -> GpudiagError:
    named = getattr(errors, str(message.fields["error"]), None)
    kind = named if isinstance(named, type) and issubclass(named, GpudiagError) else ProcessFailed
    what, where, remedy = (str(message.fields[name]) for name in ("what", "where", "remedy"))
    return kind(what, where=where, remedy=remedy)


PROGRAM = (sys.executable, "-m", "tb_gpudiag.service.processes")

# How much of a child's output is kept for the log.
LAST_OUTPUT_BYTES: Final = 2000

# A child whose output has ended is about to exit.
ENDS_WITHIN_S: Final = 2.0

_PIECE_BYTES: Final = 1 << 20


class ChildEnded(Exception):
    """The process ended before it answered. str() says how it ended."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"signal {-code}" if code < 0 else f"exit code {code}")


class Child:
    """At most one process, started when it is asked for something, and replaced when it has ended.

    Only `close` and `kill` may be called while another thread uses it.

    module: has the function `answer`, which answers requests in the process: see serving.py.
    nice: how much a process that is started from now on lowers its priority.
    idle_s: the process exits if it is not asked for this long; 0 for never.
    ends_with_thread: on Linux, the process ends as soon as the thread that started it ends, whatever it is
        doing. Otherwise, it ends when it notices that its stdin has ended.
    """

    def __init__(
        self, module: str, *, nice: int = NICE, idle_s: float = 0.0, ends_with_thread: bool = True
    ) -> None:
        self._module = module
        self.nice = nice
        self._idle_s = idle_s
        self._ends_with_thread = ends_with_thread
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = threading.Event()
        self.last_output = b""
        self.is_used = False  # the process has answered before

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def ask(self, request: dict[str, Any], within_s: float | None = None) -> ChildMessage:
        """Return the answer to a request. See `messages`."""
        *_, answer = self.messages(request, within_s)
        return answer

    def messages(
        self, request: dict[str, Any], within_s: float | None = None, *, each: bool = False
    ) -> Iterator[ChildMessage]:
        """Send a request, and yield the messages that come back. The last one is the answer.

        within_s: how long it takes at most until the answer or, with `each`, until each message; None for any
            time.

        Raises:
            ProcessFailed: no process can be started.
            ChildEnded: the process ended, or was killed.
            TimeoutError: it took too long. The process is killed.
            GpudiagError: the process answered with this error.
        """
        answered = False
        process = self._running(str(request.get("where", "")))
        self.last_output = b""
        try:
            packed = ChildMessage(request, kind=MessageKind.REQUEST).packed()
            for message in self._exchange(process, packed, within_s, each):
                answered = message.kind in (MessageKind.ANSWER, MessageKind.ERROR)
                if message.kind in (MessageKind.ERROR, MessageKind.LAST_ERROR):
                    raise error_in(message)
                yield message
                if answered or message.kind is MessageKind.LAST_ANSWER:
                    return
        finally:
            self.is_used = answered
            if not answered:
                self.stop()

    def kill(self) -> None:
        """End the process at once, from any thread."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process at once, from any thread, and start none again."""
        self._closed.set()
        self.kill()

    def stop(self) -> int:
        """End the process and release its pipes. Return its exit code; 0 if no process ran."""
        process, self._process = self._process, None
        if process is None:
            return 0
        # Closing stdin is not enough: processes forked meanwhile have it open, too.
        process.kill()
        process.wait()
        self._keep_output(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return process.returncode

    def forget(self) -> None:
        """After a fork: leave the process to the parent of this one."""
        self._process = None

    def _running(self, where: str) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.stop()
        if self._closed.is_set():
            raise ChildEnded(-SIGKILL)
        parent = os.getpid() if self._ends_with_thread else 0
        try:
            process = subprocess.Popen(
                [*PROGRAM, self._module, str(parent), str(self.nice), str(self._idle_s)],
                stdin=subprocess.PIPE,  # ends when this process does, and then the child exits
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=worker_environment(),
                cwd=os.path.abspath(os.sep),  # it is on Python's path, and must not contain a random.py
                start_new_session=True,  # Ctrl-C in the terminal is for this process only
            )
        except OSError as error:
            raise ProcessFailed(
                f"No process could be started: {error.strerror or error}.",
                where=where,
                remedy="Check whether this machine is out of memory or processes.",
            ) from error
        for stream in (process.stdin, process.stderr):
            os.set_blocking(_descriptor(stream), False)
        self._process = process
        if self._idle_s:  # it exits by itself, and stays a zombie until somebody waits for it
            threading.Thread(target=process.wait, name="gpudiag-wait", daemon=True).start()
        if self._closed.is_set():  # by another thread, meanwhile
            process.kill()
        return process

    def _exchange(
        self, process: subprocess.Popen[bytes], request: bytes, within_s: float | None, each: bool
    ) -> Iterator[ChildMessage]:
        """Write the request, read stderr, and yield messages, without blocking on any single pipe."""
        to_it, from_it, output = map(_descriptor, (process.stdin, process.stdout, process.stderr))
        unsent = memoryview(request)
        received = bytearray()
        end_s = _end_s(within_s)
        # Not select(): TensorBoard may have thousands of files open.
        with selectors.PollSelector() as pipes:
            pipes.register(to_it, selectors.EVENT_WRITE)
            pipes.register(from_it, selectors.EVENT_READ)
            pipes.register(output, selectors.EVENT_READ)
            while ready := _ready(pipes, end_s):
                if to_it in ready:
                    unsent = unsent[_written(to_it, unsent) :]
                    if not unsent:
                        pipes.unregister(to_it)
                if output in ready and not self._keep_output(process):
                    pipes.unregister(output)
                if from_it in ready:
                    received += self._read(process)
                    while (message := _taken(received)) is not None:
                        yield message
                        if each:
                            end_s = _end_s(within_s)  # from now: whoever takes the messages may be slow
        raise TimeoutError

    def _read(self, process: subprocess.Popen[bytes]) -> bytes:
        content = os.read(_descriptor(process.stdout), _PIECE_BYTES)
        if content:
            return content
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN_S)  # before stop() kills it, which would hide its exit code
        raise ChildEnded(self.stop())

    def _keep_output(self, process: subprocess.Popen[bytes]) -> bool:
        """Read what the process has printed, and keep the end. Return whether it may print more."""
        with contextlib.suppress(BlockingIOError):
            while content := os.read(_descriptor(process.stderr), 65536):
                self.last_output = (self.last_output + content)[-LAST_OUTPUT_BYTES:]
            return False
        return True


def _descriptor(stream: IO[bytes] | None) -> int:
    assert stream is not None
    return stream.fileno()


def _end_s(within_s: float | None) -> float | None:
    return None if within_s is None else time.monotonic() + within_s


def _ready(pipes: selectors.BaseSelector, end_s: float | None) -> set[int]:
    """Wait until some pipes are ready, and return them; none if the time is over."""
    rest_s = None if end_s is None else max(0.0, end_s - time.monotonic())
    return {key.fd for key, _ in pipes.select(rest_s)}


def _written(descriptor: int, content: memoryview) -> int:
    """Write as much as fits. If the process has ended, all counts as written: reading shows the end."""
    try:
        return os.write(descriptor, content)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(content)


def _taken(received: bytearray) -> ChildMessage | None:
    try:
        return take(received)
    except ValueError as error:
        raise ChildEnded(0) from error
