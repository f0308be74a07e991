"""The replay: the trace run again as host calls, launches and streams, to estimate what a change saves.

The host is one line of calls in order of time, over all launching threads, with the host time between them.
Work starts no earlier than its launch latency allows, than the previous work on its stream ends, and than the
work of another stream ends that it was seen to wait for. A call that waited (for the device, for its own
copy, or because the launch queue was full) waits for the same work again. Latencies and turnarounds are the
measured ones, so the unchanged replay gives the measured times where the model holds. How far it is off is
its `error`.

Every recursion has the form x[i] = max(x[i-1] + a[i], b[i]), a running maximum over x - cumsum(a). So whole
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

# Starts that depend on other streams settle after one pass for each hand-over inside a stretch. Gradient
# buckets cause tens of them.
MOST_PASSES = 100

_NEVER = np.iinfo(np.int64).min // 4


@dataclass(frozen=True)
class Change:
    """What to remove: a share of host time, and waits."""

    host: Intervals = EMPTY
    share: float = 1.0  # of that host time
    unblocked: tuple[int, ...] = ()  # event indices of calls that no longer wait


@dataclass(frozen=True)
class Replayed:
    """Times of one replay. step_ns: of each step's slice of the step window, shape (k,)."""

    step_ns: Int64

    @property
    def window_ns(self) -> int:
        return int(self.step_ns.sum())


class Replay:
    """One trace, ready to be replayed."""

    def __init__(
        self, events: Events, work: Work, blocking: Int64, full_queue: Int64, steps: Steps, window: Window
    ) -> None:
        """Build the model.

        blocking: event indices of the calls that wait for the GPU (handover.HostTime.blocking).
        full_queue: event indices of the calls that blocked on a full queue (queue_depth.full_queue).
        """
        marks = np.sort(steps.start_ns) if len(steps) else np.array([window.start_ns])
        host_end = int(steps.end_ns.max()) if len(steps) else window.end_ns
        self._window = window
        self._marks = np.r_[marks, host_end]
        self._calls: Calls = calls_of(events, work, blocking, full_queue, self._marks)
        self._streams: Streams = streams_of(events, work, self._calls)
        self._in_steps = self._streams.launched_before(self._calls, host_end)

    @property
    def measured(self) -> Replayed:
        """Times of the steps' slices as they were recorded."""
        return Replayed(np.diff(np.r_[self._marks[:-1], self._window.end_ns]))

    @cached_property
    def unchanged(self) -> Replayed:
        return self.run()

    @property
    def error(self) -> float:
        """Difference between the unchanged replay's window and the recorded one, as a share of the latter."""
        recorded = self.measured.window_ns
        return abs(self.unchanged.window_ns - recorded) / recorded if recorded else 0.0

    def run(self, *changes: Change) -> Replayed:
        """Return the step times after these changes together."""
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
    """Return the host time that several changes remove together, every instant once."""
    removed, parts = EMPTY, []
    for change in sorted(changes, key=lambda change: -change.share):
        host = subtract(change.host, removed)
        if len(host.start):
            parts.append((host, change.share))
            removed = union(np.r_[removed.start, host.start], np.r_[removed.end, host.end])
    return parts


def _simulate(
    calls: Calls, streams: Streams, between: Int64, inside: Int64, target: Int64
) -> tuple[Int64, Int64]:
    """Compute when each call begins, and when each work ends."""
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
    """Divide the calls into ranges in which none waits for work that the same range launched, except for
    ranges of one call."""
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
    """Run the work of calls a to b, stream by stream, until the times of all streams are consistent."""
    ranges = [(s, *np.searchsorted(s.call, (a, b))) for s in streams.each]
    ranges = [(s, low, high) for s, low, high in ranges if high > low]
    crossing = any((streams.other[s.work[low:high]] != NONE).any() for s, low, high in ranges)
    for _ in range(MOST_PASSES if crossing and len(ranges) > 1 else 1):
        changed = False
        for stream, low, high in ranges:
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
