"""Steps that take much longer than usual once in a while: which rank makes them, and a recording of one.

A recording that begins after such a step does not have it. So with the first one, the clock times the phases
of all steps; the next one tells whether this rank made it, or waited for another; then its steps are
recorded, and thrown away again, until there is one more. Nothing is communicated.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from tb_gpudiag.vocabulary.written import FIRST_PHASE, PHASES, STEP, TOTAL, WAIT

SLOW: Final = 2.0
"""A step is slow if it takes this many times the median."""

# The median of fewer steps says little. A median of more steps follows changes of the job late.
LEAST_STEPS: Final = 20
MOST_STEPS: Final = 200

ALIKE: Final = 0.5
"""Another slow step is longer than the median by at least this share of what the first one was."""

PATIENCE_STEPS: Final = 1_000
"""What does not come again within so many steps is not waited for."""

PAUSE_S: Final = 600.0
"""Until the clock looks for slow steps again; each time twice as long as before. The first two times it looks
at once: what was recorded may have been of the machine."""

# A longer recording takes more memory, and longer to diagnose. Between two, the profiler starts anew.
WINDOW_STEPS: Final = 16

# Without DDP, it is unknown who waits for whom, and every rank may have made the step.
MOST_UNSURE_RANKS: Final = 8

logger = logging.getLogger("tb_gpudiag.training")


class Outliers:
    """Takes the rows of all steps, and is torch.profiler's schedule for a recording of a slow one.

    rows: where they go. about: returns rank and number of ranks.
    """

    def __init__(self, rows: deque[tuple[float, ...]], about: Callable[[], tuple[int, int]]) -> None:
        self._rows, self._about = rows, about
        self.knows_waits = True
        self.listens = False
        """The phases of all steps are needed."""
        self.is_busy = self.is_recording = False
        self.why = ""
        """Why the recording is kept; "" as long as it has no slow step."""
        self.ranks = 1
        """That record together."""
        self._records = self._saves = False
        self._limit_ms, self._least_ms, self._coreless_ms = math.inf, 0.0, 0.0
        self._times_ms: deque[float] = deque(maxlen=MOST_STEPS)
        self._patience = self._left = 0  # steps
        self._seen = ""
        self._not_before_s, self._rests = 0.0, 0

    def usual(self, step_ms: float) -> None:
        """Say how long steps take."""
        if not (self.listens or self._records):
            self._limit_ms = SLOW * step_ms

    def append(self, row: tuple[float, ...]) -> None:
        """Take a step that was not recorded."""
        self._rows.append(row)
        if row[TOTAL] <= self._limit_ms:
            return
        if self.listens:
            self._listen(int(row[STEP]), row[TOTAL], row[FIRST_PHASE:])
        elif not self._records and time.monotonic() >= self._not_before_s:
            usual_ms = self._limit_ms / SLOW
            self._look(usual_ms + ALIKE * (row[TOTAL] - usual_ms))
            self.listens = True
        self._wait()

    def recorded(self, number: int, total_ms: float, wait_ms: float) -> None:
        """Take a step that was recorded. wait_ms: for other ranks, which may record, too."""
        if self._records and self._is_slow(total_ms - wait_ms) and not self.why:
            self.why = f"{self._seen}; step {number} is recorded, and took {total_ms:.3g} ms"
            logger.info("gpudiag: %s", self.why)
        self._wait()

    def is_armed(self) -> bool:
        """Return whether steps are to be recorded."""
        if self.why:
            self.why = ""
            self._rest()
        return self._records

    def __call__(self, _step: int) -> Any:
        """Return what torch.profiler is to do in the next step."""
        from torch.profiler import ProfilerAction

        if self._saves:
            self.give_up()
            return ProfilerAction.NONE
        self._left -= 1
        self._saves = bool(self.why) or not self._records or not self._left
        self.is_busy = self.is_recording = True
        return ProfilerAction.RECORD_AND_SAVE if self._saves else ProfilerAction.RECORD

    def give_up(self) -> None:
        """End the recording, if one is made."""
        self.is_busy = self.is_recording = self._saves = False
        self._left = WINDOW_STEPS

    def _look(self, least_ms: float) -> None:
        """Begin to look at all steps for one that takes so long."""
        self._limit_ms, self._least_ms, self._patience = -1.0, least_ms, PATIENCE_STEPS
        self._times_ms.clear()
        self._coreless_ms = coreless_ms("self")

    def _wait(self) -> None:
        """A step has passed."""
        self._patience -= 1
        if self._patience < 0:
            self._rest()

    def _rest(self) -> None:
        if self.listens or self._records:
            self.listens = self._records = False
            self._limit_ms = math.inf
            self._not_before_s = time.monotonic() + PAUSE_S * (2**self._rests // 4)
            self._rests += 1

    def _is_slow(self, own_ms: float) -> bool:
        """Return whether a step is slow, beside what other processes took of it. Each step is asked for."""
        before_ms, self._coreless_ms = self._coreless_ms, coreless_ms("self")
        own_ms -= self._coreless_ms - before_ms
        self._times_ms.append(own_ms)
        usual_ms = median(self._times_ms) if len(self._times_ms) > LEAST_STEPS else math.inf
        return own_ms >= max(SLOW * usual_ms, self._least_ms)

    def _listen(self, number: int, total_ms: float, phases_ms: tuple[float, ...]) -> None:
        """Find out whether this rank makes slow steps."""
        rank, world = self._about()
        wait_ms = phases_ms[WAIT] if self.knows_waits else 0.0
        if not self._is_slow(total_ms - wait_ms) or (not self.knows_waits and rank >= MOST_UNSURE_RANKS):
            return
        usual_ms = median(self._times_ms)
        where = "" if world == 1 else f" on rank {rank} of {world}"
        phase = PHASES[max(range(len(PHASES)), key=lambda at: phases_ms[at])]
        self._seen = (
            f"slow steps now and then{where}: step {number} took {total_ms:.3g} ms, most of it in {phase}, "
            f"and the median is {usual_ms:.3g} ms"
        )
        self.ranks = 1 if self.knows_waits else min(world, MOST_UNSURE_RANKS)
        self.listens, self._records = False, True
        self._look(usual_ms + ALIKE * (total_ms - wait_ms - usual_ms))
        self.give_up()


def coreless_ms(pid: int | str) -> float:
    """Return how long a process's main thread has been ready to run without a core; 0 where no one says."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e6
    return 0.0
