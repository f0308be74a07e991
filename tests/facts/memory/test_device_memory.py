"""Memory by device: totals, bounds, generations of the format, and the reserve."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.memory.device_memory import MOST_GPUS
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.reserve import Reserve
from tests.builder import Generation, TraceBuilder
from tests.facts import facts_of
from tests.facts.memory.training import STEP_US, only, training
from tests.with_each import with_each


def test_peaks_are_per_device_and_the_cpu_comes_last() -> None:
    trace = TraceBuilder(devices=("a", "b"), device_bytes=1000)
    main = trace.thread()
    main.alloc(50, at=0.5, device=1, reserved=64)
    first = main.alloc(300, at=1, reserved=512)
    main.alloc(200, at=2, reserved=640)
    main.free(first, at=3)
    main.alloc(10_000, at=5, device=None)
    found = [
        (m.name, m.device, m.peak_allocated_bytes, m.peak_reserved_bytes, m.capacity_bytes)
        for m in facts_of(trace).memory
    ]
    assert found == [("GPU 0", 0, 500, 640, 1000), ("GPU 1", 1, 50, 64, 1000), ("CPU", -1, 10_000, 0, 0)]


def test_the_number_of_devices_is_bounded() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for device in range(MOST_GPUS + 10):
        main.alloc(512, at=device, device=device)
    main.alloc(512, at=1_000, device=MOST_GPUS + 9)
    devices = [memory.device for memory in facts_of(trace).memory]
    assert len(devices) == MOST_GPUS
    assert devices[0] == MOST_GPUS + 9


def test_without_memory_events_there_is_no_memory() -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=5)
    assert facts_of(trace).memory == []


@pytest.mark.parametrize("as_spans", [False, True])
def test_memory_events_may_be_spans(as_spans: bool) -> None:
    trace = TraceBuilder(memory_as_spans=as_spans)
    main = trace.thread()
    main.free(main.alloc(512, at=1), at=2)
    memory = only(trace)
    assert memory.curve.allocated.tolist() == [512, 0]
    assert memory.allocations.freed_ns.tolist() == [memory.curve.time_ns[1]]


def test_an_old_trace_has_no_totals_and_no_addresses() -> None:
    trace = TraceBuilder("A")
    main = trace.thread()
    main.op("aten::mm", at=0, us=10)
    early = main.alloc(4096, at=-5)
    kept = main.alloc(512, at=1)
    trace.recording.memory.pop(0)  # from before the recording
    main.free(early, at=3)
    main.free(kept, at=4)
    memory = only(trace)
    assert memory.curve.relative
    assert memory.curve.start_bytes == 4096  # freed, so it had been allocated before
    assert memory.curve.allocated.tolist() == [4608, 512, 0]
    assert not memory.allocations.paired
    assert memory.peak.kinds == {MemoryKind.UNKNOWN: 4608}
    assert memory.sites == []


@with_each("generation", ["B", "C1", "C2"])
def test_every_generation_with_totals_has_the_same_peak(generation: Generation) -> None:
    trace = TraceBuilder(generation)
    training(trace)
    memory = only(trace)
    assert memory.peak.allocated_bytes == 2120
    assert not memory.curve.relative


def test_the_reserve_counts_growths_and_shrinks() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(3):
        main.step(step, at=STEP_US * step, us=STEP_US)
    first = main.alloc(500, at=10, reserved=2000)
    main.alloc(300, at=20, reserved=4000)
    main.free(first, at=30)
    main.alloc(100, at=STEP_US + 10, reserved=3000)
    main.alloc(100, at=STEP_US + 20, reserved=5000)
    reserve = only(trace).reserve
    assert reserve.known
    assert (reserve.unused_at_peak_bytes, reserve.most_unused_bytes) == (4000 - 800, 5000 - 500)
    assert (reserve.growths, reserve.shrinks) == (2, 1)
    assert (reserve.steady_growths, reserve.steady_shrinks) == (1, 1)


def emptied(*, frees_at: float, left: int, device: int = 0) -> Reserve:
    """cudaFree, then an allocation of 400 for which the driver is asked, in an operator from 20 to 100 µs.
    left: reserved after that, 1,000 before."""
    trace = TraceBuilder()
    main = trace.thread()
    main.alloc(300, at=5, reserved=1000)
    main.op("aten::mm", at=20, us=80)
    main.call("cudaFree", at=frees_at, us=5)
    main.call("cudaMalloc", at=50, us=5).alloc(400, at=60, reserved=left, device=device)
    main.alloc(100, at=150, reserved=left)
    return facts_of(trace).memory[0].reserve


@with_each(
    ("left", "retries"),
    [
        (900, 1),  # reserved memory falls
        (1200, 1),  # it rises by less than the allocation takes
        (1400, 0),  # nothing was returned: a library freed memory of its own
        (1000, 0),  # the allocation found room in the cache
    ],
)
def test_a_retry_returns_reserved_memory_within_one_operator(left: int, retries: int) -> None:
    reserve = emptied(frees_at=30, left=left)
    assert (reserve.retries, reserve.emptied, reserve.returning_ns) == (retries, 0, 5_000 * retries)


def test_outside_of_an_allocation_the_cache_was_emptied() -> None:
    reserve = emptied(frees_at=10, left=900)
    assert (reserve.retries, reserve.emptied, reserve.returning_ns) == (0, 1, 5_000)


def test_a_call_before_another_gpus_event_may_be_for_that_gpu() -> None:
    assert emptied(frees_at=30, left=900, device=1).retries == 0
