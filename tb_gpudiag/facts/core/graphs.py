"""CUDA graphs whose kernels the trace lacks, in part or altogether, and those recorded as one event each.

A graph launch is one call, and the tracer records the kernels that it starts. If its buffers overflow, or it
does not trace inside graphs, some or all kernels are missing, and a busy GPU looks idle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, clip, places_of_each, union
from tb_gpudiag.facts.core.launches import UNRECORDED_NS, Work
from tb_gpudiag.facts.core.matching import match, match_some
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary import api_calls
from tb_gpudiag.vocabulary.kernel_names import WHOLE_GRAPH
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES

# A synchronization returns within about 20 us of the end of the last work. If nothing recorded ran for longer
# than this while the host was in it, right after a graph launch, the graph was running.
LEAST_WAIT_NS = 100_000

# Without steps, two launches by one thread may be of different graphs. A launch that lacks some kernels of
# another one is of the same graph if the other one is at least this many times as frequent.
USUAL_RATIO = 2

# A place that launches more different graphs than this is compared with its most frequent ones only.
MOST_LISTS = 16

Names = tuple[int, ...]
"""Names of a launch's kernels, in order of start."""


@dataclass(frozen=True)
class UnrecordedGraphs:
    """Graph launches with missing kernels.

    launches: how many. of: all graph launches. kernels: recorded work of the launches with missing kernels.
    holes: from each launch to the completion of its graph, as far as the trace bounds it.
    """

    launches: int = 0
    of: int = 0
    kernels: int = 0
    holes: Intervals = EMPTY


@dataclass(frozen=True, eq=False)
class _Launch:
    call: int  # event index
    work: Int64  # indices into Work
    names: Names


def unrecorded_graphs(work: Work, steps: Steps, end_ns: int) -> UnrecordedGraphs:
    """Find the graph launches with missing kernels. end_ns: the recording's end."""
    launches = _launches(work)
    if not launches:
        return UnrecordedGraphs()
    usual = _usual(work.events, launches, steps)
    lacking = {i for i, launch in enumerate(launches) if launch.names != usual[i]}
    waits, queues = _Waits(work), _queues(work)
    if not lacking:  # otherwise these waits may be for the launches that were found already
        lacking = waits.long_after(launches) | _late_followers(work, launches, queues)
    lacking |= {i for i, launch in enumerate(launches) if waits.went_on_after(launch.call)}
    expected = list(zip(launches, usual, strict=True))
    holes = list(_holes(work, expected, sorted(lacking), waits, queues, end_ns))
    start, end = np.array(holes, np.int64).reshape(-1, 2).T
    kernels = sum(len(launches[i].work) for i in lacking)
    return UnrecordedGraphs(len(lacking), len(launches), kernels, union(start, end))


def _calls(events: Events) -> Bool:
    return events.among(*CALL_CATEGORIES)


def _launches(work: Work) -> list[_Launch]:
    """Return the graph launches in order. A driver's call inside a runtime's is part of it."""
    events = work.events
    calls = np.flatnonzero(_calls(events) & match(events, api_calls.GRAPH_LAUNCH))
    calls = calls[np.lexsort((-events.end_ns[calls], events.start_ns[calls], events.thread[calls]))]
    order = np.argsort(work.launch, kind="stable")
    low = np.searchsorted(work.launch[order], calls, side="left")
    high = np.searchsorted(work.launch[order], calls, side="right")
    found: list[_Launch] = []
    for call, a, b in zip(calls.tolist(), low.tolist(), high.tolist(), strict=True):
        own = np.sort(order[a:b])
        if found and _is_within(events, call, found[-1].call):
            outer = found.pop()
            call, own = outer.call, np.sort(np.r_[outer.work, own])
        found.append(_Launch(call, own, tuple(events.name[work.event[own]].tolist())))
    return sorted(found, key=lambda launch: int(events.start_ns[launch.call]))


def _is_within(events: Events, call: int, other: int) -> bool:
    """Whether a call is part of the other one, which begins first."""
    same_thread = events.thread[other] == events.thread[call]
    return bool(same_thread and events.end_ns[call] <= events.end_ns[other])


