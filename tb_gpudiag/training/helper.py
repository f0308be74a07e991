"""The helper process of a training job, which diagnoses recordings one after another, and the thread that
waits for it."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.processes import process_setup
from tb_gpudiag.service.processes.child import Child, ChildEnded, ChildMessage
from tb_gpudiag.training.recordings_on_disk import RankFiles, WrittenRecording

NICE = process_setup.NICE

# Libraries lose a little memory with each file.
RENEW_AFTER: Final = 200


@dataclass(frozen=True)
class HelperAnswer:
    """The outcome of a request.

    text: for the log: the verdict, or why there is none.
    found: there is a finding that is worth a look.
    report, record: serialized Reports, whole and compact, if they were asked for.
    figures: by tag, for the event file.
    note: what went wrong without preventing the diagnosis.
    """

    ok: bool
    text: str
    found: bool = False
    report: bytes = b""
    record: bytes = b""
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def message(self) -> ChildMessage:
        """Return the message for an answer that is ok."""
        fields = {
            "text": self.text,
            "found": self.found,
            "figures": dict(self.figures),
            "note": self.note,
            "report_bytes": len(self.report),
        }
        return ChildMessage(fields, self.report + self.record)

    @classmethod
    def of(cls, message: ChildMessage) -> HelperAnswer:
        fields, content = message.fields, message.content
        report, record = content[: fields["report_bytes"]], content[fields["report_bytes"] :]
        return cls(True, fields["text"], fields["found"], report, record, fields["figures"], fields["note"])


class Helper:
    """A process of low priority that is started when it is needed. It never imports torch, so it has no CUDA
    context.

    At the lowest priority it would starve beside a job that uses all cores: it gets a tenth of a busy core.
    One thread calls `ask` and `stop`. Linux ends the process when that thread ends. module: see Child.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._child = Child(module, nice=NICE)
        self._hurried = self._hurries = False
        self._asked = 0

    def ask(self, request: dict[str, Any], time_limit_s: float) -> HelperAnswer:
        """Send a request and wait for the answer. Raises nothing: a failed process is an answer, too."""
        if self._asked >= RENEW_AFTER:
            self._child.stop()
            self._asked = 0
        if self._hurried and not self._hurries:
            self._child.stop()
            self._child, self._hurries = Child(self._module, nice=0), True
        self._asked += 1
        try:
            return HelperAnswer.of(self._child.ask(request, time_limit_s))
        except GpudiagError as error:
            return HelperAnswer(False, error.what)
        except TimeoutError:
            return HelperAnswer(False, f"the helper process took over {time_limit_s:g} s")
        except ChildEnded as ended:
            if self._hurried and not self._hurries:
                return self.ask(request, time_limit_s)
            return HelperAnswer(False, f"the helper process ended ({ended})")

    def hurry(self) -> None:
        """Go on at normal priority, until `stop`: the training is over, and waits. From any thread."""
        if not self._hurried:
            self._hurried = True
            self._child.kill()

    def kill(self) -> None:
        """End the process at once, from any thread."""
        self._child.kill()

    def stop(self) -> None:
        """End the process."""
        self._asked = 0
        self._child.stop()
        if self._hurries:
            self._child = Child(self._module, nice=NICE)
        self._hurried = self._hurries = False

    def forget(self) -> None:
        """After a fork: leave the process to the parent."""
        self._asked = 0
        self._child.forget()


MOST_WAITING: Final = 4
"""Recordings that wait. With more, each diagnosis would come later than the one before."""

TIME_LIMIT_S: Final = 20 * 60.0

# The helper takes 200 MB, and starts in a second.
IDLE_S = 30.0

# How often rank 0 looks for the files of the other ranks.
LOOK_EVERY_S = 0.5

EXIT_S: Final = 30.0

# A diagnosis that is nearly done may end at low priority.
CALMLY_S: Final = 1.0

logger = logging.getLogger("tb_gpudiag.training")


