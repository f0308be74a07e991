"""Run analyses, each in its own process: a queue, a limit on how many run at once, and limits on each.

Analyses run in processes because a process does not block the other tabs of TensorBoard, can be killed, and
frees its memory. `multiprocessing` would run the main script of a program that embeds TensorBoard a second
time, so this uses `subprocess`. All threads are daemons, so that TensorBoard exits without waiting for them.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tb_gpudiag.errors import GpudiagError, JobFailed, LimitReached, NoAnswer
from tb_gpudiag.service.analyses.process_end import listen, log_last_output, why_no_result
from tb_gpudiag.service.analyses.protocol import TRANSIENT, Done, Failed, Progress, Task, parse
from tb_gpudiag.service.caches.cache import Cache
from tb_gpudiag.service.caches.cache_entry import Entry
from tb_gpudiag.service.caches.claims import WAITING as WAITING_FOR_OTHERS
from tb_gpudiag.service.processes.child_process import worker_environment
from tb_gpudiag.service.settings import Settings
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.trace.files.source import WAITING_FOR_STORE

# A visible page asks about every second. A hidden page stops asking, but its user may come back. After this
# long without a question, the analysis is stopped.
ABANDONED_AFTER_S = 60.0

# How often running processes are checked against their limits.
TICK_S = 0.2

# Failures of this many traces are remembered, so that the same analysis does not fail again and again.
FAILURES_KEPT = 1000

# A failure that may not be about the file is tried again if someone asks after this long. After two failures
# of processes, the wait is longer.
RETRY_AFTER_S = 20.0
RETRY_LATER_S = 300.0

# Analyses that wait for a store, or for another process, do not keep others from running. But they may all go
# on at once: this many times as many processes as may run.
WAITING_STAGES = frozenset({WAITING_FOR_STORE, WAITING_FOR_OTHERS})
MOST_PER_WORKER = 2

# A file that has crashed this many processes most likely crashes the next one.
MOST_CRASHES = 3

COMMAND = (sys.executable, "-m", "tb_gpudiag.service.analyses.worker")


@dataclass(frozen=True)
class AnalysisState:
    """State of an analysis."""

    state: Literal["queued", "running", "failed"]
    progress: float = 0.0
    stage: str = ""
    error: GpudiagError | None = None


@dataclass
class _Job:
    key: str
    file: TraceFile
    asked_s: float
    state: Literal["queued", "running", "failed", "done"] = "queued"
    progress: float = 0.0
    stage: str = ""
    error: GpudiagError | None = None
    began_s: float = 0.0
    ended_s: float = 0.0
    not_before_s: float = 0.0  # when it is tried again
    drafts: list[Path] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    stopped: GpudiagError | None = None  # why its process was killed
    kind: str = "diagnose"  # this and the next three: see Task
    sources: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    records: tuple[tuple[str, int, str], ...] = ()
    failures: int = 0  # of processes for this file, one after another
    crashes: int = 0  # failures without a message


class AnalysisQueue:
    """Queue of analyses and their processes. Results go into `cache`.

    `on_change(key)` is called whenever the state of a job changes. The lock is held, so it must be fast.
    `on_ready(key, entry)` is called when a result is there, before `on_change(key)`.
    """

    def __init__(
        self,
        settings: Settings,
        cache: Cache,
        *,
        on_change: Callable[[str], None] = lambda key: None,
        on_ready: Callable[[str, Entry], None] = lambda key, entry: None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._on_change = on_change
        self._on_ready = on_ready
        self._command = tuple(command)
        self._jobs: dict[str, _Job] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._scheduler: threading.Thread | None = None
        atexit.register(self.close)

    def ask(
        self,
        key: str,
        file: TraceFile,
        kind: str = "diagnose",
        sources: tuple[str, ...] = (),
        ids: tuple[str, ...] = (),
        records: tuple[tuple[str, int, str], ...] = (),
    ) -> AnalysisState:
        """Return the state of the analysis of `file`, and queue it if there is none.

        Its result gets the key `key`. The analysis goes on as long as somebody asks.
        kind, sources, ids, records: see Task.
        """
        with self._changed:
            job = self._jobs.get(key)
            now_s = time.monotonic()
            if job is None or _may_be_retried(job, now_s):
                before = (job.failures, job.crashes) if job else (0, 0)
                job = self._jobs[key] = _Job(
                    key,
                    file,
                    now_s,
                    kind=kind,
                    sources=sources,
                    ids=ids,
                    records=records,
                    failures=before[0],
                    crashes=before[1],
                )
                if self._scheduler is None and not self._closed:
                    # It runs as long as this process: Linux kills a worker when the *thread* that started it
                    # ends.
                    self._scheduler = threading.Thread(
                        target=self._schedule, name="gpudiag-jobs", daemon=True
                    )
                    self._scheduler.start()
                self._tell(job)
            job.asked_s = now_s
            return _state_of(job)

    def state(self, key: str) -> AnalysisState | None:
        """Return the state without asking for the result; None if there is no such job."""
        with self._changed:
            job = self._jobs.get(key)
            return _state_of(job) if job is not None else None

    def cancel(self, key: str) -> bool:
        """Stop a queued or running job and forget it. Return False if there is none."""
        with self._changed:
            job = self._jobs.get(key)
            if job is None or job.state not in ("queued", "running"):
                return False
            self._drop(job)
            return True

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        with self._changed:
            states = [job.state for job in self._jobs.values()]
        return {state: states.count(state) for state in ("queued", "running", "failed")}

    def close(self) -> None:
        """Kill all processes, without waiting for them."""
        with self._changed:
            self._closed = True
            for job in list(self._jobs.values()):
                if job.state in ("queued", "running"):
                    self._drop(job)
            self._changed.notify_all()

    def _drop(self, job: _Job) -> None:
        job.stopped = JobFailed("The analysis was canceled.", where=job.file.path)
        if job.process is not None:
            job.process.kill()
        self._jobs.pop(job.key, None)
        self._tell(job)

    def _tell(self, job: _Job) -> None:
        self._changed.notify_all()
        self._on_change(job.key)

    def _schedule(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._enforce()
                job = self._next()
                if job is None:
                    busy = any(job.state in ("queued", "running") for job in self._jobs.values())
                    self._changed.wait(TICK_S if busy else None)
                    continue
                job.state, job.began_s, job.stage = "running", time.monotonic(), "starting"
                self._tell(job)
            there = self._cache.find(job.key)
            if there is not None:
                # The result came after the caller looked into the cache, or from another TensorBoard.
                self._on_ready(job.key, there)
                with self._changed:
                    self._finish(job)
            else:
                self._begin(job)

    def _next(self) -> _Job | None:
        """Return the queued job that was asked for last; None if there is none or all workers are busy."""
        running = [job.stage not in WAITING_STAGES for job in self._jobs.values() if job.state == "running"]
        now_s = time.monotonic()
        queued = [job for job in self._jobs.values() if job.state == "queued" and job.not_before_s <= now_s]
        workers = self._settings.workers
        if sum(running) >= workers or len(running) >= MOST_PER_WORKER * workers or not queued:
            return None
        return max(queued, key=lambda job: job.asked_s)

    def _enforce(self) -> None:
        """Stop jobs that nobody asks about or that are over their time limit. Forget the oldest failures."""
        now_s = time.monotonic()
        for job in list(self._jobs.values()):
            if job.state in ("queued", "running") and now_s - job.asked_s > ABANDONED_AFTER_S:
                self._drop(job)
            elif job.state == "running" and now_s - job.began_s > self._settings.time_limit_s:
                self._stop_at_time_limit(job)
        failed = [job for job in self._jobs.values() if job.state == "failed"]
        for job in failed[: max(0, len(failed) - FAILURES_KEPT)]:
            del self._jobs[job.key]

    def _stop_at_time_limit(self, job: _Job) -> None:
        if job.stopped is None and job.stage == WAITING_FOR_STORE:
            job.failures += 1
            job.stopped = NoAnswer(
                f"the store did not send the file within the time limit of {self._settings.time_limit_s:g} s",
                where=job.file.path,
                remedy="check the connection, or increase GPUDIAG_TIME_LIMIT_S",
            )
        elif job.stopped is None:
            job.stopped = LimitReached(
                f"The analysis was stopped at its time limit of {self._settings.time_limit_s:g} s.",
                where=job.file.path,
                remedy="Record fewer steps, or increase GPUDIAG_TIME_LIMIT_S.",
            )
        if job.process is not None:
            job.process.kill()

    def _begin(self, job: _Job) -> None:
        job.drafts = self._cache.drafts()
        task = Task(
            file=job.file,
            drafts=[str(draft) for draft in job.drafts],
            memory_limit_bytes=self._settings.memory_limit_bytes,
            parent=os.getpid(),
            kind=job.kind,
            sources=job.sources,
            ids=job.ids,
            records=job.records,
            shared=str(self._settings.shared_directory or ""),
        )
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,  # it ends when we do, and then the worker exits
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=worker_environment(),
                cwd=os.path.abspath(os.sep),  # it is on Python's path, and must not contain a random.py
                start_new_session=True,  # Ctrl-C in the terminal is for TensorBoard only
            )
        except OSError as error:
            with self._changed:
                self._fail(
                    job,
                    JobFailed(
                        f"No analysis process could be started: {error.strerror or error}.",
                        where=job.file.path,
                        remedy="Check whether this machine is out of memory or processes.",
                    ),
                )
            return
        with self._changed:
            job.process = process
            if job.stopped is not None:
                process.kill()
        threading.Thread(
            target=self._follow, args=(job, process, task), name="gpudiag-job", daemon=True
        ).start()

    def _follow(self, job: _Job, process: subprocess.Popen[bytes], task: Task) -> None:
        """Send the task and read messages until the process ends."""
        last_output: list[bytes] = []
        listener = threading.Thread(
            target=listen, args=(process, last_output), name="gpudiag-stderr", daemon=True
        )
        listener.start()
        outcome: Done | Failed | None = None
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(task.to_line())
            process.stdin.flush()
            for message in parse(process.stdout):
                if isinstance(message, Progress):
                    with self._changed:
                        job.progress, job.stage = message.share, message.stage
                        if job.stage == WAITING_FOR_OTHERS:  # its own time begins after that
                            job.began_s = time.monotonic()
                else:
                    outcome = message
        except OSError:  # it ended before it read the task
            pass
        code = process.wait()
        listener.join(1.0)
        for stream in (process.stdin, process.stdout, process.stderr):
            try:
                stream.close()  # type: ignore[union-attr]
            except OSError:  # the pipe still has text that it did not read
                pass
        self._end(job, outcome, code, b"".join(last_output))

    def _end(self, job: _Job, outcome: Done | Failed | None, code: int, last_output: bytes) -> None:
        """Settle a job whose process has ended with this exit code."""
        entry = self._keep_result(job, outcome)
        with self._changed:
            if job.stopped is not None:
                self._fail(job, job.stopped)
            elif entry is not None:
                self._finish(job)
            else:
                job.crashes += outcome is None
                self._fail(job, why_no_result(outcome, code, job.file.path))
        if last_output and job.stopped is None and job.state == "failed":
            log_last_output(last_output, code)

    def _keep_result(self, job: _Job, outcome: Done | Failed | None) -> Entry | None:
        """Move the result into the cache and delete the other drafts. None if there is no result to keep."""
        filled = Path(outcome.draft) if isinstance(outcome, Done) and job.stopped is None else None
        for draft in job.drafts:
            if draft != filled:
                self._cache.discard(draft)
        if filled is None or filled not in job.drafts:
            return None
        entry = self._cache.commit(filled, job.key)
        if entry is not None:
            self._on_ready(job.key, entry)
            self._cache.trim()
        return entry

    def _finish(self, job: _Job) -> None:
        job.state = "done"
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        self._tell(job)

    def _fail(self, job: _Job, error: GpudiagError) -> None:
        if isinstance(error, NoAnswer) and self._jobs.get(job.key) is job:
            self._try_again(job, error)
            return
        job.state, job.error, job.ended_s = "failed", error, time.monotonic()
        job.failures += isinstance(error, JobFailed)
        job.process = None
        self._tell(job)

    def _try_again(self, job: _Job, error: NoAnswer) -> None:
        """Queue a job again whose store may answer later, as long as somebody asks."""
        pause_s = RETRY_AFTER_S if job.failures < 2 else RETRY_LATER_S
        job.state, job.progress, job.process, job.stopped = "queued", 0.0, None, None
        job.stage = f"{error}. It is tried again after {pause_s:g} s."
        job.not_before_s = time.monotonic() + pause_s
        self._tell(job)


def _state_of(job: _Job) -> AnalysisState:
    assert job.state != "done"  # finished jobs are removed
    return AnalysisState(job.state, job.progress, job.stage, job.error)


def _may_be_retried(job: _Job, now_s: float) -> bool:
    if job.state != "failed" or not isinstance(job.error, TRANSIENT) or job.crashes >= MOST_CRASHES:
        return False
    return now_s - job.ended_s > (RETRY_AFTER_S if job.failures < 2 else RETRY_LATER_S)
