"""Run one analysis in its own process: `python -m tb_gpudiag.service.analyses.worker`, with a Task (see
protocol.py) on stdin.

The process exits when its parent does, however that one ended, and limits its own memory.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from tb_gpudiag.errors import Defect, GpudiagError, JobFailed, LimitReached, is_out_of_memory
from tb_gpudiag.service.analyses.protocol import Done, Failed, Progress, Task
from tb_gpudiag.service.processes.child_process import die_with_parent, lower_priority, without_collecting
from tb_gpudiag.service.processes.memory_limit import limit_memory
from tb_gpudiag.service.settings import MIB

# More often than a progress bar can show is useless.
SAY_EVERY_S = 0.1


class Reporter:
    """Writes messages to the parent, and limits how often progress is reported."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._said_s = 0.0
        self._stage = ""

    def say(self, message: Progress | Done | Failed) -> None:
        """Write a message. Exit if the parent no longer reads them."""
        with self._lock:
            try:
                self._out.write(message.to_line())
                self._out.flush()
            except OSError:
                os._exit(1)

    def progress(self, share: float, stage: str) -> None:
        """Report the share of the whole analysis that is done, from 0 to 1."""
        now_s = time.monotonic()
        if stage != self._stage or now_s - self._said_s >= SAY_EVERY_S:
            self._stage, self._said_s = stage, now_s
            self.say(Progress(share, stage))


def main(analyze: Callable[[Task, Callable[[float, str], None]], Path]) -> None:
    """Read the task, run it, and report the outcome."""
    faulthandler.enable()
    # Libraries may print: that must not get between the messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Unbuffered: another thread waits for the end of stdin, and must see what follows the task.
    task = Task.from_line(first_line(0))
    reporter = Reporter(out)
    end_with_parent(task.parent)
    lower_priority()
    _bound_memory(task, reporter)
    result: Done | Failed
    try:
        result = Done(str(analyze(task, reporter.progress)))
    except GpudiagError as error:
        result = Failed(error)
    except Exception as error:
        if is_out_of_memory(error):
            reporter.say(Failed(_out_of_memory(task)))
            os._exit(0)
        # Log the place, not the message: that may contain anything from the trace.
        traceback.print_tb(error.__traceback__)
        remedy = "Please report this bug. TensorBoard's log has the details."
        result = Failed(Defect.of(error, where=task.file.path, remedy=remedy))
    reporter.say(result)
    # Not sys.exit: the watching threads never end, and there is nothing to clean up.
    os._exit(0)


def analyze(task: Task, progress: Callable[[float, str], None]) -> Path:
    """Do the task and save the result. Return the draft with the result."""
    with without_collecting():
        from tb_gpudiag.service.analyses.tasks import do

    return save(task, *do(task, progress))


def save(task: Task, report_gz: bytes, arrays: Mapping[str, Any], summary: Mapping[str, str]) -> Path:
    """Write the entry to the first draft that can be created, and return that draft.

    Raises:
        JobFailed: none can be created.
    """
    from tb_gpudiag.service.caches.cache_entry import write_entry

    reason = "there is no directory to write to"
    for draft in map(Path, task.drafts):
        try:
            write_entry(draft, report_gz, arrays, summary)
            return draft
        except OSError as error:
            reason = error.strerror or str(error)
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
    raise JobFailed(
        f"The result cannot be saved: {reason}.",
        where=task.drafts[0] if task.drafts else "",
        remedy="Free space on that disk, or set GPUDIAG_CACHE_DIR to another directory.",
    )


def first_line(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(descriptor, 65536)
        if not chunk:
            os._exit(1)  # the parent ended before it sent the task
        line += chunk
    return line


def end_with_parent(parent: int) -> None:
    """Exit when stdin ends. On Linux, also ask for a signal, which works inside a C library, too."""

    def wait() -> None:
        while os.read(0, 65536):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="gpudiag-parent", daemon=True).start()
    die_with_parent(parent)


def _bound_memory(task: Task, reporter: Reporter) -> None:
    def stop() -> None:
        reporter.say(Failed(_out_of_memory(task)))
        os._exit(1)

    limit_memory(task.memory_limit_bytes, stop)


def _out_of_memory(task: Task) -> LimitReached:
    return LimitReached.of_memory(task.memory_limit_bytes // MIB, where=task.file.path)


if __name__ == "__main__":
    main(analyze)
