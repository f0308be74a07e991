"""A queue of analyses. They run in a few processes, one after the other, each with limits on time and memory.

A process does not block the other tabs of TensorBoard, can be killed, and frees its memory. All threads are
daemons, so TensorBoard exits without waiting for them.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from tb_gpudiag.errors import Defect, GpudiagError, NoAnswer, ProcessFailed, Unreadable
from tb_gpudiag.service.analyses.task import Pending, Task
from tb_gpudiag.service.analyses.worker_pool import WorkerPool
from tb_gpudiag.service.caches.cache import Cache
from tb_gpudiag.service.caches.cache_entry import CacheEntry
from tb_gpudiag.service.caches.claims import WAITING as WAITING_FOR_OTHERS
from tb_gpudiag.service.processes.child import Child, ChildEnded, MessageKind
from tb_gpudiag.service.processes.memory_limit import out_of_time
from tb_gpudiag.service.processes.process_setup import NICE
from tb_gpudiag.service.settings import Settings
from tb_gpudiag.trace.files.source import WAITING_FOR_STORE
from tb_gpudiag.wording.format import ordinal

# A visible page asks about every second. A hidden page stops asking, but its user may come back. An analysis
# is stopped if nobody asks about it for this long.
ABANDONED_AFTER_S = 60.0

# A visible page has asked within this time. Its analysis goes before those that a page asked for earlier.
VISIBLE_S = 3.0

# The wait in the queue is told from how long so many of the last analyses took.
DURATIONS_KEPT = 20

# How often running analyses are checked against their limits.
TICK_S = 0.2

# This many failures are remembered, so that the same analysis does not fail again and again.
FAILURES_KEPT = 1000

# After a failure that may not be the file's fault, an analysis runs again if someone asks after this long.
# After two processes that could not start, or not save their result, the wait is longer.
RETRY_AFTER_S = 20.0
RETRY_LATER_S = 300.0

# Analyses that wait for a store or for another process do not keep others from running. As all of them may go
# on at once, at most this many times `workers` processes are started.
WAITING_STAGES = frozenset({WAITING_FOR_STORE, WAITING_FOR_OTHERS})
MOST_PER_WORKER = 2

# A file that has crashed this many processes would most likely crash the next one.
MOST_CRASHES = 3

# Errors that may not be the file's fault, so another attempt may succeed. After a bug or at a limit, the file
# would fail again.
TRANSIENT = (ProcessFailed, Unreadable)

MODULE = "tb_gpudiag.service.analyses.worker"

logger = logging.getLogger("tensorboard")


@dataclass
class _Analysis:
    key: str
    task: Task
    asked_s: float
    queued_s: float  # when it was first asked for
    state: Literal["queued", "running", "failed", "done"] = "queued"
    progress: float = 0.0
    stage: str = ""
    error: GpudiagError | None = None
    report: bytes = b""  # see Pending
    began_s: float = 0.0
    ended_s: float = 0.0
    not_before_s: float = 0.0  # when it is tried again
    drafts: list[Path] = field(default_factory=list)
    child: Child | None = None  # of the worker that runs it
    stopped: GpudiagError | None = None  # why its process was killed
    failures: int = 0  # processes that failed in a row
    crashes: int = 0  # of these, processes that ended without an answer
    unasked: bool = False  # it goes on although nobody asks
    awaited: bool = False  # a page shows nothing else until it is done

    def is_abandoned(self, now_s: float) -> bool:
        return not self.unasked and now_s - self.asked_s > ABANDONED_AFTER_S

    def stop(self, reason: GpudiagError) -> None:
        """Kill its process, now or as soon as there is one."""
        self.stopped = self.stopped or reason
        if self.child is not None:
            self.child.close()

    def turn(self, now_s: float) -> tuple[bool, float, float]:
        """Return the place in the queue: visible pages in the order in which they came, then the others."""
        return not self.awaited, max(0.0, now_s - self.asked_s - VISIBLE_S), self.queued_s


class AnalysisQueue:
    """Analyses that wait, run or have failed. Results go into `cache`.

    on_change(key) is called whenever the state of an analysis changes. The lock is held, so it must be fast.
    on_ready(key, entry) is called when a result is there, before on_change(key).
    """

    def __init__(
        self,
        settings: Settings,
        cache: Cache,
        *,
        on_change: Callable[[str], None] = lambda key: None,
        on_ready: Callable[[str, CacheEntry], None] = lambda key, entry: None,
        module: str = MODULE,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._on_change = on_change
        self._on_ready = on_ready
        self._workers = WorkerPool(module)
        self._analyses: dict[str, _Analysis] = {}
        self._durations_s: deque[float] = deque(maxlen=DURATIONS_KEPT)
        self._changed = threading.Condition()
        self._closed = False
        self._scheduler: threading.Thread | None = None
        atexit.register(self.close)

    def ask(self, key: str, task: Task, *, awaited: bool = True) -> Pending:
        """Return the state of the analysis with the result `key`. Queue `task` if there is none.

        An analysis goes on as long as somebody asks. awaited: somebody waits for it: if that is said before
        it begins, it runs with the priority of other programs, as a command does.
        """
        with self._changed:
            analysis = self._analyses.get(key)
            now_s = time.monotonic()
            if analysis is None or _may_be_retried(analysis, now_s):
                new = _Analysis(key, task, now_s, now_s)
                if analysis is not None:
                    new.failures, new.crashes = analysis.failures, analysis.crashes
                analysis = self._analyses[key] = new
                if self._scheduler is None and not self._closed:
                    self._scheduler = threading.Thread(
                        target=self._schedule, name="gpudiag-analyses", daemon=True
                    )
                    self._scheduler.start()
                self._tell(analysis)
            analysis.asked_s = now_s
            analysis.awaited |= awaited
            if analysis.state == "queued" and not analysis.stage:
                return Pending("queued", stage=self._place(analysis))
            return _state_of(analysis)

    def begin(self, key: str, task: Task) -> None:
        """Queue `task` behind everything that somebody asks for. It goes on although nobody asks."""
        with self._changed:
            self.ask(key, task, awaited=False)
            self._analyses[key].asked_s, self._analyses[key].unasked = 0.0, True

    def state(self, key: str) -> Pending | None:
        """Return the state of an analysis; None if there is none. This does not count as asking."""
        with self._changed:
            analysis = self._analyses.get(key)
            return _state_of(analysis) if analysis is not None else None

    def cancel(self, key: str) -> bool:
        """Stop a queued or running analysis and forget it. Return False if there is none."""
        with self._changed:
            analysis = self._analyses.get(key)
            if analysis is None or analysis.state not in ("queued", "running"):
                return False
            self._drop(analysis)
            return True

    def counts(self) -> dict[str, int]:
        """Return the number of analyses in each state."""
        with self._changed:
            states = [analysis.state for analysis in self._analyses.values()]
        return {state: states.count(state) for state in ("queued", "running", "failed")}

    def close(self) -> None:
        """Kill all processes, without waiting for them."""
        self._workers.close()
        with self._changed:
            self._closed = True
            for analysis in list(self._analyses.values()):
                if analysis.state in ("queued", "running"):
                    self._drop(analysis)
            self._changed.notify_all()

    def _drop(self, analysis: _Analysis) -> None:
        analysis.stop(ProcessFailed("The analysis was canceled.", where=analysis.task.file.path))
        self._analyses.pop(analysis.key, None)
        self._tell(analysis)

    def _tell(self, analysis: _Analysis) -> None:
        self._changed.notify_all()
        self._on_change(analysis.key)

    def _schedule(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._enforce()
                analysis = self._next()
                if analysis is None:
                    busy = any(one.state in ("queued", "running") for one in self._analyses.values())
                    self._changed.wait(TICK_S if busy else None)
                    continue
                analysis.state, analysis.began_s, analysis.stage = "running", time.monotonic(), "starting"
                self._tell(analysis)
            there = self._cache.find(analysis.key)
            if there is not None:
                # Another TensorBoard made the result, or it was saved after the caller looked into the cache.
                self._on_ready(analysis.key, there)
                with self._changed:
                    self._finish(analysis)
            else:
                self._workers.do(partial(self._run, analysis), 0 if analysis.awaited else NICE)

    def _next(self) -> _Analysis | None:
        """Return the queued analysis whose turn it is; None if none waits or no more may run. One worker is
        kept for what somebody waits for."""
        running = [
            one.stage not in WAITING_STAGES for one in self._analyses.values() if one.state == "running"
        ]
        queued = self._queue()
        workers = self._settings.workers
        if not queued or len(running) >= MOST_PER_WORKER * workers:
            return None
        return queued[0] if sum(running) < (workers if queued[0].awaited else max(1, workers - 1)) else None

    def _queue(self) -> list[_Analysis]:
        """Return the analyses that wait for a worker, in the order in which they begin."""
        now_s = time.monotonic()
        queued = [
            one for one in self._analyses.values() if one.state == "queued" and one.not_before_s <= now_s
        ]
        return sorted(queued, key=lambda analysis: analysis.turn(now_s))

    def _place(self, analysis: _Analysis) -> str:
        """`3rd of 60 in the queue`, and about how long that takes once other analyses have ended."""
        queue = self._queue()
        place = queue.index(analysis) + 1
        wait_s = place * sum(self._durations_s) / max(1, len(self._durations_s) * self._settings.workers)
        long = f", about {round(wait_s / 60)} min" if wait_s >= 90 else f", about {round(wait_s, -1):.0f} s"
        return f"{ordinal(place)} of {len(queue)} in the queue{long if wait_s >= 5 else ''}"

    def _enforce(self) -> None:
        """Stop analyses that nobody asks about or that take too long. Forget the oldest failures."""
        now_s = time.monotonic()
        for analysis in list(self._analyses.values()):
            if analysis.state in ("queued", "running") and analysis.is_abandoned(now_s):
                self._drop(analysis)
            elif analysis.state == "running" and now_s - analysis.began_s > self._settings.time_limit_s:
                self._stop_at_time_limit(analysis)
        failed = [key for key, one in self._analyses.items() if one.state == "failed"]
        for key in failed[: max(0, len(failed) - FAILURES_KEPT)]:
            del self._analyses[key]

    def _stop_at_time_limit(self, analysis: _Analysis) -> None:
        limit_s, where = self._settings.time_limit_s, analysis.task.file.path
        if analysis.stage != WAITING_FOR_STORE:
            analysis.stop(out_of_time(limit_s, where))
        elif analysis.stopped is None:
            analysis.failures += 1
            analysis.stop(
                NoAnswer(
                    f"the store did not send the file within the time limit of {limit_s:g} s",
                    where=where,
                    remedy="check the connection, or increase GPUDIAG_TIME_LIMIT_S",
                )
            )

    def _run(self, analysis: _Analysis, child: Child) -> Callable[[], None]:
        """Run an analysis in this process, and return what notes its end. Runs on the worker's thread."""
        with self._changed:
            analysis.child = child if analysis.stopped is None else None
        analysis.drafts = self._cache.drafts()
        task = replace(
            analysis.task,
            drafts=tuple(map(str, analysis.drafts)),
            memory_limit_bytes=self._settings.memory_limit_bytes,
            shared=str(self._settings.shared_directory or ""),
            cache=str(self._settings.cache_directory or ""),
            source_root=str(self._settings.source_root or ""),
        )
        draft, failure = self._answer(analysis, child, task) if analysis.child is not None else ("", None)
        entry = self._keep_result(analysis, draft)
        failure = None if entry is not None else failure or _lost(draft)
        with self._changed:
            analysis.child = None
        return partial(self._end, analysis, failure, child.last_output)

    def _end(self, analysis: _Analysis, failure: GpudiagError | None, output: bytes) -> None:
        with self._changed:
            error = analysis.stopped or failure
            if error is None:
                self._finish(analysis)
            else:
                self._fail(analysis, error)
        if analysis.stopped is None and analysis.state == "failed":
            text = output.decode("utf-8", "replace")
            shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text).strip()
            if shown and analysis.error is not None:
                logger.warning("gpudiag: %s The last output of the process:\n%s", analysis.error.what, shown)

    def _answer(self, analysis: _Analysis, child: Child, task: Task) -> tuple[str, GpudiagError | None]:
        """Have the process do the task. Return the draft with the result, and why there is none."""
        draft = ""
        failure: GpudiagError | None = None
        is_used = child.is_used
        try:
            for message in child.messages(task.request()):
                if message.kind is MessageKind.PROGRESS:
                    self._note_progress(analysis, **message.fields)
                elif message.kind is MessageKind.PIECE:
                    analysis.report = message.content
                else:
                    draft = message.fields["draft"]
        except Defect as error:
            remedy = "Please report this bug. TensorBoard's log has the details."
            failure = Defect(error.what, where=error.where, remedy=remedy)
            child.stop()
        except GpudiagError as error:
            failure = error
        except ChildEnded as ended:
            if is_used and analysis.stopped is None:  # what an earlier file has left may be the reason
                for half in analysis.drafts:
                    self._cache.discard(half)
                return self._answer(analysis, child, task)
            analysis.crashes += analysis.stopped is None
            failure = _crash(ended, task.file.path, analysis.crashes)
        return draft, failure

    def _note_progress(self, analysis: _Analysis, share: float, stage: str) -> None:
        with self._changed:
            analysis.progress, analysis.stage = share, stage
            if stage == WAITING_FOR_OTHERS:  # the time limit counts from the end of the wait
                analysis.began_s = time.monotonic()

    def _keep_result(self, analysis: _Analysis, filled: str) -> CacheEntry | None:
        """Move the filled draft into the cache and delete the others. None if there is no result to keep."""
        kept = None
        for draft in analysis.drafts:
            if str(draft) == filled and analysis.stopped is None:
                kept = draft
            else:
                self._cache.discard(draft)
        entry = self._cache.commit(kept, analysis.key) if kept is not None else None
        if entry is not None:
            self._on_ready(analysis.key, entry)
            self._cache.trim()
        return entry

    def _finish(self, analysis: _Analysis) -> None:
        analysis.state = "done"
        self._durations_s.append(time.monotonic() - analysis.began_s)
        if self._analyses.get(analysis.key) is analysis:
            del self._analyses[analysis.key]
        self._tell(analysis)

    def _fail(self, analysis: _Analysis, error: GpudiagError) -> None:
        if isinstance(error, NoAnswer) and self._analyses.get(analysis.key) is analysis:
            # Queue an analysis again, because its store may answer later.
            pause_s = _pause_s(analysis)
            analysis.state, analysis.progress, analysis.stopped, analysis.report = "queued", 0.0, None, b""
            analysis.stage = f"{error}. It is tried again after {pause_s:g} s."
            analysis.not_before_s = time.monotonic() + pause_s
            self._tell(analysis)
            return
        analysis.state, analysis.error, analysis.ended_s = "failed", error, time.monotonic()
        analysis.failures += isinstance(error, ProcessFailed)
        self._tell(analysis)


