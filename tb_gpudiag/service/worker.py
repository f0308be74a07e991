"""One analysis, in its own process: `python -m tb_gpudiag.service.worker`, with a Task on stdin (see
protocol.py).

It ends when its parent does, however that one died, and keeps to its bound on memory by itself.
"""

from __future__ import annotations

import faulthandler
import gzip
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from tb_gpudiag.errors import GpudiagError, JobFailed
from tb_gpudiag.service.protocol import Done, Failed, Progress, Task
from tb_gpudiag.service.settings import MIB

# Reading is most of the work; the rest is spread over what is left of the bar.
SHARE_OF_READING = 0.7

# An allocation fills memory at some gigabytes a second: this often is soon enough.
WATCH_MEMORY_EVERY_S = 0.05

# The watch sees memory in use, with a delay. One allocation far past the bound is refused outright.
REFUSED_AT = 2

# More than a progress bar can show is noise on the pipe.
SAY_EVERY_S = 0.1

# The job that is being diagnosed may run on this machine.
NICE = 5

# To the kernel, when memory runs out: rather this process than TensorBoard or a training job.
OOM_SCORE_ADJUSTMENT = "500"

PR_SET_PDEATHSIG = 1
SIGKILL = 9


class Reporter:
    """Writes messages to the parent; progress only so often."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._said_s = 0.0
        self._stage = ""

    def say(self, message: Progress | Done | Failed) -> None:
        """Ends this process where nobody listens any more."""
        with self._lock:
            try:
                self._out.write(message.to_line())
                self._out.flush()
            except OSError:
                os._exit(1)

    def progress(self, share: float, stage: str) -> None:
        """`share` of the whole analysis, from 0 to 1."""
        now_s = time.monotonic()
        if stage != self._stage or now_s - self._said_s >= SAY_EVERY_S:
            self._stage, self._said_s = stage, now_s
            self.say(Progress(share, stage))


def main(analyse: Callable[[Task, Callable[[float, str], None]], Path]) -> None:
    """Takes the task, has it done, and tells how it went."""
    faulthandler.enable()
    # What a library prints must not stand between the messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Unbuffered, so that the thread which waits for the end of stdin reads what comes after the task.
    task = Task.from_line(_line_of(0))
    reporter = Reporter(out)
    _end_with_parent(task.parent)
    _be_modest()
    _bound_memory(task, reporter)
    result: Done | Failed
    try:
        result = Done(str(analyse(task, reporter.progress)))
    except GpudiagError as error:
        result = Failed(error)
    except MemoryError:
        result = Failed(_out_of_memory(task))
    except Exception as error:
        # Where it happened, for the log; what the exception says may be anything from the trace.
        traceback.print_tb(error.__traceback__)
        result = Failed(_defect(error, task))
    reporter.say(result)
    # Not sys.exit: the threads that watch never end, and nothing here is worth a slow one.
    os._exit(0)


def analyse(task: Task, progress: Callable[[float, str], None]) -> Path:
    """Reads, diagnoses, and saves; returns the draft that was filled."""
    from tb_gpudiag.facts.facts import Facts
    from tb_gpudiag.report import report_pb2
    from tb_gpudiag.report.building.build import build_report
    from tb_gpudiag.report.slices.memory_slice import prepare_memory
    from tb_gpudiag.report.slices.timeline import prepare_timeline
    from tb_gpudiag.report.wire import to_json
    from tb_gpudiag.trace.read import read_trace

    trace = read_trace(
        task.file.path, progress=lambda share, stage: progress(share * SHARE_OF_READING, stage)
    )
    progress(SHARE_OF_READING, "diagnosing")
    facts = Facts(trace)
    report = build_report(facts, task.file)
    progress(0.9, "preparing the timeline")
    arrays = prepare_timeline(facts) | prepare_memory(facts)
    progress(0.95, "saving")
    ready = to_json(report_pb2.ReportState(state="ready", progress=1.0, report=report)).encode("utf-8")
    summary = {"limiter": report.verdict.limiter, "sentence": report.verdict.sentence}
    return save(task, gzip.compress(ready, mtime=0), arrays, summary)


def save(task: Task, report_gz: bytes, arrays: Mapping[str, Any], summary: Mapping[str, str]) -> Path:
    """Writes the entry into the first draft that can be written.

    Raises:
        JobFailed: none can.
    """
    from tb_gpudiag.service.entry import write_entry

    reason = "there is no place to write to"
    for draft in map(Path, task.drafts):
        try:
            write_entry(draft, report_gz, arrays, summary)
            return draft
        except OSError as error:
            reason = error.strerror or str(error)
            shutil.rmtree(draft, ignore_errors=True)
    raise JobFailed(
        f"The result cannot be saved: {reason}.",
        where=task.drafts[0] if task.drafts else "",
        remedy="Make room on that disk, or set GPUDIAG_CACHE_DIR to another place.",
    )


def _line_of(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(descriptor, 65536)
        if not chunk:
            os._exit(1)  # the parent is gone before it said anything
        line += chunk
    return line


def _end_with_parent(parent: int) -> None:
    """Twice over: the end of stdin comes everywhere, the signal also where Python is held up by a library."""

    def wait() -> None:
        while os.read(0, 65536):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="gpudiag-parent", daemon=True).start()
    if sys.platform == "linux":
        import ctypes

        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        except (OSError, AttributeError):  # a C library without it
            return
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)


def _be_modest() -> None:
    try:
        os.nice(NICE)
        if sys.platform == "linux":
            Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJUSTMENT)
    except (OSError, AttributeError):  # not on this system, or not allowed here
        pass


def _bound_memory(task: Task, reporter: Reporter) -> None:
    limit_bytes = task.memory_limit_bytes
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        refused_at = limit_bytes * REFUSED_AT
        if hard == resource.RLIM_INFINITY or refused_at < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (refused_at, hard))
    except (ImportError, OSError, ValueError):  # not on this system, or not allowed here
        pass

    def watch() -> None:
        while True:
            time.sleep(WATCH_MEMORY_EVERY_S)
            if memory_bytes() > limit_bytes:
                reporter.say(Failed(_out_of_memory(task)))
                os._exit(1)

    threading.Thread(target=watch, name="gpudiag-memory", daemon=True).start()


def memory_bytes() -> int:
    """What this process has in memory and shares with no file; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared, *_ = file.read().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        pass
    try:
        import resource

        # macOS counts bytes. Linux counts kilobytes, but it has /proc.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except ImportError:
        return 0


def _out_of_memory(task: Task) -> JobFailed:
    return JobFailed(
        f"The analysis was stopped at its bound of {task.memory_limit_bytes // MIB} MB of memory.",
        where=task.file.path,
        remedy="Record fewer steps, or set GPUDIAG_MEMORY_LIMIT_MB higher.",
    )


def _defect(error: Exception, task: Task) -> JobFailed:
    """The place in the code, not the message: that may hold anything from the trace."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return JobFailed(
        f"The analysis met a defect of gpudiag: {type(error).__name__} in {place}.",
        where=task.file.path,
        remedy="Please report it. TensorBoard's log has the details.",
    )


if __name__ == "__main__":
    main(analyse)
