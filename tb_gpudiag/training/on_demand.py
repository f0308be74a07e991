"""A schedule for torch.profiler that records on demand, and the recordings of a step clock."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

from tb_gpudiag.training import other_profilers
from tb_gpudiag.training.other_profilers import unseen
from tb_gpudiag.training.outliers import LEAST_STEPS, MOST_STEPS, SLOW, Outliers

ARMING_FILE: Final = "profile-now"

# Looking for a file on network storage takes milliseconds.
LOOK_EVERY_S = 1.0

# If a job has many slow steps, recording each of them would slow down all steps.
AFTER_SLOW_S = 600.0

logger = logging.getLogger("tb_gpudiag.training")


class OnDemand:
    """Schedule that does nothing until it is armed, then warms up and records `active` steps.

    It is armed by `touch FOLDER/profile-now`; by SIGUSR2, if the program does not handle that; and if
    `slow_step`, by a step that takes twice the median. Arming it during a recording does nothing.
    """

    def __init__(self, folder: str, *, active: int, warmup: int, slow_step: bool) -> None:
        if active < 1 or warmup < 0:
            raise ValueError(f"active is {active} and warmup {warmup}: record at least one step")
        self.file = os.path.join(folder, ARMING_FILE)
        self._active, self._warmup = active, warmup
        self._times = _StepTimes() if slow_step else None
        self._touched_ns = self._modified_ns()  # a file that is there already was meant for an earlier job
        self._look_at_s = 0.0
        self._asked = ""
        self._left = 0  # steps until the recording is done, including warm-up
        self.why = ""
        """Why the last recording was made."""
        self.ranks = 0  # the order says it
        self.is_busy = self.is_recording = False
        """Of the step that runs: it is part of a recording, or of its warm-up; and it is recorded."""
        _call_on_signal(self)

    def __call__(self, step: int) -> Any:
        """Return what torch.profiler is to do in the next step."""
        from torch.profiler import ProfilerAction

        armed = self.is_armed()
        self._asked = ""
        if self._left == 0:
            self.is_busy = self.is_recording = armed
            if not armed:
                return ProfilerAction.NONE
            logger.info("gpudiag: recording %d steps from step %d: %s", self._active, step, self.why)
            self._left = self._warmup + self._active
        self._left -= 1
        self.is_recording = self._left < self._active
        if not self.is_recording:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if self._left else ProfilerAction.RECORD_AND_SAVE

    def arm(self, why: str = "on demand") -> None:
        """Record from the next step on."""
        self._asked = why

    def give_up(self) -> None:
        """End the recording, if one is made: the next call is to begin another one."""
        self._left = 0
        self.is_busy = self.is_recording = False

    def is_armed(self) -> bool:
        """Return whether a recording is wanted. It begins with the next call."""
        idle = self._left == 0
        asked = self._why_asked()
        slow = self._times.slow_step(idle=idle) if self._times is not None else ""
        self._asked = asked or slow if idle else ""
        if self._asked:
            self.why = self._asked
        return bool(self._asked)

    def _why_asked(self) -> str:
        """Return why a recording was asked for; "" if none was."""
        if self._asked:
            return self._asked
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            modified_ns = self._modified_ns()
            if modified_ns != self._touched_ns:
                self._touched_ns = modified_ns
                if modified_ns:
                    return f"{ARMING_FILE} was touched"
        return ""

    def _modified_ns(self) -> int:
        """Return when the file was last touched; 0 if it does not exist."""
        with contextlib.suppress(OSError):
            return os.stat(self.file).st_mtime_ns
        return 0


class _StepTimes:
    """Durations of the steps that were not profiled."""

    def __init__(self) -> None:
        self._recent_s: deque[float] = deque(maxlen=MOST_STEPS)
        self._since_s: float | None = None
        self._not_before_s = 0.0

    def slow_step(self, *, idle: bool) -> str:
        """Note that a step begins. Return how slow the previous step was; "" if it was not slow.

        idle: the previous step was not recorded.
        """
        now_s = time.perf_counter()
        began_s, self._since_s = self._since_s, now_s
        if not idle:
            # Neither this step nor the next one, which saves the recording, is typical of the job.
            self._since_s = None
            return ""
        if began_s is None:
            return ""
        taken_s = now_s - began_s
        usual_s = statistics.median(self._recent_s) if len(self._recent_s) >= LEAST_STEPS else float("inf")
        self._recent_s.append(taken_s)
        if taken_s <= SLOW * usual_s or now_s < self._not_before_s:
            return ""
        self._not_before_s = now_s + AFTER_SLOW_S
        return f"the last step took {taken_s * 1e3:.3g} ms, and the median is {usual_s * 1e3:.3g} ms"


def _call_on_signal(schedule: OnDemand) -> None:
    """Arm the schedule on SIGUSR2, unless the program handles that signal itself."""
    if not hasattr(signal, "SIGUSR2"):
        return
    before = signal.getsignal(signal.SIGUSR2)
    if before == signal.SIG_DFL and _is_caught(signal.SIGUSR2):
        return
    if threading.current_thread() is not threading.main_thread():
        if before == signal.SIG_DFL:
            logger.warning(
                "gpudiag: SIGUSR2 would end this process, because only its main thread can handle signals: "
                "to record, touch %s",
                schedule.file,
            )
    elif before in (signal.SIG_DFL, None) or getattr(before, "of_gpudiag", False):

        def arm(_number: int, _frame: FrameType | None) -> None:
            schedule.arm()

        arm.of_gpudiag = True  # type: ignore[attr-defined]
        signal.signal(signal.SIGUSR2, arm)


def _is_caught(number: int) -> bool:
    """Return whether the process handles a signal. Python does not know of handlers in C, such as those of
    faulthandler."""
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def is_of_signal(error: Exception) -> bool:
    """Return whether the handler of a signal raised it, for the program: a time limit, or a preemption."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(part, "__code__", None) for one in handlers for part in (one, type(one).__call__)}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


