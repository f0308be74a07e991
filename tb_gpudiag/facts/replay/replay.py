"""The replay: the trace run again as host calls, launches and streams, to see what changing one thing would
give.

The host is one line of calls in order of time, over all launching threads, with the host time between them. A
launch starts its work no sooner than its latency allows, than the work before it on its stream, or than the
work of another stream that it was seen to wait for. A call that waited (for the device, for its own copy, or
because the launch queue was full) waits for the same work again. Latencies and turnarounds are the measured
ones, so that the unchanged replay gives the measured times where this model holds; how far it is off is its
`error`.

Every recursion has the form x[i] = max(x[i-1] + a[i], b[i]), a running maximum over x - cumsum(a): whole
stretches of calls are computed at once, up to the first call that waits for work of its own stretch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, coverage, subtract, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.steps import Steps, Window
from tb_gpudiag.facts.replay.model import Calls, Streams, calls_of, streams_of
from tb_gpudiag.trace.events import NONE, Events, Int64

# Starts pulled by other streams settle in one pass for each hand-over inside a stretch; gradients' buckets
# make tens.
MOST_PASSES = 100

_NEVER = np.iinfo(np.int64).min // 4


@dataclass(frozen=True)
class Change:
    """What to take away: host time by a share, and waits."""

    host: Intervals = EMPTY
    share: float = 1.0  # of that host time
    unblocked: tuple[int, ...] = ()  # event indices of calls that wait no more


@dataclass(frozen=True)
class Replayed:
    """Times of one replay. step_ns has shape (k,): a slice of the step window each."""

    step_ns: Int64

    @property
    def window_ns(self) -> int:
        return int(self.step_ns.sum())


class Replay:
    """One trace, ready to be run again."""

    def __init__(
        self, events: Events, work: Work, blocking: Int64, full_queue: Int64, steps: Steps, window: Window
    ) -> None:
        """Event indices: blocking, of the calls that wait for the GPU (handover.HostTime.blocking);
        full_queue, of those that waited for a place in the launch queue (queue_depth.full_queue)."""
        marks = np.sort(steps.start_ns) if len(steps) else np.array([window.start_ns])
        host_end = int(steps.end_ns.max()) if len(steps) else window.end_ns
        self._window = window
        self._marks = np.r_[marks, host_end]
        self._calls: Calls = calls_of(events, work, blocking, full_queue, self._marks)
        self._streams: Streams = streams_of(events, work, self._calls)
        self._in_steps = self._streams.launched_before(self._calls, host_end)

    @property
    def measured(self) -> Replayed:
        """The slices of the step window as they were recorded."""
        return Replayed(np.diff(np.r_[self._marks[:-1], self._window.end_ns]))

    @cached_property
    def unchanged(self) -> Replayed:
        return self.run()

    @property
    def error(self) -> float:
        """How far the unchanged replay's window is from the recorded one, as a share of it."""
        recorded = self.measured.window_ns
        return abs(self.unchanged.window_ns - recorded) / recorded if recorded else 0.0

    def run(self, *changes: Change) -> Replayed:
        """The step times with these things taken away together."""
        calls = self._calls
        between, inside, target = calls.between_ns, calls.inside_ns, calls.target
        for host, share in _host_time(changes):
            before = coverage(host, calls.free_from_ns, calls.start_ns)
            within = coverage(host, calls.inside_from_ns, calls.end_ns)
            between = between - np.rint(before * share).astype(np.int64)
            inside = inside - np.rint(within * share).astype(np.int64)
        unblocked = [event for change in changes for event in change.unblocked]
        if unblocked:
            target = np.where(np.isin(calls.event, np.array(unblocked)), NONE, target)
        begun, ends = _simulate(calls, self._streams, between, inside, target)
        marks = begun[calls.event == NONE]
        last = max(int(marks[-1]), int(ends[self._in_steps].max(initial=marks[-1])))
        return Replayed(np.diff(np.r_[marks[:-1], last]))


