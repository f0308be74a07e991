"""The steady part of a recording: the step window without first-run work, earlier work and what follows the
job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, Window, coverage
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.core.recording import Steps

# A first step that takes twice the median of the others is far outside the spread of steady steps, and first
# steps that compile or set up take 10 to 100 times as long.
SLOW_RATIO = 2.0

# With fewer steps there is no steady state to compare the first ones with.
FEWEST_STEPS = 3

# A step or a recording with a smaller share of first-run or unrecorded work is judged as it is: its shares
# change by no more than this.
SPOILED_SHARE = 0.10

# Where no steps are known, what follows the first-run work counts as steady only if it is most of the
# recording.
MOST = 0.5

NOT_STEADY = (Cause.INITIALIZATION, Cause.UNRECORDED)


@dataclass(frozen=True)
class Steady:
    """The window that verdict, costs and savings are over, and the steps in it.

    only_first_run: nothing but first-run work was recorded; then the window is the whole recording.
    first_run_ns, unrecorded_ns: idle time of these causes before the window."""

    window: Window
    steps: Steps
    only_first_run: bool = False
    first_run_ns: int = 0
    unrecorded_ns: int = 0
    steps_left_out: int = 0


def leading_slow_steps(length_ns: Int64) -> tuple[int, int]:
    """Count the slow steps at the beginning, and return the median of the rest; at most half can be slow."""
    for slow in range(len(length_ns) // 2 + 1):
        steady_ns = int(np.median(length_ns[slow:]))
        if length_ns[slow] <= SLOW_RATIO * steady_ns:
            return (slow, steady_ns) if steady_ns > 0 else (0, 0)
    return 0, int(np.median(length_ns))


def steady_part(recorded: Window, steps: Steps, repeats: bool, work: Work, ledger: Ledger) -> Steady:
    """Find the steady part of one device's recording.

    recorded: the step window of all steps, or the whole recording. repeats: whether steps were inferred from
    repetition. ledger: the device's idle time over `recorded`.
    """
    if len(steps):
        return _of_steps(recorded, steps, work, ledger)
    return _without_steps(recorded, steps, repeats, work, ledger)


def _of_steps(recorded: Window, steps: Steps, work: Work, ledger: Ledger) -> Steady:
    order = np.argsort(steps.start_ns, kind="stable")
    start = steps.start_ns[order]
    end = np.r_[start[1:], np.int64(recorded.end_ns)]
    spoiled = _spoiled(ledger, start, end)
    if spoiled.all():
        only = _idle(ledger, recorded, Cause.INITIALIZATION) >= SPOILED_SHARE * recorded.duration_ns
        return Steady(recorded, steps, only_first_run=only)
    first = int(np.argmin(spoiled))  # the first step that is not
    if len(start) - first >= FEWEST_STEPS:
        done = _completed(start[first:], recorded.end_ns, work)
        first += leading_slow_steps(np.diff(done))[0]
    if not first:
        return Steady(recorded, steps)
    window = Window(int(start[first]), recorded.end_ns)
    kept = order[first:]
    return _left_out(
        recorded,
        ledger,
        window,
        Steps([steps.names[i] for i in kept], steps.start_ns[kept], steps.end_ns[kept]),
        steps_left_out=first,
    )


def _completed(start: Int64, end_ns: int, work: Work) -> Int64:
    """Return when the GPU had finished the work launched before each step began, and before the last one
    ended, shape (k + 1,)."""
    linked = work.by_launch
    done = np.r_[start[0], np.maximum.accumulate(np.maximum(work.end_ns[linked], start[0]))]
    borders = np.r_[start, np.int64(end_ns)]
    found: Int64 = np.maximum(done[np.searchsorted(work.launch_start_ns[linked], borders)], borders[0])
    return found


def _without_steps(recorded: Window, steps: Steps, repeats: bool, work: Work, ledger: Ledger) -> Steady:
    last_ns = int(work.end_ns.max(initial=recorded.start_ns))
    end_ns = last_ns if recorded.start_ns < last_ns < recorded.end_ns else recorded.end_ns
    begins_ns = _spoiled_until(ledger, Window(recorded.start_ns, end_ns))
    first_run_ns = _idle(ledger, recorded, Cause.INITIALIZATION)
    cold = first_run_ns >= SPOILED_SHARE * recorded.duration_ns
    if cold and not repeats and end_ns - begins_ns < MOST * recorded.duration_ns:
        return Steady(recorded, steps, only_first_run=True, first_run_ns=first_run_ns)
    if begins_ns >= end_ns:  # no part of it is steady: it is judged as it is
        return Steady(recorded, steps)
    return _left_out(recorded, ledger, Window(begins_ns, end_ns), steps)


def _spoiled_until(ledger: Ledger, recorded: Window) -> int:
    """Return the end of the last long stretch of first-run or unrecorded idle time."""
    chosen = _not_steady(ledger)
    length = np.where(chosen, ledger.inside(recorded), 0)
    if length.sum() < SPOILED_SHARE * recorded.duration_ns:
        return recorded.start_ns
    return int(ledger.end_ns[chosen & (length >= SPOILED_SHARE * length.max(initial=0))].max())


def _not_steady(ledger: Ledger) -> Bool:
    return np.isin(ledger.cause, np.array(NOT_STEADY, np.uint8)) & ~ledger.lost


def _spoiled(ledger: Ledger, start: Int64, end: Int64) -> Bool:
    chosen = _not_steady(ledger)
    spent = coverage(Intervals(ledger.start_ns[chosen], ledger.end_ns[chosen]), start, end)
    spoiled: Bool = spent >= np.maximum(SPOILED_SHARE * (end - start), 1)
    return spoiled


def _idle(ledger: Ledger, window: Window, cause: Cause) -> int:
    return int(ledger.inside(window)[(ledger.cause == cause) & ~ledger.lost].sum())


def _left_out(
    recorded: Window, ledger: Ledger, window: Window, steps: Steps, steps_left_out: int = 0
) -> Steady:
    before = Window(recorded.start_ns, window.start_ns)
    return Steady(
        window,
        steps,
        first_run_ns=_idle(ledger, before, Cause.INITIALIZATION),
        unrecorded_ns=_idle(ledger, before, Cause.UNRECORDED),
        steps_left_out=steps_left_out,
    )
