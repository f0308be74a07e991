"""Overhead on the host: of recording Python frames, of dispatching small operators, and of what runs inside
of operators that compute nothing."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64, marked, mask_of
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.vocabulary.operators import COMPUTES_NOTHING
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category

# Of the times between a frame and the first frame inside it, the shortest ones contain little but the
# recorder. The very shortest are rounding.
_QUANTILE = 0.05

# A quantile of fewer frames with others inside is chance.
_FEWEST_FRAMES = 100

# A call that has nothing to wait for returns within this time.
_AT_ONCE_NS = 5_000

# An operator that makes another view of a tensor computes nothing. In public traces it takes 1 to 30 µs of
# its own while it is recorded; where something runs inside of each operator, half of them take 0.2 ms.
SLOW_VIEW_NS: Final = 50_000


@dataclass(frozen=True)
class EventCosts:
    """What the host spends on recording one event, in ns."""

    operator: int
    frame: int
    call: int


# 44 jobs on an H200 in a virtual machine (torch 2.11, shapes recorded), timed with and without the profiler:
# where the host limits them, a step takes 1.4 to 4.6 µs longer for each recorded operator and API call, and
# some 0.4 µs for each frame. In public traces, the fastest twentieth of the frames leave 0.09 to 0.19 µs for
# entering and leaving them, and half begin 0.2 to 0.7 µs before the first frame inside them.
LEAST: Final = EventCosts(operator=1_000, frame=100, call=1_000)
MOST: Final = EventCosts(operator=4_000, frame=800, call=3_000)

# With these, the replay of 21 recordings of the jobs on an H200 is closest to their timed steps: half of them
# are off by less than 2%, and those that the host limits by 3% to 40%, either way.
LIKELY: Final = EventCosts(operator=2_800, frame=520, call=2_200)

# By whether input shapes were recorded. With these, half of 160 recordings on a CPU that have them are off
# their timed steps by less than 13%, and by 20% without. In loops of four kinds (torch 2.13), shapes make the
# recording of an operator 1.6 to 1.9 times as long; two jobs without took 0.36 and 0.31 µs for each.
LIKELY_ON_CPU: Final = {
    True: EventCosts(operator=800, frame=200, call=0),
    False: EventCosts(operator=450, frame=200, call=0),
}


@dataclass(frozen=True, eq=False)
class RecorderCost:
    """Frames and operators on the main thread, and on threads that launch GPU work.

    Spans without a duration count as well: traces in whole microseconds have many.

    frame_ns: least time that recording one frame takes, as the trace shows it; None if it has too few frames.
    frame_starts_ns, operator_starts_ns, call_starts_ns: in order, shape (f,), (o,) and (c,). Calls are those
    of the GPU's runtime and driver.
    waited_until_ns: ends of the calls in which the host waited for the GPU, in order, shape (w,).
    """

    frame_ns: float | None
    frame_starts_ns: Int64
    operator_starts_ns: Int64
    call_starts_ns: Int64
    waited_until_ns: Int64

    @property
    def _first_ns(self) -> int:
        kinds = (self.frame_starts_ns, self.operator_starts_ns, self.call_starts_ns)
        return min(int(starts[0]) for starts in kinds if len(starts))

    def within(self, start_ns: Int64, end_ns: Int64, costs: EventCosts) -> Int64:
        """Time to record what begins in each of these stretches, shape (k,) each."""
        by_kind = (
            (self.frame_starts_ns, costs.frame),
            (self.operator_starts_ns, costs.operator),
            (self.call_starts_ns, costs.call),
        )
        spent_ns = np.zeros(len(start_ns), np.int64)
        for starts, each_ns in by_kind:
            spent_ns += each_ns * (np.searchsorted(starts, end_ns) - np.searchsorted(starts, start_ns))
        return spent_ns

    def frames(self, stretches: Intervals) -> int:
        return int(_begin_in(self.frame_starts_ns, stretches).sum())

    def operators(self, stretches: Intervals) -> int:
        return int(_begin_in(self.operator_starts_ns, stretches).sum())

    def spent_ns(self, stretches: Intervals, costs: EventCosts) -> int:
        """Time to record what begins in the stretches, at most each stretch's length."""
        spent_ns = self.within(stretches.start, stretches.end, costs)
        return int(np.minimum(spent_ns, stretches.end - stretches.start).sum())

    def delayed_ns(self, idle: Intervals, costs: EventCosts) -> int:
        """How much shorter idle time would be, at most, had nothing been recorded.

        What the host records while the GPU works also delays the host. The delay lasts until the GPU's next
        idle time, or until the host waits for the GPU.
        """
        if not len(idle):
            return 0
        before = np.r_[min(int(idle.start[0]), self._first_ns), idle.end[:-1]]
        waits = np.searchsorted(self.waited_until_ns, idle.start, side="right")
        waited_until = np.r_[before[0], self.waited_until_ns][waits]
        since = np.maximum(before, waited_until)
        late_ns = self.within(since, idle.end, costs)
        # A queue of lateness: each stretch takes as much of it as it is long, and a wait empties it.
        emptied = np.where(waited_until > before, late_ns.sum() + 1, 0)
        change = np.stack([-emptied, late_ns - (idle.end - idle.start)], axis=1).reshape(-1)
        level = np.cumsum(change)
        left = level - np.minimum(np.minimum.accumulate(level), 0)
        return int((left[::2] + late_ns - left[1::2]).sum())


