"""The steady part of a recording: the step window without first-run work, earlier work and what follows the
job; and where one step ends and the next begins, for a host that may be ahead of its GPU.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, Window, complement, coverage, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary import levels

# A first step that takes twice the median of the others is far outside the spread of steady steps, and first
# steps that compile or set up take 10 to 100 times as long.
SLOW_RATIO = 2.0

# With fewer steps there is no steady state to compare the first ones with.
FEWEST_STEPS = 3

# A step or a recording with a smaller share of first-run or unrecorded work is judged as it is: its shares
# change by no more than this.
SPOILED_SHARE = levels.SIZEABLE

# Whole steps speak for a job, however long the recording is. Where no steps are known, a part of a recording
# that is shorter than the rest of it may be anything: the recording is judged as a whole.
MOST = levels.HALF

NOT_STEADY = (Cause.INITIALIZATION, Cause.UNRECORDED)


@dataclass(frozen=True, eq=False)
class Steady:
    """The window that verdict, costs and savings are over, and the steps in it, marked or inferred.

    recorded: of which it is the steady part: all marked steps, or the whole recording.
    borders_ns: of the steps, see step_borders; they begin and end with the window. Shape (k + 1,).
    first: how many steps there are before those in the window.
    first_run_ns, unrecorded_ns: idle time of these causes outside of the window. earlier_ns: how long the GPU
    was seen to run work from before all steps, while the host ran the first one.
    mostly: there is no steady part, and most of the window is idle time of this cause.
    """

    recorded: Window
    window: Window
    steps: Steps
    borders_ns: Int64
    first: int = 0
    first_run_ns: int = 0
    unrecorded_ns: int = 0
    earlier_ns: int = 0
    mostly: Cause | None = None

    @property
    def before_ns(self) -> int:
        """How much of the recording is left out before the window."""
        return self.window.start_ns - self.recorded.start_ns

    @property
    def after_ns(self) -> int:
        return self.recorded.end_ns - self.window.end_ns


def leading_slow_steps(length_ns: Int64) -> tuple[int, int]:
    """Count the slow steps at the beginning, and return the median of the rest; at most half can be slow, and
    none if a later one is about as slow: what comes again is no warm-up."""
    for slow in range(len(length_ns) // 2 + 1):
        steady_ns = int(np.median(length_ns[slow:]))
        if length_ns[slow] <= SLOW_RATIO * steady_ns:
            slowest_ns = length_ns[:slow].max(initial=0)
            again = length_ns[slow:].max() > max(SLOW_RATIO * steady_ns, slowest_ns / SLOW_RATIO)
            return (0, int(np.median(length_ns))) if again or not steady_ns else (slow, steady_ns)
    return 0, int(np.median(length_ns))


def all_of(recorded: Window, steps: Steps, borders_ns: Int64) -> Steady:
    """Return all steps, or the whole recording, without a judgement of what is steady."""
    if not len(steps):
        return Steady(recorded, recorded, steps, borders_ns)
    window = Window(int(borders_ns[0]), int(borders_ns[-1]))
    return Steady(recorded, window, steps, borders_ns, earlier_ns=window.start_ns - int(steps.start_ns[0]))


def start_of_one(work: Work, recorded: Window, ledger: Ledger) -> int:
    """Return where a recording without steps begins, in ns: with the GPU's first work, if the host ends up at
    least as far ahead of the GPU as it needed to get there, and loads nothing until then; or else its start.

    If what was recorded runs again and again, such a host prepares the next one while the GPU still works."""
    first_ns = int(work.start_ns.min())
    calls = work.launch[work.linked]
    if not len(calls) or recorded.start_ns >= first_ns:
        return recorded.start_ns
    if _idle(ledger, Window(recorded.start_ns, first_ns), Cause.INPUT):
        return recorded.start_ns
    ahead_ns = int(work.end_ns.max()) - int(work.events.end_ns[calls].max())
    return first_ns if ahead_ns >= first_ns - recorded.start_ns else recorded.start_ns


def steady_part(
    recorded: Window,
    steps: Steps,
    borders_ns: Int64,
    worked: Window,
    ledger: Ledger,
    begins_ns: int,
    *,
    alike: bool = True,
) -> Steady:
    """Find the steady part of one device's recording.

    recorded: all marked steps, or the whole recording. steps, borders_ns: of all of them, marked or inferred.
    worked: from the start of any GPU's first work to the end of the last.
    ledger: its idle time.
    begins_ns: without steps, where what speaks for the job begins, see start_of_one. alike:
    steps do the same, so that slow first ones are a warm-up: an engine's prefill before its decodes is none.
    """
    whole = all_of(recorded, steps, borders_ns)
    if len(steps):
        first, after = _steady_steps(borders_ns, ledger, alike=alike)
        inside = slice(first, after)
        window = Window(int(borders_ns[first]), int(borders_ns[after]))
    else:
        inside, first = slice(0), 0
        # The profiler synchronizes as it stops.
        stops = recorded.start_ns < worked.end_ns < recorded.end_ns
        whole = replace(whole, window=Window(begins_ns, worked.end_ns if stops else recorded.end_ns))
        window = _steady_stretch(whole.window, recorded, worked.start_ns, ledger)
    if not window.duration_ns:
        least_ns = max(1, MOST * whole.window.duration_ns)
        most = (cause for cause in NOT_STEADY if _idle(ledger, whole.window, cause) >= least_ns)
        return replace(whole, mostly=next(most, None))
    return replace(
        whole,
        window=window,
        steps=steps.take(inside),
        borders_ns=borders_ns[first : after + 1] if len(steps) else borders_ns,
        first=first,
        first_run_ns=_outside(ledger, recorded, window, Cause.INITIALIZATION),
        unrecorded_ns=_outside(ledger, recorded, window, Cause.UNRECORDED),
    )


def _steady_steps(borders_ns: Int64, ledger: Ledger, *, alike: bool) -> tuple[int, int]:
    """Return the first steady step and the first one after it that is not steady; the same if none is.

    They are the longest run of steps without much first-run or unrecorded work, without slow ones at its
    beginning: one-off work, such as starting a loader's workers, may lie in the middle of a recording."""
    start, end = borders_ns[:-1], borders_ns[1:]
    chosen = _not_steady(ledger)
    spent = coverage(Intervals(ledger.start_ns[chosen], ledger.end_ns[chosen]), start, end)
    clean = spent < np.maximum(SPOILED_SHARE * (end - start), 1)
    edges = np.flatnonzero(np.diff(np.r_[False, clean, False].astype(np.int8)))
    if not len(edges):
        return 0, 0
    longest = 2 * int(np.argmax((edges[1::2] - edges[::2])[::-1]))  # of equally long ones the last
    first, after = edges[len(edges) - 2 - longest], edges[len(edges) - 1 - longest]
    if alike and after - first >= FEWEST_STEPS:
        first += leading_slow_steps((end - start)[first:after])[0]
    return int(first), int(after)


