"""Truth: what a simulated run spent its time on, computed from the machine's own records, not from the trace.

The definitions are those of the idle ledger, applied here in the simplest way, one gap after another. The
ledger infers causes from names and nesting; here they are known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.simulator.gpu_truth import GpuTruth, Span, find_gpu_truth
from tests.simulator.gpu_truth import inside as _inside
from tests.simulator.gpu_truth import union as _union
from tests.simulator.job import Job
from tests.simulator.machine import Launched, Machine
from tests.simulator.memory_truth import MemoryTruth, find_memory


@dataclass(frozen=True)
class StepTruth:
    """One step's slice of the step window: from when the host has begun it and the GPU has done all work from
    before it, until the same is true of the next one."""

    name: str
    start_ns: int
    end_ns: int
    busy_ns: int
    idle_ns: dict[str, int]  # cause -> ns

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(slots=True)
class Segment:
    """A stretch of idle time with one cause.

    drained_ns: the part that would not exist, at most, had the host not been blocked in the wait that drained
    the queue.
    """

    start_ns: int
    end_ns: int
    cause: str
    trigger: str
    drained_ns: int
    in_loop: bool  # in a loop that launches small kernels
    in_trip: bool  # in a round trip, between a copy to the host and the one back


@dataclass(frozen=True)
class Truth:
    """What was planted. Times are ns of the machine's clock. idle_ns is over the step window."""

    steps: list[StepTruth]
    window_start_ns: int
    window_end_ns: int
    busy_ns: int
    idle_ns: dict[str, int]  # cause -> ns
    trigger_ns: dict[str, int]  # trigger -> ns
    memory: list[MemoryTruth] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # of the step window's idle time, in order
    gpu: GpuTruth = field(default_factory=GpuTruth)

    @property
    def window_ns(self) -> int:
        return self.window_end_ns - self.window_start_ns


@dataclass(slots=True)
class _Gap:
    start_ns: int
    end_ns: int
    ended_by: Launched | None


def find_truth(machine: Machine, steps: list[tuple[str, int, int]], job: Job | None = None) -> Truth:
    """Compute the truth of a run.

    steps: (name, start, end) on the host; without any, the window is the whole recording.
    """
    on_host = [*(start for _, start, _ in steps), *(end for _, _, end in steps[-1:])]
    borders = [_reached(machine, at) for at in on_host]
    begin, end = (borders[0], borders[-1]) if steps else (0, machine.recording.last_ns())
    busy = _union([(work.start_ns, work.end_ns) for work in machine.work])
    segments: list[tuple[int, int, str]] = []
    with_drained: list[Segment] = []
    triggers: Counter[str] = Counter()
    for gap in _gaps(machine, busy, begin, end):
        explained = _explain(gap, machine)
        segments += explained
        with_drained += _with_drained(gap, explained, machine)
        triggers[_trigger(gap, machine)] += gap.end_ns - gap.start_ns
    return Truth(
        steps=[
            StepTruth(name, *span, _inside(busy, *span), _by_cause(segments, *span))
            for (name, _, _), span in zip(steps, pairwise(borders), strict=True)
        ],
        window_start_ns=begin,
        window_end_ns=end,
        busy_ns=_inside(busy, begin, end),
        idle_ns=_by_cause(segments, begin, end),
        trigger_ns=dict(triggers),
        memory=find_memory(machine, job, [*on_host[:-1], end]) if job else [],
        segments=with_drained,
        gpu=find_gpu_truth(machine, steps, begin, end),
    )


def _reached(machine: Machine, at: int) -> int:
    """Return when the host is there and the GPU has done everything that was launched before."""
    return max([at, *(work.end_ns for work in machine.work if work.called_ns < at)])


def _by_cause(segments: list[tuple[int, int, str]], start: int, end: int) -> dict[str, int]:
    total: Counter[str] = Counter()
    for a, b, cause in segments:
        if min(b, end) > max(a, start):
            total[cause] += min(b, end) - max(a, start)
    return dict(total)


def _gaps(machine: Machine, busy: list[Span], begin: int, end: int) -> list[_Gap]:
    """Find the stretches of [begin, end) without work, each with the work that ended it."""
    starting = {work.start_ns: work for work in machine.work}
    gaps, at = [], begin
    for start, stop in [*busy, (end, end)]:
        if begin <= at < min(start, end):
            gaps.append(_Gap(at, min(start, end), starting.get(start)))
        at = max(at, stop)
    return gaps


def _explain(gap: _Gap, machine: Machine) -> list[tuple[int, int, str]]:
    work = gap.ended_by
    if work is None:
        return _host_time(machine, gap.start_ns, gap.end_ns)
    after_launch = "queued" if work.waits else "graph" if work.later_node else "latency"
    if work.returned_ns <= gap.start_ns:
        return [(gap.start_ns, gap.end_ns, after_launch)]
    called = max(work.called_ns, gap.start_ns)
    returned = min(work.returned_ns, gap.end_ns)
    segments = _host_time(machine, gap.start_ns, called)
    for start, end, cause in _host_time(machine, called, returned):
        segments.append((start, end, cause if cause == "compile" else "launch"))
    segments.append((returned, gap.end_ns, after_launch))
    return [(start, end, cause) for start, end, cause in segments if end > start]


def _host_time(machine: Machine, start: int, end: int) -> list[tuple[int, int, str]]:
    """Return what the host did in [start, end). Where the machine has no record, it was in user code."""
    segments = []
    at = start
    first = max(0, bisect_right(machine.spent, start, key=lambda spent: spent.start_ns) - 1)
    for place in range(first, len(machine.spent)):
        spent = machine.spent[place]
        if spent.start_ns >= end:
            break
        a, b = max(spent.start_ns, start), min(spent.end_ns, end)
        if b > a:
            if a > at:
                segments.append((at, a, "python"))
            segments.append((a, b, spent.cause))
            at = b
    if at < end:
        segments.append((at, end, "python"))
    return segments


def _trigger(gap: _Gap, machine: Machine) -> str:
    work = gap.ended_by
    if work is not None and work.returned_ns <= gap.start_ns:
        return "queued"
    if any(start < gap.start_ns < end < gap.end_ns for start, end in machine.waits):
        return "drained"
    return "starved" if work is not None else "unknown"


REFILL = frozenset({"sync", "python", "dispatch", "launch", "latency"})
"""What a gap consists of because the host is late. A host further ahead does this while the GPU works."""


def _with_drained(gap: _Gap, explained: list[tuple[int, int, str]], machine: Machine) -> Iterator[Segment]:
    held = 0
    if gap.ended_by is None or gap.ended_by.returned_ns > gap.start_ns:
        held = max(
            (gap.start_ns - start for start, end in machine.waits if start < gap.start_ns < end < gap.end_ns),
            default=0,
        )
    for start, end, cause in explained:
        drained = min(held, end - start) if cause in REFILL else 0
        held -= drained
        before = bisect_right(machine.loops, start, key=lambda loop: loop[0])
        in_loop = before > 0 and start < machine.loops[before - 1][1]
        in_trip = any(a <= start < b for a, b in machine.trips)
        yield Segment(start, end, cause, _trigger(gap, machine), drained, in_loop, in_trip)
