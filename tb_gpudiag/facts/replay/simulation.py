"""The replay's recursions: when each call begins, and when each work ends.

A plain loop. NumPy is as fast only where few calls wait for work that was launched shortly before.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.replay.model import Calls, ReplayedWork, Streams

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
    run = _Run(calls, streams, between, inside, target)
    run.all()
    return np.array(run.begun, np.int64), np.array(run.ends[:NONE], np.int64)


class _Run:
    """One simulation, over lists: reading single values of arrays takes ten times as long."""

    def __init__(self, calls: Calls, streams: Streams, between: Int64, inside: Int64, target: Int64) -> None:
        waits_for = np.where(target == NONE, NONE, streams.call[target] if len(streams.call) else NONE)
        full_queue_target, self._full_queue_call = calls.full_queue
        columns = between.tolist(), inside.tolist(), target.tolist(), full_queue_target
        self._calls: list[tuple[int, int, int, int]] = list(zip(*columns, strict=True))
        self._waits_for: list[int] = waits_for.tolist()
        self._lines = streams.lines
        self._done = [0] * len(self._lines)  # work of each stream that has been run
        # The call of each stream's next work, and the stream: of many streams, few have work to run.
        self._next = [(calls[0], number) for number, (calls, _) in enumerate(self._lines) if calls]
        heapify(self._next)
        self._now = int(calls.start_ns[0]) - int(between[0]) if len(between) else 0
        self._returned = [0] * len(between)
        self.begun = [0] * len(between)
        self.ends = [NEVER] * (len(streams.call) + 1)  # the last one is that of NONE

    def all(self) -> None:
        """Run stretches of calls in which none waits for work that the same stretch launched, and the calls
        that do each by itself."""
        waits_for, full_queue_call = self._waits_for, self._full_queue_call
        first, count = 0, len(waits_for)
        while first < count:
            end = first + 1
            if waits_for[first] == first:
                self._run_alone(first)
            else:
                while end < count and waits_for[end] < first and full_queue_call[end] < first:
                    end += 1
                self._run_calls(first, end)
                self._run_work(end)
            self._now = self._returned[end - 1]
            first = end

    def _run_alone(self, one: int) -> None:
        between_ns, inside_ns, target, _ = self._calls[one]
        self.begun[one] = self._now + between_ns
        self._returned[one] = self.begun[one] + inside_ns
        self._run_work(one + 1)
        self._returned[one] = max(self.begun[one], self.ends[target]) + inside_ns

    def _run_calls(self, first: int, end: int) -> None:
        begun, returned, ends, now = self.begun, self._returned, self.ends, self._now
        for one in range(first, end):
            between_ns, inside_ns, target, full_queue_target = self._calls[one]
            now += between_ns
            begun[one] = now
            if ends[target] > now:
                now = ends[target]
            if ends[full_queue_target] > now:
                now = ends[full_queue_target]
            now += inside_ns
            returned[one] = now

    def _run_work(self, end: int) -> None:
        """Run the work of calls before `end`, stream by stream, until the times of all streams agree."""
        due = []
        while self._next and self._next[0][0] < end:
            due.append(heappop(self._next)[1])
        parts = []
        for number in sorted(due):
            calls, line = self._lines[number]
            low = self._done[number]
            high = self._done[number] = bisect_left(calls, end, low)
            parts.append((line[low:high], self.ends[line[low - 1][-1]] if low else NEVER))
            if high < len(calls):
                heappush(self._next, (calls[high], number))
        passes = MOST_PASSES if len(parts) > 1 and any(_waits_for_others(part) for part, _ in parts) else 1
        for _ in range(passes):
            changes = [self._run_part(*part) for part in parts]
            if not any(changes):
                break

    def _run_part(self, part: list[ReplayedWork], end_ns: int) -> bool:
        """Run some work of a stream, after what ended at end_ns. Return whether a time has changed."""
        begun, returned, ends = self.begun, self._returned, self.ends
        changed = False
        for call, duration_ns, latency_ns, from_return, turnaround_ns, other, handshake_ns, index in part:
            start_ns = (returned if from_return else begun)[call] + latency_ns
            end_ns += turnaround_ns
            if start_ns > end_ns:
                end_ns = start_ns
            if ends[other] + handshake_ns > end_ns:
                end_ns = ends[other] + handshake_ns
            end_ns += duration_ns
            if end_ns != ends[index]:
                changed = True
                ends[index] = end_ns
        return changed


def _waits_for_others(part: list[ReplayedWork]) -> bool:
    return any(other != NONE for *_, other, _, _ in part)
