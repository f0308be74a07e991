"""A snapshot of a GPU's allocator, as torch dumps it, of what a real job allocated on a CPU.

The job runs under torch.profiler with stacks. Its allocations, with the Python frames around each, go through
the model of torch's allocator with as much memory as the GPU is meant to have. There, a backward pass runs in
a thread of autograd's engine: as in a snapshot with Python frames only, its allocations have the frames of
what it calls (a custom backward, recomputed blocks) and none of the loop's.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch.profiler import ProfilerActivity, profile

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.caching_allocator import MIB, CachingAllocator, DoesNotFit
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import ALLOCATOR_UNIT, Category
from tests.truth.running_lines import Call, calling_lines, calls_noted, running_frames

START_US = 1_700_000_000_000_000
ENGINE = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class Gpu:
    """room_bytes: what the driver has for the process. free_bytes: what it has free beside that, where a
    process is limited. scale: tensors are this many times as large as on the CPU."""

    room_bytes: int
    free_bytes: int = 0
    scale: int = 1
    expandable: bool = False


class _Logged(CachingAllocator):
    """Writes down what it gets from the driver and returns."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu.room_bytes, expandable=gpu.expandable)
        self.log: list[tuple[str, int, int]] = []
        self.segments: dict[int, int] = {}

    def _from_driver(self, pool: Any, size: int) -> Any:
        block = super()._from_driver(pool, size)
        if block is not None and not self.expandable:
            self.segments[block.address] = block.size
            self.log.append(("segment_alloc", block.address, block.size))
        return block

    def _map(self, hole: Any, size: int) -> Any:
        address, before = hole.address, self.reserved_bytes
        block = super()._map(hole, size)
        if block is not None:
            self.segments[address] = self.reserved_bytes - before
            self.log.append(("segment_map", address, self.reserved_bytes - before))
        return block

    def _release(self, block: Any) -> None:
        super()._release(block)
        del self.segments[block.address]
        self.log.append(("segment_free", block.address, block.size))


@dataclass
class _History:
    gpu: Gpu
    entries: list[dict[str, Any]] = field(default_factory=list)

    def add(self, action: str, address: int, size: int, at_us: int, frames: list[dict[str, Any]]) -> None:
        entry = {"action": action, "size": size, "stream": 0, "time_us": START_US + at_us, "frames": frames}
        entry |= {"device_free": address} if action == "oom" else {"addr": address}
        self.entries.append(entry)


def record(job: Callable[[], None], trace: Path) -> profile:
    """Run a job on the CPU. Write its trace, and beside it which lines call its functions."""
    calls: list[Call] = []
    with (
        profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True
        ) as profiler,
        calls_noted(calls),
    ):
        job()
    profiler.export_chrome_trace(str(trace))
    _noted(trace).write_text(json.dumps(calls))
    return profiler


def _noted(trace: Path) -> Path:
    return trace.with_suffix(".calls")


def write_snapshot(trace: Path, gpu: Gpu, snapshot: Path, *, from_step: int | None = None) -> bool:
    """Replay the allocations of a trace on such a GPU, and dump a snapshot when one fails, or at the end.
    Return whether one failed.

    from_step: of the trace's steps, the one with which `_record_memory_history` is turned on; None for the
    job's beginning.
    """
    facts = Facts(read_trace(str(trace)))
    noted = _noted(trace)
    calls = [tuple(call) for call in json.loads(noted.read_text())] if noted.exists() else []
    (memory,) = (memory for memory in facts.memory if memory.is_cpu)
    begins_ns = 0 if from_step is None else int(memory.floors.periods.start_ns[from_step])
    replay = _Replay(facts.host, memory.allocations, gpu, begins_ns, _lines(facts.host, calls))
    failed = replay.run()
    document = {
        "segments": _segments(replay.allocator, replay.live),
        "device_traces": [replay.history.entries],
    }
    snapshot.write_bytes(pickle.dumps(document))
    return failed


def _lines(host: Host, calls: list[Call]) -> dict[int, int]:
    """Return the line that calls each function of a trace, by event, as far as it was noted."""
    events = host.events
    own = np.flatnonzero(events.category == Category.PYTHON_FUNCTION)
    own = own[np.argsort(events.start_ns[own], kind="stable")].tolist()
    lines = calling_lines([host.name(i) for i in own], calls)
    return {i: line for i, line in zip(own, lines, strict=True) if line is not None}