def _usual(events: Events, launches: list[_Launch], steps: Steps) -> list[Names]:
    """Return the kernels that each launch should have: the kernels of the longest launch at the same place in
    other steps (without steps, of a usual launch of its thread) that has all kernels of this launch in the
    same order."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    counts: Counter[tuple[int, int]] = Counter()
    for i, launch in enumerate(launches):
        thread, start = int(events.thread[launch.call]), int(events.start_ns[launch.call])
        step = int(np.searchsorted(np.sort(steps.start_ns), start, side="right"))
        groups[thread, counts[thread, step] if len(steps) > 1 else NONE].append(i)
        counts[thread, step] += 1
    usual: list[Names] = [launch.names for launch in launches]
    for (_, place), members in groups.items():
        found = _usual_of_group([launches[i].names for i in members], at_a_place=place != NONE)
        for i, names in zip(members, found, strict=True):
            usual[i] = names
    return usual


def _usual_of_group(group: list[Names], *, at_a_place: bool) -> list[Names]:
    """Return the usual kernels of launches that belong together. at_a_place: they are at the same place in
    their steps."""
    seen = Counter(group)
    common = [names for names, _ in seen.most_common(MOST_LISTS + 1) if names]
    by_length = sorted(common, key=len, reverse=True)

    def usual(own: Names) -> Names:
        least = 0.0 if not own or at_a_place else USUAL_RATIO * seen[own]
        fuller = (names for names in by_length if seen[names] >= least and len(names) > len(own))
        return next((names for names in fuller if _contains(names, own)), own) or (NONE,)

    return [usual(own) for own in group]


def _contains(fuller: Names, own: Names) -> bool:
    """Whether a list has all items of another one in the same order."""
    rest = iter(fuller)
    return all(name in rest for name in own)


def _late_followers(work: Work, launches: list[_Launch], queues: dict[int, _Queue]) -> set[int]:
    """Find the launches after which the next work on the stream was queued, and started only long after the
    last recorded work had ended."""
    events = work.events
    ends = np.sort(work.end_ns)
    found = set()
    for i, launch in enumerate(launches):
        if not len(launch.work):
            continue
        queue = queues[int(events.stream[work.event[launch.work[0]]])]
        following = queue.first_after(int(events.end_ns[launch.call]))
        if following != NONE:
            start = int(work.start_ns[following])
            last = int(np.searchsorted(ends, start, side="right")) - 1
            if start - max(int(ends[max(last, 0)]), int(work.launch_end_ns[following])) >= UNRECORDED_NS:
                found.add(i)
    return found


class _Waits:
    """Synchronizations of the device or a stream, in order of start."""

    def __init__(self, work: Work) -> None:
        events = work.events
        calls = _calls(events)
        waits = match(events, api_calls.DEVICE_WAIT) | match(events, api_calls.STREAM_WAIT)
        self._found = np.flatnonzero(calls & waits)
        self._for_events = np.flatnonzero(calls & match(events, api_calls.EVENT_WAIT))
        self._launching = np.sort(
            events.start_ns[np.flatnonzero(calls & match(events, api_calls.LAUNCH_CALL))]
        )
        self._ends = np.sort(work.end_ns)
        self._events = events

    def end_after(self, time_ns: int, otherwise: int) -> int:
        """Return when the first synchronization that begins after this time returns."""
        at = int(np.searchsorted(self._events.start_ns[self._found], time_ns))
        return int(self._events.end_ns[self._found[at]]) if at < len(self._found) else otherwise

    def went_on_after(self, launch: int) -> bool:
        """Whether a synchronization came next, before any other launch, and went on without recorded work."""
        events = self._events
        at = int(np.searchsorted(events.start_ns[self._found], events.end_ns[launch]))
        if at == len(self._found):
            return False
        begun = int(events.start_ns[self._found[at]])
        between = np.searchsorted(self._launching, (int(events.start_ns[launch]) + 1, begun))
        if between[0] != between[1]:
            return False
        return int(self._without_work(self._found[at : at + 1])[0]) > LEAST_WAIT_NS

    def long_after(self, launches: list[_Launch]) -> set[int]:
        """Find the last graph launch before each synchronization (or wait for an event) that went on for
        long."""
        waits = np.r_[self._found, self._for_events]
        begun = self._events.start_ns[waits[self._without_work(waits) >= UNRECORDED_NS]]
        launched = self._events.start_ns[[launch.call for launch in launches]]
        at = np.searchsorted(launched, begun) - 1
        return set(at[at >= 0].tolist())

    def _without_work(self, waits: Int64) -> Int64:
        """Return for how long these synchronizations went on after the last recorded work had ended."""
        begun, returned = self._events.start_ns[waits], self._events.end_ns[waits]
        ended = np.r_[np.iinfo(np.int64).min, self._ends]
        done = np.maximum(begun, ended[np.searchsorted(self._ends, returned, side="right")])
        return returned - done


class _Queue:
    """Work with a launch, in order of launch: when the work before a launch had ended, and when the work
    after it began."""

    def __init__(self, work: Work, chosen: Int64) -> None:
        events = work.events
        self._work = chosen
        self._launched = work.launch_start_ns[chosen]
        event = work.event[chosen]
        self._ended = np.r_[0, np.maximum.accumulate(events.end_ns[event])]
        self._begins = np.minimum.accumulate(events.start_ns[event][::-1])[::-1]

    def before(self, time_ns: int) -> int:
        """Return when the work launched before this time had ended."""
        return int(self._ended[np.searchsorted(self._launched, time_ns)])

    def first_after(self, time_ns: int) -> int:
        """Return the first work launched from this time, as an index into Work, or NONE."""
        at = int(np.searchsorted(self._launched, time_ns))
        return int(self._work[at]) if at < len(self._work) else NONE

    def after(self, time_ns: int, otherwise: int) -> int:
        """Return when the first work launched from this time begins."""
        at = int(np.searchsorted(self._launched, time_ns))
        return int(self._begins[at]) if at < len(self._begins) else otherwise


def _queues(work: Work) -> dict[int, _Queue]:
    """Return the queue of each stream, and under NONE the queue of all streams together."""
    linked = work.by_launch
    streams = places_of_each(work.events.stream[work.event[linked]])
    queues = {stream: _Queue(work, linked[own]) for stream, own in streams}
    return {**queues, NONE: _Queue(work, linked)}


def _holes(
    work: Work,
    launches: list[tuple[_Launch, Names]],
    lacking: list[int],
    waits: _Waits,
    queues: dict[int, _Queue],
    end_ns: int,
) -> Iterator[tuple[int, int]]:
    """Yield the stretch in which each of the lacking graphs may have run. launches: with their usual kernels.

    It begins when the call returns and the work before it on its stream has ended. It ends as soon as later
    work of its stream begins, a synchronization returns, or a launch with all kernels would have ended.
    """
    events = work.events
    start, end = work.start_ns, work.end_ns
    stream_of: dict[Names, int] = {}
    lengths: dict[Names, list[int]] = defaultdict(list)
    for launch, names in launches:
        if len(launch.work):
            stream_of[names] = int(events.stream[work.event[launch.work[0]]])
            if launch.names == names:
                lengths[names].append(int(end[launch.work].max() - start[launch.work].min()))
    done_ns = 0
    for i in lacking:
        launch, names = launches[i]
        queue = queues[stream_of.get(names, NONE)]
        returned = int(events.end_ns[launch.call])
        begin = max(returned, queue.before(int(events.start_ns[launch.call])), done_ns)
        if len(launch.work):
            begin = min(begin, int(start[launch.work].min()))
        finish = min(queue.after(returned, end_ns), waits.end_after(returned, end_ns), end_ns)
        if names != launch.names and names in lengths:
            finish = min(finish, begin + work.turnaround_ns + int(np.median(lengths[names])))
        if finish > begin:
            done_ns = finish
            yield begin, finish


@dataclass(frozen=True)
class WholeGraphs:
    """Graphs of one device in the window: how many, and when at least one ran."""

    launches: int = 0
    times: Intervals = EMPTY


def whole_graphs(work: Work, device: int, window: Window) -> WholeGraphs:
    """Find the graphs of a device that were recorded as one event each."""
    events = work.events
    chosen = work.event[(work.device == device) & match_some(events, WHOLE_GRAPH, work.event)]
    inside = (events.end_ns[chosen] > window.start_ns) & (events.start_ns[chosen] < window.end_ns)
    chosen = chosen[inside]
    times = clip(union(events.start_ns[chosen], events.end_ns[chosen]), window.start_ns, window.end_ns)
    return WholeGraphs(int(np.count_nonzero(inside)), times)