class DiagnosisQueue:
    """Recordings that wait to be diagnosed. `settle(recording, answer)` is called on a thread after each one.

    The thread and the helper process run while there is work, and for IDLE_S afterwards.
    """

    def __init__(
        self,
        settle: Callable[[WrittenRecording, HelperAnswer], None],
        *,
        with_report: bool,
        with_record: bool,
    ) -> None:
        self._settle = settle
        self._with_report = with_report
        self._with_record = with_record
        self._helper = Helper("tb_gpudiag.training.diagnosing")
        self._reset()
        self.skipped = 0

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[WrittenRecording] = deque()
        self._ranks: RankFiles | None = None  # of the last recording, until all are there
        self._before_ns = 0  # when the last recording was written
        self._thread: threading.Thread | None = None
        self._closing = False
        self._abandoned = False
        self._busy = False

    def put(self, recording: WrittenRecording) -> None:
        """Queue a recording. If too many wait, the oldest are skipped."""
        if os.getpid() != self._pid:  # a fork has no thread, and a lock in any state
            self._helper.forget()
            self._reset()
        with self._changed:
            self._waiting.append(recording)
            full = len(self._waiting) > MOST_WAITING
            if full:
                self._waiting.popleft()
            if self._thread is None:
                self._start()
            self._changed.notify_all()
        if full:
            self._count_skipped()

    def _start(self) -> None:
        """Begin to diagnose what waits. Without a thread, skip it."""
        self._closing = self._abandoned = False
        thread = threading.Thread(target=self._run, name="gpudiag-training", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many, or the program ends
            self.skipped += len(self._waiting)
            self._waiting.clear()
            logger.warning("gpudiag: a recording was not diagnosed: %s: run `gpudiag diagnose`", error)
        else:
            self._thread = thread
            atexit.register(self._at_exit)

    def close(self, timeout_s: float) -> None:
        """Wait for the remaining diagnoses, then end the thread and the process."""
        thread = self._thread
        if os.getpid() != self._pid or thread is None or thread is threading.current_thread():
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        calmly_s = min(CALMLY_S, timeout_s)
        thread.join(calmly_s)
        if thread.is_alive():
            self._helper.hurry()
            thread.join(timeout_s - calmly_s)
        if not thread.is_alive():
            return
        with self._changed:
            self._abandoned = True
            left = len(self._waiting) + self._busy
            self._waiting.clear()
            self._ranks = None
            self._changed.notify_all()
        self.skipped += left
        if left:
            logger.warning(
                "gpudiag: the last %d recordings were not diagnosed in %g s: run `gpudiag diagnose`",
                left,
                timeout_s,
            )
        self._helper.kill()
        thread.join(1.0)  # it may still be in the user's on_diagnosis

    def _at_exit(self) -> None:
        self.close(EXIT_S)

    def _count_skipped(self) -> None:
        self.skipped += 1
        if self.skipped & (self.skipped - 1) == 0:  # 1, 2, 4, 8, …: a line each would fill the log
            logger.warning(
                "gpudiag: recordings come faster than they can be diagnosed: %d not diagnosed so far",
                self.skipped,
            )

    def _run(self) -> None:
        while True:
            work = self._next()
            if isinstance(work, WrittenRecording):
                self._diagnose(work)
            elif isinstance(work, RankFiles):
                self._look_for_ranks(work)
            else:
                # Without the lock: the training must never wait for this.
                self._helper.stop()
            with self._changed:
                self._busy = False
                if work is None:
                    self._abandoned = False  # recordings that come from now on are new
                if work is None and not self._waiting:
                    self._thread = None
                    atexit.unregister(self._at_exit)
                    return

    def _next(self) -> WrittenRecording | RankFiles | None:
        """Wait for work. None: no work came for a while, or the queue is being closed."""
        end_s = time.monotonic() + IDLE_S
        with self._changed:
            while not self._abandoned:
                if self._waiting:
                    self._busy = True
                    return self._waiting.popleft()
                if self._ranks is not None:
                    return self._ranks
                rest_s = end_s - time.monotonic()
                if self._closing or rest_s <= 0:
                    break
                self._changed.wait(rest_s)
        return None

    def _diagnose(self, recording: WrittenRecording) -> None:
        request = {
            "kind": "diagnose",
            "where": recording.path,
            "report": self._with_report,
            "record": self._with_record,
            "events": recording.events,
            "step": recording.step,
        }
        answer = self._helper.ask(request, TIME_LIMIT_S)
        if self._abandoned:
            return
        if not answer.ok and not os.path.exists(recording.path):  # deleted meanwhile, to make room
            self._count_skipped()
            return
        if not answer.ok:
            answer = HelperAnswer(
                False, f"{os.path.basename(recording.path)} was not diagnosed: {answer.text}"
            )
        try:
            self._settle(recording, answer)
        except Exception:  # the thread must go on
            logger.exception("gpudiag: a diagnosis could not be reported")
        self._ranks = RankFiles.of(recording, self._before_ns)
        self._before_ns = recording.time_ns

    def _look_for_ranks(self, ranks: RankFiles) -> None:
        """Diagnose the job once the files of all ranks are there. Give up after a while."""
        if ranks.are_there(_names_in(ranks.folder)):
            self._ranks = None
            self._diagnose_job(ranks)
        elif ranks.is_late():
            self._ranks = None
            logger.info("gpudiag: %s", ranks.what_is_missing())
        else:
            with self._changed:
                if not self._waiting and not self._abandoned:
                    self._changed.wait(LOOK_EVERY_S)

    def _diagnose_job(self, ranks: RankFiles) -> None:
        answer = self._helper.ask(
            {"kind": "job", "where": ranks.paths[0], "paths": ranks.paths}, TIME_LIMIT_S
        )
        if self._abandoned:
            return
        if not answer.ok:
            answer = HelperAnswer(False, f"the job's ranks were not diagnosed together: {answer.text}")
        log_answer(answer)


def _names_in(folder: str) -> list[str]:
    """Return the names in a folder; none if it cannot be listed."""
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def log_answer(answer: HelperAnswer, *, of_first_rank: bool = True) -> None:
    """Log a verdict, as a warning if there are findings.

    Trainings rarely set up logging, and Python hides information then: what no log shows goes to standard
    error, from the first rank, and failures from each. Who gives gpudiag's logger a level gets what it lets
    through.
    """
    level = logging.INFO if answer.ok and not answer.found else logging.WARNING
    has_level = any(logging.getLogger(name).level for name in ("tb_gpudiag", logger.name))
    if not (logger.isEnabledFor(level) if has_level else logger.manager.disable < level):
        return
    if logger.hasHandlers() and logger.isEnabledFor(level):
        logger.log(level, "gpudiag: %s", answer.text)
    elif of_first_rank or not answer.ok:
        with contextlib.suppress(Exception):  # there is no standard error, or it is closed
            sys.stderr.write(f"gpudiag: {answer.text}\n")