_of_thread = threading.local()
"""`at_end`: kept as long as its thread lives."""


class _AtEnd:
    """Calls a function when it goes: on a thread that ends, torch can still end a recording of it."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


class ClockRecorder:
    """Records steps as `schedule` says.

    While another profiler of the program is entered, whether it records or waits, nothing is recorded. Where
    one is entered during a recording, that ends first, and is not written. If this happens on another thread,
    which cannot end it, it is left as it is.

    Only the thread that began a recording can end it, and a process crashes if it is left alive. So it
    ends with that thread at the latest, and steps of other threads do not count for it.
    handler: gets the recordings. options: of `torch.profiler.profile`.
    """

    def __init__(self, handler: Callable[[Any], None], schedule: OnDemand, options: dict[str, Any]) -> None:
        self._handler, self._schedule, self._options = handler, schedule, options
        self._now: OnDemand | Outliers = schedule  # of the recording that is made
        self.outliers: Outliers | None = None
        """What to record as well."""
        self._profiler: Any = None
        self._thread = 0
        self._stepping = threading.Lock()
        self._is_closed = False
        self._ranks = self._armed_at = self._step = 0
        self._says_why_not = True

    def watch(self) -> None:
        """Look out for other profilers from now on."""
        other_profilers.watch(self._give_way)

    @property
    def is_recording(self) -> bool:
        """Whether the step that runs is part of a recording, or of its warm-up."""
        return self._profiler is not None

    def step(self, number: int, orders: Iterable[tuple[str, int]]) -> tuple[str, str, int] | None:
        """Begin, go on with, or end a recording, before step `number`.

        orders: why to record, and how many ranks do. Returns the name of the file, why, and since which step,
        where a recording was made. Raises whatever torch raises: then there is no recording any more.
        """
        if not self._stepping.acquire(blocking=False):  # another thread steps, too
            return None
        try:
            if not self._is_here():
                return None
            self._step, made = number, None
            if self._profiler is not None:
                with unseen():
                    made = self._go_on()
            for why, ranks in orders if self._profiler is None else ():
                self._schedule.arm(why)
                self._ranks = ranks
            for schedule in (self._schedule, self.outliers):
                # One that was entered before the clock was made has stepped in the clock's second step.
                if schedule is not None and self._profiler is None and schedule.is_armed() and number > 1:
                    self._now = schedule
                    with unseen():
                        self._start()
            return made
        except Exception as error:
            if not is_of_signal(error):
                self._let_go()
            raise
        finally:
            self._stepping.release()

    def close(self) -> None:
        """Write a recording that is under way: one of another thread when that steps again, or ends."""
        self._is_closed = True
        self.end()
        if self._profiler is not None:
            logger.warning(
                "gpudiag: another thread makes the recording: it is written when that steps again, or ends"
            )

    def end(self) -> None:
        """Write a recording that this thread makes. Raises nothing of its own."""
        if self._profiler is not None and self._is_here():
            try:
                with unseen():
                    if self._has_session():
                        self._profiler.stop()
            except Exception as error:
                if is_of_signal(error):
                    raise
            finally:
                self._let_go()
        if self._is_closed and self._profiler is None:
            other_profilers.unwatch(self._give_way)

    def forget(self) -> None:
        """After a fork: leave the recording to the parent. Else this process goes on to make it, too.

        It is not stopped: what it would end, such as the GPU's side of it, is the parent's.
        """
        if self._profiler is not None:
            with contextlib.suppress(Exception):
                from torch.autograd import _enable_record_function

                _enable_record_function(False)
                if self._profiler.with_stack:
                    sys.setprofile(None)
            self._let_go()

    def _start(self) -> None:
        from torch.profiler import profile

        if other_profilers.is_any_entered():
            if self._says_why_not:
                logger.info("gpudiag: the recording waits until the program's own profiler has ended")
            self._says_why_not = False
            return
        self._says_why_not = True
        now, self._thread = self._now, threading.get_ident()
        options = {**self._options}
        if sys.getprofile() is not None:  # torch would take its place, and leave none
            options["with_stack"] = False
        _of_thread.at_end = _AtEnd(self.end)
        atexit.register(self.end)  # the end of the main thread comes too late
        self._profiler = profile(
            schedule=lambda _: now(self._step),
            on_trace_ready=lambda profiler: self._handler(profiler) if now.why else None,
            **options,
        )
        self._profiler.step_num = self._armed_at = self._step
        self._profiler.gpudiag_ranks, self._ranks = now.ranks or self._ranks, 0
        self._profiler.start()

    def _go_on(self) -> tuple[str, str, int] | None:
        if not self._has_session():
            self._drop("something else took torch's profiling session")
            return None
        if self._now.is_recording and self._now.why:
            # Not in the warm-up, whose metadata is lost.
            self._profiler.add_metadata("gpudiag_why", self._now.why)
        self._profiler.step()
        if not self._now.is_busy:
            profiler = self._profiler
            profiler.stop()
            self._let_go()
            if getattr(profiler, "gpudiag_file", ""):
                return profiler.gpudiag_file, self._now.why, self._armed_at
        return None

    def _is_here(self) -> bool:
        """Whether no other thread makes a recording."""
        return self._profiler is None or threading.get_ident() == self._thread

    def _has_session(self) -> bool:
        from torch.autograd import _profiler_enabled

        return not self._now.is_recording or _profiler_enabled()

    def _give_way(self, profiler: Any) -> None:
        """Another profiler is about to begin. Raises nothing."""
        ours = self._profiler
        if ours is None or profiler is ours or profiler is ours.profiler:
            return
        ours.on_trace_ready = None
        if self._is_here() and self._has_session():
            with contextlib.suppress(Exception), unseen():
                ours.stop()
        self._drop("the program's own profiler began")

    def _drop(self, why: str) -> None:
        self._let_go()
        logger.warning("gpudiag: the step clock gave up its recording: %s", why)

    def _let_go(self) -> None:
        if self._profiler is not None:
            other_profilers.forget(self._profiler)
            self._profiler = None
            atexit.unregister(self.end)
        self._now.give_up()
