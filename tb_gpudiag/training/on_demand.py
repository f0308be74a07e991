"""A schedule for torch.profiler that records on demand: by a file, by a signal, or when a step is slow."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import statistics
import threading
import time
from collections import deque
from types import FrameType
from typing import Any, Final

ARMING_FILE: Final = "profile-now"

# Looking for a file on network storage takes milliseconds.
LOOK_EVERY_S = 1.0

SLOW: Final = 2.0
"""A step is slow if it takes this many times the median."""

# The median of fewer steps says little. A median of more steps follows changes of the job late.
LEAST_STEPS: Final = 20
MOST_STEPS: Final = 200

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
        self._file = os.path.join(folder, ARMING_FILE)
        self._active, self._warmup = active, warmup
        self._times = _StepTimes() if slow_step else None
        self._touched_ns = self._modified_ns()  # a file that is there already was meant for an earlier job
        self._look_at_s = 0.0
        self._asked = ""
        self._left = 0  # steps until the recording is done, including warm-up
        self.why = ""
        """Why the last recording was made."""
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
            return os.stat(self._file).st_mtime_ns
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
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGUSR2"):
        return
    before = signal.getsignal(signal.SIGUSR2)
    if before in (signal.SIG_DFL, None) or getattr(before, "of_gpudiag", False):

        def arm(_number: int, _frame: FrameType | None) -> None:
            schedule.arm()

        arm.of_gpudiag = True  # type: ignore[attr-defined]
        signal.signal(signal.SIGUSR2, arm)
