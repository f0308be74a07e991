"""Captures of CUDA and HIP graphs: the host records launches into a graph, and none of them runs."""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, coverage, merged, union
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events, is_id
from tb_gpudiag.vocabulary import api_calls, marks
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES, Category

# Captured in one call and then replayed is usual. Captured anew in a third call, after replays, is not.
_AGAIN: Final = 3


@dataclass(frozen=True, eq=False)
class Captures:
    """When the host captured, and which calls it captured (event indices).

    recur: captures go on in later steps, or between replays, so they are no set-up.
    """

    times: Intervals = EMPTY
    launches: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    recur: bool = False


def find_captures(events: Events, steps: Steps) -> Captures:
    """Find the stretches between the calls that begin and end a capture, each on one thread, and those that
    inference servers mark. A capture may have begun before the recording, or end after it. What runs all the
    same, such as a warm-up inside of a mark, is not captured."""
    calls = events.where(*CALL_CATEGORIES)
    begins = calls[match_some(events, api_calls.CAPTURE_BEGIN, calls)]
    ends = calls[match_some(events, api_calls.CAPTURE_END, calls)]
    marked = np.flatnonzero(match(events, marks.CAPTURE) & (events.category == Category.USER_ANNOTATION))
    if not len(begins) + len(ends) + len(marked):
        return Captures()
    launches = calls[match_some(events, api_calls.LAUNCH_CALL, calls)]
    ran = events.correlation[events.where(*GPU_WORK_CATEGORIES)]
    launches = launches[~np.isin(events.correlation[launches], ran[is_id(ran)])]
    captured, times = [], []
    for thread in np.unique(events.thread[np.r_[begins, ends, marked]]).tolist():
        own = union(*_between(events, begins, ends, thread))
        on_thread = marked[events.thread[marked] == thread]
        own = merged(own, union(events.start_ns[on_thread], events.end_ns[on_thread]))
        own = merged(own, _compiled_calls(events, thread, own))
        times.append(own)
        some = launches[events.thread[launches] == thread]
        captured.append(some[coverage(own, events.start_ns[some], events.start_ns[some] + 1) > 0])
    all_times = merged(*times)
    replays = calls[match_some(events, api_calls.GRAPH_LAUNCH, calls)]
    recur = _recur(all_times, steps) if len(steps) else _between_replays(all_times, events.start_ns[replays])
    return Captures(all_times, np.concatenate(captured), recur)


def _compiled_calls(events: Events, thread: int, captures: Intervals) -> Intervals:
    """Calls of compiled code in which something is captured: all of such a call prepares the graph."""
    inside = (events.thread == thread) & match(events, marks.COMPILED_CODE)
    inside &= np.isin(events.category, (Category.CPU_OP, Category.USER_ANNOTATION))
    called = union(events.start_ns[inside], events.end_ns[inside])
    captures_something = coverage(captures, called.start, called.end) > 0
    return Intervals(called.start[captures_something], called.end[captures_something])


def _between(events: Events, begins: Int64, ends: Int64, thread: int) -> tuple[Int64, Int64]:
    """From each begin on a thread to the next end, or to the thread's last event; and from the thread's first
    event to an end without a begin."""
    own = np.flatnonzero(events.thread == thread)
    begun = np.sort(events.start_ns[begins[events.thread[begins] == thread]])
    ended = np.sort(events.end_ns[ends[events.thread[ends] == thread]])
    until = np.r_[ended, events.end_ns[own].max()]
    stops = until[np.searchsorted(ended, begun)]
    before = ended[: int(not len(begun) or (len(ended) > 0 and bool(ended[0] <= begun[0])))]
    return np.r_[np.full(len(before), events.start_ns[own].min()), begun], np.r_[before, stops]


def _recur(times: Intervals, steps: Steps) -> bool:
    """Whether most of several steps capture."""
    capturing: Bool = coverage(times, steps.start_ns, steps.end_ns) > 0
    return len(steps) > 1 and 2 * int(capturing.sum()) > len(steps)


def _between_replays(times: Intervals, replays_ns: Int64) -> bool:
    """Whether graphs are captured again and again while the job replays them: servers capture all of theirs
    before they serve."""
    after = np.searchsorted(np.sort(replays_ns), times.end)
    return len(np.unique(after)) >= _AGAIN
