"""The replay's recursions: when each call begins, and when each work ends.

There are two ways with equal results: a compiled one, which computes one call and one work after the other,
and NumPy's. Every recursion has the form x[i] = max(x[i-1] + a[i], b[i]), a running maximum over x -
cumsum(a). So NumPy computes whole stretches of calls at once, up to the first call that waits for work of its
own stretch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.replay.model import Calls, Streams

try:
    from tb_gpudiag.facts.replay import _simulation
except ImportError:  # no compiler where gpudiag was installed
    _simulation = None  # type: ignore[assignment]

# Starts that depend on other streams settle after one pass for each hand-over inside a stretch. Gradient
# buckets cause tens of them.
MOST_PASSES = 100

NEVER = np.iinfo(np.int64).min // 4


def available() -> bool:
    """Whether the compiled way is there."""
    return _simulation is not None


def simulate(
    calls: Calls, streams: Streams, between: Int64, inside: Int64, target: Int64
) -> tuple[Int64, Int64]:
    """Compute when each call begins, and when each work ends.

    between, inside, target: instead of those of `calls`.
    """
    count = len(calls.start_ns)
    begun, returned = np.empty(count, np.int64), np.empty(count, np.int64)
    ends = np.full(len(streams.duration_ns), NEVER, np.int64)
    waits_for = np.where(target == NONE, NONE, streams.call[target] if len(streams.call) else NONE)
    now = int(calls.start_ns[0]) - int(between[0]) if count else 0
    if not available():
        _simulate_stretches(calls, streams, now, between, inside, target, waits_for, begun, returned, ends)
        return begun, ends
    borders = np.cumsum([0, *(len(stream.work) for stream in streams.each)], dtype=np.int64)
    nothing = np.zeros(0, np.int64)
    _simulation.simulate(
        now,
        NEVER,
        MOST_PASSES,
        between,
        inside,
        target,
        waits_for,
        calls.full_queue_target,
        calls.full_queue_call,
        streams.call,
        streams.duration_ns,
        streams.latency_ns,
        streams.from_return,
        streams.turnaround_ns,
        streams.other,
        streams.handshake_ns,
        np.concatenate([nothing, *(stream.work for stream in streams.each)]),
        np.concatenate([nothing, *(stream.call for stream in streams.each)]),
        borders,
        borders[:-1].copy(),
        np.zeros(len(streams.each), np.int64),
        begun,
        returned,
        ends,
    )
    return begun, ends


def _simulate_stretches(
    calls: Calls,
    streams: Streams,
    now: int,
    between: Int64,
    inside: Int64,
    target: Int64,
    waits_for: Int64,
    begun: Int64,
    returned: Int64,
    ends: Int64,
) -> None:
    for a, b in _stretches(waits_for, calls.full_queue_call):
        alone = waits_for[a] == a
        least = np.full(b - a, NEVER, np.int64)
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
            before = int(ends[stream.work[low - 1]]) if low else NEVER
            total = np.cumsum(streams.turnaround_ns[some] + length)
            found = np.maximum.accumulate(np.maximum(least + length - total, before)) + total
            changed |= not np.array_equal(found, ends[some])
            ends[some] = found
        if not changed:
            break
