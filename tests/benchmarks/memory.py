"""Measure how fast the memory of a large recording is analyzed, compared with a plain Python loop that only
pairs the same events.

    python -m tests.benchmarks.memory [EVENTS]

The ratio is what matters: seconds differ between machines and moments.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.trace.events import Events, MemoryEvents, Metadata, Thread, Trace
from tb_gpudiag.vocabulary.recorded import Category, DeviceType, MemoryAction

T = TypeVar("T")

EVENTS = 2_000_000
STEPS = 1_000
OPERATORS = 50
SPACING_NS = 1_000
KEPT_BYTES = 1 << 20
BEFORE_BYTES = 1 << 30


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    seconds: float
    freed: int  # allocations whose free was found; 0 where the row does not look for them
    slope: float  # of the floor, bytes per step; 0 likewise


def recording(count: int) -> Trace:
    """Make about `count` memory events. Each operator allocates, most is freed before its step ends, and each
    step keeps one allocation."""
    made = count // 2 // STEPS * STEPS
    per_step = made // STEPS
    chance = np.random.default_rng(0)
    number = np.arange(made, dtype=np.int64)
    made_ns = (number + 1) * SPACING_NS
    left_in_step = per_step - number % per_step
    freed_ns = made_ns + (chance.random(made) * (left_in_step - 1)).astype(np.int64) * SPACING_NS + 500
    kept = number % per_step == 7
    size = np.where(kept, KEPT_BYTES, 512 * chance.integers(1, 2_000, made))
    address = np.where(kept, number + 10 * made, number % (2 * per_step) + 1).astype(np.uint64)
    return Trace(
        events=_operators(made_ns, per_step),
        memory=_memory(made_ns, freed_ns[~kept], size, size[~kept], address, address[~kept]),
        metadata=Metadata(),
        status="COMPLETE",
        events_read=0,
        malformed_events=0,
        start_ns=0,
    )


def _memory(
    made_ns: Int64, freed_ns: Int64, made: Int64, freed: Int64, at: np.ndarray, free_at: np.ndarray
) -> MemoryEvents:
    time_ns = np.r_[made_ns, freed_ns]
    order = np.argsort(time_ns, kind="stable")
    change = np.r_[made, -freed][order]
    count = len(order)
    return MemoryEvents(
        time_ns=time_ns[order],
        action=np.where(change < 0, MemoryAction.FREE, MemoryAction.ALLOCATE).astype(np.uint8),
        bytes=change,
        address=np.r_[at, free_at][order],
        device_type=np.full(count, DeviceType.CUDA, np.int32),
        device=np.zeros(count, np.int32),
        allocated=BEFORE_BYTES + np.cumsum(change),
        reserved=np.full(count, 1 << 40, np.int64),
        thread=np.zeros(count, np.int32),
        stack=np.full(count, NONE, np.int32),
        stacks=[],
    )


def _operators(made_ns: Int64, per_step: int) -> Events:
    """Make an operator around each allocation, and the steps' marks."""
    step_ns = np.arange(STEPS, dtype=np.int64) * per_step * SPACING_NS + SPACING_NS // 2
    start = np.r_[made_ns - 300, step_ns]
    order = np.argsort(start, kind="stable")
    category = np.repeat(
        np.array([Category.CPU_OP, Category.USER_ANNOTATION], np.uint8), [len(made_ns), STEPS]
    )
    duration = np.repeat(np.array([600, per_step * SPACING_NS - 10]), [len(made_ns), STEPS])
    name = np.r_[np.arange(len(made_ns)) % per_step % OPERATORS, OPERATORS + np.arange(STEPS)]
    return replace(
        Events.blank(len(order)),
        category=category[order],
        name=name[order].astype(np.int32),
        start_ns=start[order],
        duration_ns=duration[order],
        thread=np.zeros(len(order), np.int32),
        names=[f"aten::op{i}" for i in range(OPERATORS)] + [f"ProfilerStep#{i}" for i in range(STEPS)],
        threads=[Thread("1", "1", "python")],
    )


def paired_in_python(trace: Trace) -> int:
    """Count the frees whose allocation was seen, in the plain loop that the analysis must beat."""
    memory, held, freed = trace.memory, {}, 0
    for number, (address, change) in enumerate(
        zip(memory.address.tolist(), memory.bytes.tolist(), strict=True)
    ):
        if change > 0:
            held[address] = number
        elif held.pop(address, None) is not None:
            freed += 1
    return freed


def analyzed(facts: Facts) -> DeviceMemory:
    """Compute everything about a device's memory that the Report contains."""
    (memory,) = facts.memory
    for part in ("peak", "floors", "trend", "sites", "reserve"):
        getattr(memory, part)
    return memory


def rows(count: int) -> Iterator[Row]:
    """Measure one row after the other. The others are compared with the first."""
    trace = recording(count)
    seconds, freed = _timed(lambda: paired_in_python(trace))
    yield Row("pairing alone, in Python", seconds, freed, 0.0)
    facts = Facts(trace)
    seconds, _ = _timed(lambda: (facts.host.activities, facts.step_times))
    yield Row("host threads (needed by all)", seconds, 0, 0.0)
    seconds, memory = _timed(lambda: analyzed(facts))
    assert memory.trend is not None
    yield Row("memory", seconds, int((memory.allocations.freed != NONE).sum()), memory.trend.per_unit)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    done = work()
    return time.perf_counter() - began, done


def table(found: list[Row]) -> str:
    """Format the rows."""
    base = found[0].seconds
    lines = [f"{'':32}{'time':>10} {'of the loop':>12}"]
    lines += [f"{row.name:32}{row.seconds:8.2f} s {row.seconds / base:10.1f} x" for row in found]
    return "\n".join(lines)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    print(f"{count:,} memory events")
    print(table(list(rows(count))))


if __name__ == "__main__":
    main()