def _steady_stretch(whole: Window, recorded: Window, first_work_ns: int, ledger: Ledger) -> Window:
    """Return the longest stretch of a recording without steps between long first-run or unrecorded idle time;
    an empty one if it is too short to speak for the recording: for what begins with the GPU's first recorded
    work, if earlier work ran until then."""
    length = np.where(_not_steady(ledger), ledger.inside(whole), 0)
    if length.sum() < SPOILED_SHARE * recorded.duration_ns:
        return whole
    long = length >= SPOILED_SHARE * length.max()
    rest = complement(union(ledger.start_ns[long], ledger.end_ns[long]), whole.start_ns, whole.end_ns)
    if not len(rest.start):
        return Window(whole.start_ns, whole.start_ns)
    at = int(np.argmax(rest.end - rest.start))
    found = Window(int(rest.start[at]), int(rest.end[at]))
    before = (ledger.cause == Cause.UNRECORDED) & (ledger.end_ns <= first_work_ns)
    speaks = found.duration_ns >= MOST * (recorded.duration_ns - int(ledger.inside(whole)[before].sum()))
    return found if speaks else Window(whole.start_ns, whole.start_ns)


def _not_steady(ledger: Ledger) -> Bool:
    return np.isin(ledger.cause, np.array(NOT_STEADY, np.uint8)) & ~ledger.lost


def _idle(ledger: Ledger, window: Window, cause: Cause) -> int:
    return int(ledger.inside(window)[(ledger.cause == cause) & ~ledger.lost].sum())


def _outside(ledger: Ledger, recorded: Window, window: Window, cause: Cause) -> int:
    return _idle(ledger, recorded, cause) - _idle(ledger, window, cause)


# Where more of the later work has no launch in the trace, work without one is not from before the recording:
# the recorder does not trace all launches.
MOST_UNLINKED = levels.SIZEABLE


def step_borders(steps: Steps, work: Work) -> Int64:
    """Return the borders of steps that follow each other, shape (k + 1,).

    A step begins when the host has begun it and the GPU has done all work launched before it, also before
    the recording, as far as the trace has it. A host that runs ahead does not show how long steps take, and
    the GPU's work alone leaves out what the host does before the first launch and after the last one.
    """
    starts: Int64 = np.r_[steps.start_ns, steps.end_ns[-1:]]
    linked = work.by_launch
    launched: Int64 = np.searchsorted(work.launch_start_ns[linked], starts)
    done = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(work.end_ns[linked])]
    borders = np.maximum(starts, done[launched])
    borders[0] = max(borders[0], _queued_before(work, linked[launched[0] : launched[1]]))
    if borders[0] >= borders[-1]:  # the GPU did nothing else meanwhile
        borders[0] = starts[0]
    return np.maximum.accumulate(borders)


def _queued_before(work: Work, own: Int64) -> int:
    """Return when the work from before the recording was done that precedes this work on its stream: other
    streams may run ahead."""
    queued = np.flatnonzero(~work.linked)
    if not len(own):
        return 0
    streams, of_ours = np.unique(work.stream_key[own], return_inverse=True)
    begins = np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(begins, of_ours, work.start_ns[own])
    at = np.minimum(np.searchsorted(streams, work.stream_key[queued]), len(streams) - 1)
    before = (streams[at] == work.stream_key[queued]) & (work.start_ns[queued] < begins[at])
    done_ns = int(work.end_ns[queued[before]].max(initial=0))
    later = work.start_ns >= done_ns
    return done_ns if int((later & ~work.linked).sum()) <= MOST_UNLINKED * int(later.sum()) else 0