def _state_of(analysis: _Analysis) -> Pending:
    assert analysis.state != "done"  # finished analyses are removed
    report = analysis.report if analysis.state == "running" else b""
    return Pending(analysis.state, analysis.progress, analysis.stage, analysis.error, report)


def _may_be_retried(analysis: _Analysis, now_s: float) -> bool:
    if (
        analysis.state != "failed"
        or not isinstance(analysis.error, TRANSIENT)
        or analysis.crashes >= MOST_CRASHES
    ):
        return False
    return now_s - analysis.ended_s > _pause_s(analysis)


def _pause_s(analysis: _Analysis) -> float:
    return RETRY_AFTER_S if analysis.failures - analysis.crashes < 2 else RETRY_LATER_S


def _crash(ended: ChildEnded, where: str, crashes: int) -> ProcessFailed:
    again = f"open it again after {RETRY_AFTER_S:g} s" if crashes < MOST_CRASHES else "restart TensorBoard"
    return ProcessFailed(
        f"The analysis process ended unexpectedly ({ended}).",
        where=where,
        remedy=f"The system may have run out of memory: close other programs, and {again} to try once more; "
        "or record fewer steps. TensorBoard's log has the process's last output.",
    )


def _lost(draft: str) -> ProcessFailed:
    return ProcessFailed(
        "The result is not where it was saved.",
        where=draft,
        remedy="Another program may delete files there: set GPUDIAG_CACHE_DIR to another directory.",
    )
