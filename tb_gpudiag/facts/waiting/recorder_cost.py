"""What recording Python frames costs the host: the time per frame, and how many spans a stretch contains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.trace.events import NONE, Category, Int64

# Of the times between a frame and the first frame inside it, the shortest ones contain little but the
# recorder. The very shortest are rounding.
_QUANTILE = 0.05

# A quantile of fewer frames is chance.
_FEWEST_FRAMES = 100


@dataclass(frozen=True)
class RecorderCost:
    """Frames and operators on threads that launch GPU work.

    frame_ns: least time that recording one frame takes, as the trace shows it; None if it has too few frames.
    frame_starts_ns, operator_starts_ns: in order, shape (f,) and (o,).
    """

    frame_ns: float | None
    frame_starts_ns: Int64
    operator_starts_ns: Int64

    @cached_property
    def _starts_ns(self) -> Int64:
        return np.sort(np.r_[self.frame_starts_ns, self.operator_starts_ns])

    def frames(self, stretches: Intervals) -> int:
        """Number of frames that begin in the stretches."""
        return int(_begin_in(self.frame_starts_ns, stretches).sum())

    def operators(self, stretches: Intervals) -> int:
        """Number of operators that begin in the stretches."""
        return int(_begin_in(self.operator_starts_ns, stretches).sum())

    def spent_ns(self, stretches: Intervals, each_ns: float) -> int:
        """Time to record the frames and operators that begin in the stretches, at most each stretch's length.

        each_ns: time for one of them.
        """
        number = _begin_in(self._starts_ns, stretches)
        return int(np.minimum(number * each_ns, stretches.end - stretches.start).sum())


def recorder_cost(host: Host, work: Work) -> RecorderCost:
    """Find the spans of threads that launch, and fit the time per frame."""
    events = host.events
    launching = np.unique(events.thread[work.launch[work.launch != NONE]])
    on_thread = np.isin(events.thread, launching) & (host.tree.depth >= 0)
    frame = on_thread & (events.category == Category.PYTHON_FUNCTION)
    operator = on_thread & (events.category == Category.CPU_OP)
    return RecorderCost(
        _frame_ns(host, np.flatnonzero(frame)), events.start_ns[frame], events.start_ns[operator]
    )


def _frame_ns(host: Host, frames: Int64) -> float | None:
    """Time from a frame's start to the first frame inside it, and from the last one's end to its own end."""
    events, parent = host.events, host.tree.parent
    inner = frames[parent[frames] != NONE]
    inner = inner[events.category[parent[inner]] == Category.PYTHON_FUNCTION]
    if len(inner) < _FEWEST_FRAMES:
        return None
    outer, member = np.unique(parent[inner], return_inverse=True)
    first, last = events.end_ns[outer], events.start_ns[outer]
    np.minimum.at(first, member, events.start_ns[inner])
    np.maximum.at(last, member, events.end_ns[inner])
    entering, leaving = first - events.start_ns[outer], events.end_ns[outer] - last
    return float(np.quantile(entering, _QUANTILE) + np.quantile(leaving, _QUANTILE))


def _begin_in(starts_ns: Int64, stretches: Intervals) -> Int64:
    """How many of the sorted starts are in each stretch."""
    return np.searchsorted(starts_ns, stretches.end) - np.searchsorted(starts_ns, stretches.start)
