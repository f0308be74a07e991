"""Peaks of the caching allocator."""

from __future__ import annotations

from tests.builder import TraceBuilder
from tests.facts import facts_of


def test_peaks_are_per_device_and_the_cpu_is_none() -> None:
    trace = TraceBuilder(devices=("a", "b"), device_bytes=1000)
    main = trace.thread()
    first = main.alloc(300, at=1, reserved=512)
    main.alloc(200, at=2, reserved=640)
    main.free(first, at=3)
    main.alloc(50, at=4, device=1, reserved=64)
    main.alloc(10_000, at=5, device=None)
    found = [
        (m.device, m.peak_allocated_bytes, m.peak_reserved_bytes, m.capacity_bytes)
        for m in facts_of(trace).memory
    ]
    assert found == [(0, 500, 640, 1000), (1, 50, 64, 1000)]


def test_without_memory_events_there_is_nothing_to_say() -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=5)
    assert facts_of(trace).memory == []
