"""What GPU time was spent on and how long steps took, from the machine's own records."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise

from tests.builder import GpuSpan
from tests.simulator.gpu_faults import COLLECTIVE, FP32, LAYOUT, NARROW_BLOCKS, SOFTMAX, TAIL, UNALIGNED
from tests.simulator.machine import Launched, Machine

Span = tuple[int, int]

MULTIPROCESSORS = 80
LARGE_BYTES = 64 * 1024


@dataclass(frozen=True)
class GpuTruth:
    """ns over the step window; step_ns per step."""

    fp32_ns: int = 0
    unaligned_ns: int = 0
    narrow_ns: int = 0  # idle multiprocessors of small grids, as time of the whole GPU
    tail_ns: int = 0  # idle multiprocessors of last waves, likewise
    softmax_ns: int = 0
    layout_ns: int = 0
    communicating_ns: int = 0
    pageable_ns: int = 0  # large copies to or from pageable memory, exposed
    copying_ns: int = 0  # other copies between host and GPU, exposed, except those of round trips
    trip_ns: int = (
        0  # round trips, from the copy to the host to the end of the copy back, while nothing computes
    )
    step_ns: tuple[int, ...] = ()  # from the end of the previous step's work to the end of its own


def find_gpu_truth(machine: Machine, steps: list[tuple[str, int, int]], begin: int, end: int) -> GpuTruth:
    """Compute the truth over the step window [begin, end). steps: (name, start, end) on the host."""
    work = list(zip(machine.recording.gpu, machine.work, strict=True))
    computing = union([(w.start_ns, w.end_ns) for gpu, w in work if gpu.kind != "memcpy"])

    def named(name: str) -> int:
        return inside(union([(w.start_ns, w.end_ns) for gpu, w in work if gpu.name == name]), begin, end)

    def exposed(spans: list[Span]) -> int:
        merged = union(spans)
        hidden = sum(inside(computing, *span) for span in merged)
        return inside(merged, begin, end) - hidden

    def with_blocks(blocks_per_sm: float) -> int:
        chosen = [w for gpu, w in work if gpu.args.get("blocks per SM") == blocks_per_sm]
        return sum(w.end_ns - w.start_ns for w in chosen)

    trips = union(machine.trips)
    pageable, others = _copies(work, trips)
    narrow = NARROW_BLOCKS / MULTIPROCESSORS
    return GpuTruth(
        fp32_ns=named(FP32),
        unaligned_ns=named(UNALIGNED),
        narrow_ns=round(with_blocks(narrow) * (1 - narrow)),
        tail_ns=round(with_blocks(TAIL[0]) * (2 - TAIL[0] / 2) / 2),  # 1.1 waves in the time of 2
        softmax_ns=named(SOFTMAX),
        layout_ns=named(LAYOUT),
        communicating_ns=named(COLLECTIVE),
        pageable_ns=exposed(pageable),
        copying_ns=exposed(others),
        trip_ns=exposed(trips),
        step_ns=_completions(machine.work, steps),
    )


def _copies(work: list[tuple[GpuSpan, Launched]], trips: list[Span]) -> tuple[list[Span], list[Span]]:
    """Return the large copies to or from pageable memory, and the others that are in no round trip."""
    copies = [(gpu, (w.start_ns, w.end_ns)) for gpu, w in work if gpu.kind == "memcpy"]
    pageable = [span for gpu, span in copies if "Pageable" in gpu.name and (gpu.bytes or 0) >= LARGE_BYTES]
    others = [span for _, span in copies if span not in pageable and not inside(trips, *span)]
    return pageable, others


def _completions(work: list[Launched], steps: list[tuple[str, int, int]]) -> tuple[int, ...]:
    done = [max((w.end_ns for w in work if a <= w.called_ns < b), default=b) for _, a, b in steps]
    if not steps:
        return ()
    first = steps[0][1]
    begin = max([first, *(w.end_ns for w in work if w.called_ns < first)])
    return tuple(b - a for a, b in pairwise([begin, *done]))


def unevenness(step_ns: tuple[int, ...], window_ns: int) -> float:
    """Return the time that steps take beyond the median, divided by the threshold of uneven steps.

    A step close to the limit of slow steps counts as the threshold itself, 1: it may be reported or not. The
    first steps are excused while each takes over twice the median of those after it.
    """
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
    """Merge the spans, in order of time."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def inside(spans: list[Span], start: int, end: int) -> int:
    """Return how much of the spans is in [start, end)."""
    return sum(max(0, min(b, end) - max(a, start)) for a, b in spans)