def recorder_cost(host: Host, work: Work, main_thread: int, waiting: Int64) -> RecorderCost:
    """Find the spans of the main thread and of threads that launch, and fit the time per frame.

    waiting: event indices of the calls in which the host waited for the GPU.
    """
    events = host.events
    launching = np.unique(events.thread[work.launch[work.linked]])
    on_thread = np.isin(events.thread, np.append(launching, main_thread))
    frame = on_thread & (events.category == Category.PYTHON_FUNCTION)
    operator = on_thread & (events.category == Category.CPU_OP)
    return RecorderCost(
        _frame_ns(host, np.flatnonzero(frame & (host.tree.depth >= 0))),
        events.start_ns[frame],
        events.start_ns[operator],
        events.start_ns[on_thread & np.isin(events.category, CALL_CATEGORIES)],
        np.sort(events.end_ns[waiting[events.duration_ns[waiting] > _AT_ONCE_NS]]),
    )


def _frame_ns(host: Host, frames: Int64) -> float | None:
    """Time from a frame's start to the first frame inside it, and from the last one's end to its own end."""
    events, parent = host.events, host.tree.parent
    inner = frames[parent[frames] != NONE]
    inner = inner[events.category[parent[inner]] == Category.PYTHON_FUNCTION]
    first, last = events.end_ns.copy(), events.start_ns.copy()
    np.minimum.at(first, parent[inner], events.start_ns[inner])
    np.maximum.at(last, parent[inner], events.end_ns[inner])
    has_inner = mask_of(parent[inner], len(events))
    outer = np.flatnonzero(has_inner)
    if len(outer) < _FEWEST_FRAMES:
        return None
    entering, leaving = first[outer] - events.start_ns[outer], events.end_ns[outer] - last[outer]
    return float(np.quantile(entering, _QUANTILE) + np.quantile(leaving, _QUANTILE))


def _begin_in(starts_ns: Int64, stretches: Intervals) -> Int64:
    """How many of the sorted starts are in each stretch."""
    return np.searchsorted(starts_ns, stretches.end) - np.searchsorted(starts_ns, stretches.start)


def in_slow_views(host: Host) -> Bool:
    """Mask of the events whose innermost operator computes nothing, and takes SLOW_VIEW_NS and more without
    the operators inside of it, for each of these; shape (n,)."""
    events, parent = host.events, host.tree.parent
    pieces = np.maximum(1, np.bincount(parent[parent != NONE], minlength=len(events)))
    slow = match(events, COMPUTES_NOTHING) & (events.category == Category.CPU_OP)
    slow &= host.tree.own_ns >= SLOW_VIEW_NS * pieces
    return marked(slow, host.operator)
