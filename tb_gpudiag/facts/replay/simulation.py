# cython: boundscheck=True, wraparound=True, initializedcheck=False, annotation_typing=False
"""The replay's recursions: when each call begins, and when each work ends.

A plain loop, which is compiled where there is a compiler (simulation.pxd has the types), and then takes a
thirtieth of the time. NumPy is as fast as Python only where few calls wait for work launched shortly before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.replay.model import Calls, Streams

# Starts that depend on other streams settle after one pass for each hand-over inside a stretch. Gradient
# buckets cause tens of them.
MOST_PASSES = 100

NEVER: int = np.iinfo(np.int64).min // 4


def simulate(
    calls: Calls, streams: Streams, between: Int64, inside: Int64, target: Int64
) -> tuple[Int64, Int64]:
    """Compute when each call begins, and when each work ends.

    between, inside, target: instead of those of `calls`.
    """
    times = np.zeros((2, len(between)), np.int64)  # when each call begins and returns
    ends = np.full(len(streams.call) + 1, NEVER, np.int64)  # the last one is that of NONE
    waits_for = np.where(target == NONE, NONE, streams.call[target] if len(streams.call) else NONE)
    host = (between, inside, target, waits_for, calls.full_queue_target, calls.full_queue_call)
    issued = streams.call + streams.from_return * len(between)
    work = (
        *(streams.order.work, streams.order.launched, streams.order.previous, streams.turnaround_ns),
        *(issued, streams.latency_ns, streams.other, streams.handshake_ns, streams.duration_ns),
    )
    if len(between):
        found = (*times, times.reshape(-1), ends)
        columns = [[column.data for column in some] for some in (host, work, found)]
        _run(int(calls.start_ns[0] - between[0]), columns[0], columns[1], columns[2])
    return times[0], ends[:NONE]


def _run(
    now: int, host: Sequence[memoryview], work: Sequence[memoryview], times: Sequence[memoryview]
) -> None:
    """Run stretches of calls in which none waits for work that the same stretch launched, and the calls that
    do each by itself. Of a stretch, run the calls, then the work until the times of all streams agree.

    issued: where each work's launch is in of_calls, which is `begun` and then `returned`.
    """
    between, inside, target, waits_for, full_target, full_call = host
    order, launched, previous, turnaround, issued, latency, other, handshake, duration = work
    begun, returned, of_calls, ends = times
    first = low = high = 0
    while first < len(between):
        alone = waits_for[first] == first
        end = first + 1
        while not alone and end < len(between) and waits_for[end] < first and full_call[end] < first:
            end += 1
        for one in range(first, end):
            now += between[one]
            begun[one] = now
            if not alone:
                now = max(now, ends[target[one]], ends[full_target[one]])
            now += inside[one]
            returned[one] = now
        while high < len(order) and launched[high] < end:
            high += 1
        for _ in range(MOST_PASSES):
            changed = waits = False
            for place in range(low, high):
                one = order[place]
                begin = of_calls[issued[one]] + latency[one]
                begin = max(begin, ends[previous[one]] + turnaround[one], ends[other[one]] + handshake[one])
                ended = begin + duration[one]
                waits |= other[one] >= 0
                changed |= ended != ends[one]
                ends[one] = ended
            if not (changed and waits):
                break
        if alone:
            now = returned[first] = max(begun[first], ends[target[first]]) + inside[first]
        first, low = end, high
