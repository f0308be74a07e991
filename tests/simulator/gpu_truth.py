"""What the GPU's own time was spent on, and how long steps took, from what the machine was told."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise

from tests.simulator.gpu_faults import COLLECTIVE, FP32, LAYOUT, NARROW_BLOCKS, SOFTMAX, TAIL, UNALIGNED
from tests.simulator.machine import Launched, Machine

Span = tuple[int, int]

MULTIPROCESSORS = 80
LARGE_BYTES = 64 * 1024


@dataclass(frozen=True)
class GpuTruth:
    """ns over the step window, but for the steps'."""

    fp32_ns: int = 0
    unaligned_ns: int = 0
    narrow_ns: int = 0  # multiprocessors without a block, as time of the whole GPU
    tail_ns: int = 0  # multiprocessors empty in last waves, likewise
    softmax_ns: int = 0
    layout_ns: int = 0
    communicating_ns: int = 0
    pageable_ns: int = 0  # large copies to or from pageable memory, with nothing beside them
    copying_ns: int = 0  # other copies between host and GPU, likewise, those of trips left out
    trip_ns: int = 0  # from a copy to the host until it is back, while nothing computes
    step_ns: tuple[int, ...] = ()  # from the end of the work of the step before to the end of its own


def find_gpu_truth(machine: Machine, steps: list[tuple[str, int, int]], begin: int, end: int) -> GpuTruth:
    """Over the step window [begin, end). `steps` are (name, start, end) on the host."""
    work = list(zip(machine.recording.gpu, machine.work, strict=True))
    computing = union([(w.start_ns, w.end_ns) for gpu, w in work if gpu.kind != "memcpy"])

    def named(name: str) -> int:
        return inside(union([(w.start_ns, w.end_ns) for gpu, w in work if gpu.name == name]), begin, end)

    def alone(spans: list[Span]) -> int:
        merged = union(spans)
        hidden = sum(inside(computing, *span) for span in merged)
        return inside(merged, begin, end) - hidden

    copies = [(gpu, w) for gpu, w in work if gpu.kind == "memcpy"]
    large = [
        (w.start_ns, w.end_ns)
        for gpu, w in copies
        if "Pageable" in gpu.name and (gpu.bytes or 0) >= LARGE_BYTES
    ]
    trips = union(machine.trips)
    others = [
        (w.start_ns, w.end_ns)
        for _, w in copies
        if (w.start_ns, w.end_ns) not in large and not inside(trips, w.start_ns, w.end_ns)
    ]
    share = NARROW_BLOCKS / MULTIPROCESSORS
    narrow = sum(w.end_ns - w.start_ns for gpu, w in work if gpu.args.get("blocks per SM") == share)
    tail = sum(w.end_ns - w.start_ns for gpu, w in work if gpu.args.get("blocks per SM") == TAIL[0])
    return GpuTruth(
        fp32_ns=named(FP32),
        unaligned_ns=named(UNALIGNED),
        narrow_ns=round(narrow * (1 - share)),
        tail_ns=round(tail * (2 - TAIL[0] / 2) / 2),  # 1.1 waves in the time of 2
        softmax_ns=named(SOFTMAX),
        layout_ns=named(LAYOUT),
        communicating_ns=named(COLLECTIVE),
        pageable_ns=alone(large),
        copying_ns=alone(others),
        trip_ns=alone(trips),
        step_ns=_completions(machine.work, steps),
    )


def _completions(work: list[Launched], steps: list[tuple[str, int, int]]) -> tuple[int, ...]:
    done = [max((w.end_ns for w in work if a <= w.called_ns < b), default=b) for _, a, b in steps]
    if not steps:
        return ()
    first = steps[0][1]
    begin = max([first, *(w.end_ns for w in work if w.called_ns < first)])
    return tuple(b - a for a, b in pairwise([begin, *done]))


def unevenness(step_ns: tuple[int, ...], window_ns: int) -> float:
    """What steps take beyond the median, of the threshold of uneven steps. 1 is the threshold itself, and so
    is a step that is too near to being a slow one to tell. The first ones are excused while each is over
    twice as long as the median of those after it."""
    first = 1
    while first < len(step_ns) // 2 and step_ns[first] > 2 * statistics.median(step_ns[first:]):
        first += 1
    compared = step_ns[first:]
    if len(step_ns) < 4 or len(compared) < 3:
        return 0.0
    usual = statistics.median(compared)
    if any(1.1 < ns / usual < 1.3 for ns in compared):
        return 1.0
    return sum(ns - usual for ns in compared if ns > 1.2 * usual) / window_ns / 0.02


def union(spans: list[Span]) -> list[Span]:
    """Merged, in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def inside(spans: list[Span], start: int, end: int) -> int:
    """How much of the spans lies in [start, end)."""
    return sum(max(0, min(b, end) - max(a, start)) for a, b in spans)
