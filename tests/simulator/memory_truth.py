"""What a simulated run did with memory, replayed one event after another from what the machine was told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tests.simulator.heap import CPU, GPU, Device, Kind
from tests.simulator.job import Job
from tests.simulator.machine import Machine
from tests.simulator.script import place

Behaviour = Literal["saw_tooth", "plateau", "leak"]

_SITES: dict[str, tuple[frozenset[str], str]] = {
    "list": (frozenset({"aten::clone"}), "remember"),
    "kept_graph": (frozenset({"aten::linear", "aten::addmm"}), "Block.forward"),
    "retained_graph": (frozenset({"aten::linear", "aten::addmm"}), "Block.forward"),
    "hooks": (frozenset({"aten::linear", "aten::addmm"}), "Block.forward"),
    "growing_cache": (frozenset({"aten::cat"}), "extend_cache"),
    "gradients": (frozenset({"aten::mm"}), ""),  # autograd's thread has no frames
    "metrics": (frozenset({"aten::mean"}), "measure"),
}


@dataclass(frozen=True)
class MemoryTruth:
    """Of one device. Sizes are bytes. `operators` and `frame` are where most of what leaks is allocated."""

    device: Device
    behaviour: Behaviour
    cause: str  # of a leak, as in job.Leak
    floor_bytes: list[int]  # the least allocated in each step
    slope_bytes: float  # what each step of a leak keeps, batches of varying sizes aside
    operators: frozenset[str]
    frame: str  # as Python frames name it; "" where there is none
    peak_bytes: int
    peak_kinds: dict[Kind, int]
    peak_reserved_bytes: int  # when most was allocated
    capacity_bytes: int


def find_memory(machine: Machine, job: Job, borders: list[int]) -> list[MemoryTruth]:
    """Of the GPU and the CPU; `borders` are those of the steps."""
    found = [_of_device(machine, job, device, borders) for device in (GPU, CPU)]
    return [truth for truth in found if truth.peak_bytes]


def _of_device(machine: Machine, job: Job, device: Device, borders: list[int]) -> MemoryTruth:
    recording = machine.recording
    start = recording.memory_start.get(device, 0)
    alive: Counter[Kind] = Counter({"before": start})
    peak, peak_kinds, at_peak = start, alive.copy(), 0
    floors = [-1] * (len(borders) - 1)
    kept = [-1] * (len(borders) - 1)  # the floors without batches
    events = [(e, k) for e, k in zip(recording.memory, machine.heap.kinds, strict=True) if e.device == device]
    at = 0
    # Without steps the recording is one slice, of which no floor is said.
    for number, (begin, end) in enumerate(pairwise(borders if floors else [0, *borders])):
        while at < len(events) and events[at][0].time_ns < begin:
            alive[events[at][1]] += events[at][0].bytes
            at += 1
        lowest, lowest_kept = alive.total(), alive.total() - alive["input"]
        while at < len(events) and events[at][0].time_ns < end:
            event, kind = events[at]
            alive[kind] += event.bytes
            at += 1
            total = alive.total()
            lowest, lowest_kept = min(lowest, total), min(lowest_kept, total - alive["input"])
            if total > peak:
                peak, peak_kinds, at_peak = total, alive.copy(), event.reserved or 0
        if floors:
            floors[number], kept[number] = lowest, lowest_kept
    leaks = bool(job.leak_bytes if device == GPU else job.host_leak_bytes)
    cause: str = (job.leak if device == GPU else "list") if leaks else ""
    operators, function = _SITES[cause] if leaks else (frozenset(), "")
    if device == CPU and leaks:
        function = "collect_samples"
    plateau = device == GPU and job.plateau
    return MemoryTruth(
        device,
        "leak" if leaks else "plateau" if plateau else "saw_tooth",
        cause,
        floors,
        (kept[-1] - kept[1]) / (len(kept) - 2) if leaks and len(kept) > 2 else 0.0,
        operators,
        place(function) if function else "",
        peak,
        {kind: bytes for kind, bytes in peak_kinds.items() if bytes},
        at_peak,
        job.capacity_bytes if device == GPU else 0,
    )