class _Replay:
    def __init__(
        self, host: Host, allocations: Allocations, gpu: Gpu, begins_ns: int, lines: dict[int, int]
    ) -> None:
        self.host, self.allocations, self.gpu, self.begins_ns = host, allocations, gpu, begins_ns
        self.lines = lines
        self.allocator, self.history = _Logged(gpu), _History(gpu)
        self.live: dict[int, tuple[int, int, list[dict[str, Any]]]] = {}
        self._known: dict[int, list[dict[str, Any]]] = {}

    def run(self) -> bool:
        """Replay until an allocation fails. Whether one did."""
        made_at = {at: i for i, at in enumerate(self.allocations.position.tolist())}
        freed_at = {at: i for i, at in enumerate(self.allocations.freed.tolist()) if at != NONE}
        for position in sorted({*made_at, *freed_at}):
            if position in freed_at:
                self._free(freed_at[position], position)
            if position in made_at and not self._make(made_at[position], position):
                return True
        return False

    def _free(self, number: int, position: int) -> None:
        address, size, _ = self.live.pop(number)
        self.allocator.free(number)
        for action in ("free_requested", "free_completed"):
            self._write(action, address, size, position)

    def _make(self, number: int, position: int) -> bool:
        """Whether it fits."""
        size, begin = int(self.allocations.bytes[number]) * self.gpu.scale, len(self.allocator.log)
        try:
            address = self.allocator.allocate(number, size)
        except DoesNotFit:
            address = NONE
        for entry in self.allocator.log[begin:]:
            self._write(*entry, position)
        if address == NONE:
            free = self.gpu.free_bytes + self.gpu.room_bytes - self.allocator.reserved_bytes
            rounded = -(-size // ALLOCATOR_UNIT) * ALLOCATOR_UNIT  # here torch writes what it looked for
            self._write("oom", free, rounded, position)
            return False
        self.live[number] = address, size, self._frames(position)
        self._write("alloc", address, size, position)
        return True

    def _write(self, action: str, address: int, size: int, position: int) -> None:
        time_ns = int(self.allocations.curve.time_ns[position])
        if time_ns >= self.begins_ns:
            self.history.add(action, address, size, time_ns // 1000, self._frames(position))

    def _frames(self, position: int) -> list[dict[str, Any]]:
        """Frames around an event. An engine's thread has none but those of hooks and of functions in Python;
        what was allocated before the history has none at all."""
        curve, context = self.allocations.curve, self.allocations.context
        if curve.time_ns[position] < self.begins_ns:
            return []
        around = int(context.around[curve.event[position]])
        if around not in self._known:
            chain = [] if around == NONE else self.host.tree.ancestors(around)
            # The function that is called next says which line runs in a frame.
            next_line, running = None, dict[int, int | None]()
            for i in reversed(chain):
                running[i], next_line = next_line, self.lines.get(i, next_line)
            shown = [(self.host.name(i), running[i]) for i in chain if not self.host.see_through[i]]
            engine = next((i for i, (name, _) in enumerate(shown) if name.startswith(ENGINE)), 0)
            self._known[around] = running_frames(shown[engine:])
        return self._known[around]


def _segments(
    allocator: _Logged, live: dict[int, tuple[int, int, list[dict[str, Any]]]]
) -> list[dict[str, Any]]:
    used = sorted((block.address, block.size, live[i]) for i, block in allocator._used.items())
    found = []
    for begin, length in _ranges(allocator):
        own = [block for block in used if begin <= block[0] < begin + length]
        taken = sum(size for _, size, _ in own)
        found.append(
            {
                "device": 0,
                "address": begin,
                "total_size": length,
                "stream": 0,
                "segment_type": "small" if length <= 2 * MIB else "large",
                "segment_pool_id": (0, 0),
                "is_expandable": allocator.expandable,
                "allocated_size": taken,
                "active_size": taken,
                "frames": [],
                "blocks": list(_blocks(begin, length, own)),
            }
        )
    return found


def _ranges(allocator: _Logged) -> list[tuple[int, int]]:
    """Begin and length of each segment. Parts of an expandable one that touch are one."""
    found: list[tuple[int, int]] = []
    for begin, length in sorted(allocator.segments.items()):
        if found and allocator.expandable and sum(found[-1]) == begin:
            found[-1] = found[-1][0], found[-1][1] + length
        else:
            found.append((begin, length))
    return found


def _blocks(begin: int, length: int, used: list[Any]) -> Iterator[dict[str, Any]]:
    at = begin
    for address, size, (_, asked, frames) in [*used, (begin + length, 0, (0, 0, []))]:
        if address > at:
            yield {
                "address": at,
                "size": address - at,
                "requested_size": 0,
                "state": "inactive",
                "frames": [],
            }
        if size:
            state = {"requested_size": asked, "state": "active_allocated", "frames": frames}
            yield {"address": address, "size": size, **state}
        at = address + size