def _host_time(changes: Sequence[Change]) -> list[tuple[Intervals, float]]:
    """What several changes take away together, no instant of it twice."""
    taken, parts = EMPTY, []
    for change in sorted(changes, key=lambda change: -change.share):
        host = subtract(change.host, taken)
        if len(host.start):
            parts.append((host, change.share))
            taken = union(np.r_[taken.start, host.start], np.r_[taken.end, host.end])
    return parts


def _simulate(
    calls: Calls, streams: Streams, between: Int64, inside: Int64, target: Int64
) -> tuple[Int64, Int64]:
    """When each call begins, and when each piece of work ends."""
    count = len(calls.start_ns)
    begun, returned = np.empty(count, np.int64), np.empty(count, np.int64)
    ends = np.full(len(streams.duration_ns), _NEVER, np.int64)
    waits_for = np.where(target == NONE, NONE, streams.call[target] if len(streams.call) else NONE)
    now = int(calls.start_ns[0]) - int(between[0]) if count else 0
    for a, b in _stretches(waits_for, calls.full_queue_call):
        alone = waits_for[a] == a
        least = np.full(b - a, _NEVER, np.int64)
        if not alone:
            known = target[a:b] != NONE
            least[known] = ends[target[a:b][known]]
            full = calls.full_queue_target[a:b]
            least[full != NONE] = np.maximum(least[full != NONE], ends[full[full != NONE]])
        step = between[a:b] + inside[a:b]
        total = np.cumsum(step)
        reached = np.maximum.accumulate(np.maximum(least + inside[a:b] - total, now)) + total
        returned[a:b] = reached
        begun[a:b] = np.r_[now, reached[:-1]] + between[a:b]
        _run_streams(streams, begun, returned, ends, a, b)
        if alone:
            returned[a] = max(int(begun[a]), int(ends[target[a]])) + int(inside[a])
        now = int(returned[b - 1])
    return begun, ends


def _stretches(waits_for: Int64, full_queue_call: Int64) -> Iterator[tuple[int, int]]:
    """Ranges of calls in which none waits for work that a call of the same range launched, but for a range of
    one."""
    latest = np.maximum(waits_for, full_queue_call)
    a, count, ahead = 0, len(latest), 256
    while a < count:
        if waits_for[a] == a:
            yield a, a + 1
            a += 1
            continue
        b = a + 1
        while b < count:
            stop = min(count, b + ahead)
            hit = np.flatnonzero(latest[b:stop] >= a)
            if len(hit):
                b += int(hit[0])
                break
            b = stop
        yield a, b
        a = b


def _run_streams(streams: Streams, begun: Int64, returned: Int64, ends: Int64, a: int, b: int) -> None:
    """The work of calls a to b, stream by stream, until no work of one waits any longer for another's."""
    slices = [(s, *np.searchsorted(s.call, (a, b))) for s in streams.each]
    slices = [(s, low, high) for s, low, high in slices if high > low]
    crossing = any((streams.other[s.work[low:high]] != NONE).any() for s, low, high in slices)
    for _ in range(MOST_PASSES if crossing and len(slices) > 1 else 1):
        changed = False
        for stream, low, high in slices:
            some = stream.work[low:high]
            call = streams.call[some]
            issued = np.where(streams.from_return[some], returned[call], begun[call])
            least = issued + streams.latency_ns[some]
            other = streams.other[some]
            pulled = other != NONE
            least[pulled] = np.maximum(
                least[pulled], ends[other[pulled]] + streams.handshake_ns[some[pulled]]
            )
            length = streams.duration_ns[some]
            before = int(ends[stream.work[low - 1]]) if low else _NEVER
            total = np.cumsum(streams.turnaround_ns[some] + length)
            found = np.maximum.accumulate(np.maximum(least + length - total, before)) + total
            changed |= not np.array_equal(found, ends[some])
            ends[some] = found
        if not changed:
            break
