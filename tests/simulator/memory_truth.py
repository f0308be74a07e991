"""What a simulated run did with memory, replayed event by event from the machine's own records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tests.builder import MemoryEvent
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
    """One device's memory. Sizes are bytes. operators, frame: where most of the leak is allocated."""

    device: Device
    behaviour: Behaviour
    cause: str  # of a leak, as in job.Leak
    floor_bytes: list[int]  # the least allocated in each step
    slope_bytes: float  # what each step of a leak retains, batches of varying sizes aside
    operators: frozenset[str]
    frame: str  # as Python frames name it; "" where there is none
    peak_bytes: int
    peak_kinds: dict[Kind, int]
    peak_reserved_bytes: int  # when most was allocated
    capacity_bytes: int


def find_memory(machine: Machine, job: Job, borders: list[int]) -> list[MemoryTruth]:
    """Compute the truth for the GPU and the CPU. borders: of the steps, the end of the last one included."""
    found = [_of_device(machine, job, device, borders) for device in (GPU, CPU)]
    return [truth for truth in found if truth.peak_bytes]


def _of_device(machine: Machine, job: Job, device: Device, borders: list[int]) -> MemoryTruth:
    replay = _Replay(machine, device)
    # Without steps the recording is one slice, and has no floor.
    has_steps = len(borders) > 1
    lowest = [replay.lowest(begin, end) for begin, end in pairwise(borders if has_steps else [0, *borders])]
    floors = [total for total, _ in lowest] if has_steps else []
    retained = [without_batches for _, without_batches in lowest] if has_steps else []
    cause, operators, function = _leak_site(job, device)
    return MemoryTruth(
        device=device,
        behaviour=_behaviour(job, device),
        cause=cause,
        floor_bytes=floors,
        slope_bytes=(retained[-1] - retained[1]) / (len(retained) - 2)
        if cause and len(retained) > 2
        else 0.0,
        operators=operators,
        frame=place(function) if function else "",
        peak_bytes=replay.peak_bytes,
        peak_kinds={kind: bytes for kind, bytes in replay.peak_kinds.items() if bytes},
        peak_reserved_bytes=replay.reserved_at_peak_bytes,
        capacity_bytes=job.capacity_bytes if device == GPU else 0,
    )


def _behaviour(job: Job, device: Device) -> Behaviour:
    if _leak_site(job, device)[0]:
        return "leak"
    return "plateau" if device == GPU and job.plateau else "saw_tooth"


def _leak_site(job: Job, device: Device) -> tuple[str, frozenset[str], str]:
    """Return the cause of the device's leak, its operators and its function; all empty without one."""
    if device == CPU and job.host_leak_bytes:
        return "list", _SITES["list"][0], "collect_samples"
    if device == GPU and job.leak_bytes:
        return job.leak, *_SITES[job.leak]
    return "", frozenset(), ""


class _Replay:
    """One device's memory events, applied in order of time."""

    def __init__(self, machine: Machine, device: Device) -> None:
        recording = machine.recording
        start = recording.memory_start.get(device, 0)
        self._alive: Counter[Kind] = Counter({"before": start})
        self._events = [
            (event, kind)
            for event, kind in zip(recording.memory, machine.heap.kinds, strict=True)
            if event.device == device
        ]
        self._next = 0
        self.peak_bytes, self.peak_kinds, self.reserved_at_peak_bytes = start, self._alive.copy(), 0

    def lowest(self, begin_ns: int, end_ns: int) -> tuple[int, int]:
        """Return the least allocated in [begin_ns, end_ns), and the least without batches."""
        while self._is_next_before(begin_ns):
            self._apply()
        lowest, retained = self._totals()
        while self._is_next_before(end_ns):
            event = self._apply()
            total, without_batches = self._totals()
            lowest, retained = min(lowest, total), min(retained, without_batches)
            if total > self.peak_bytes:
                self.peak_bytes, self.peak_kinds = total, self._alive.copy()
                self.reserved_at_peak_bytes = event.reserved or 0
        return lowest, retained

    def _is_next_before(self, time_ns: int) -> bool:
        return self._next < len(self._events) and self._events[self._next][0].time_ns < time_ns

    def _apply(self) -> MemoryEvent:
        event, kind = self._events[self._next]
        self._alive[kind] += event.bytes
        self._next += 1
        return event

    def _totals(self) -> tuple[int, int]:
        total = self._alive.total()
        return total, total - self._alive["input"]
