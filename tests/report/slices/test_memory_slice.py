"""Slices of memory: they agree with brute force over all events, at every zoom, and are bounded."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.memory_history import (
    NEVER_NS,
    Group,
    History,
    prepare_histories,
    prepare_memory,
)
from tb_gpudiag.report.slices.memory_slice import MOST_SITES, slice_memory
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.real_traces import first_in
from tests.with_each import with_each

GROUPS = [Group("aten::empty", "train.py", 12, "step"), Group("aten::zeros"), Group("", "loss.py", 3, "add")]
NO_STEPS = Steps([], np.zeros(0, np.int64), np.zeros(0, np.int64))
END_NS = 2_000

REAL_TRACES = ("v100_ddp_memory", "a100_particle_transformer", "h100_owlv2", "cpu_torch213/leaky")


class Piece(NamedTuple):
    """One allocation. None: allocated before the recording, or not freed in it."""

    made_ns: int | None
    freed_ns: int | None
    bytes: int
    group: int = 0


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    found = []
    for _ in range(draw(st.integers(1, 60))):
        made = draw(st.integers(0, END_NS))
        freed = draw(st.none() | st.integers(made, END_NS))
        before = freed is not None and draw(st.booleans())
        found.append(
            Piece(None if before else made, freed, draw(st.integers(0, 1000)), draw(st.integers(0, 2)))
        )
    return found


def events_of(some: list[Piece]) -> list[tuple[int, int]]:
    """(time, bytes) of allocations and frees in time order, allocations first where times are equal."""
    made = [(piece.made_ns, 0, piece.bytes) for piece in some if piece.made_ns is not None]
    freed = [(piece.freed_ns, 1, -piece.bytes) for piece in some if piece.freed_ns is not None]
    return [(time, size) for time, _, size in sorted([*made, *freed])]


def start_bytes(some: list[Piece]) -> int:
    return sum(piece.bytes for piece in some if piece.made_ns is None)


def history_of(some: list[Piece], device: int = 0, *, reserved: bool = True) -> History:
    events = events_of(some)
    time = np.array([time for time, _ in events], np.int64)
    allocated = start_bytes(some) + np.cumsum([size for _, size in events], dtype=np.int64)
    made = sorted((p for p in some if p.made_ns is not None), key=lambda p: p.made_ns or 0)
    free = sorted((p.freed_ns, p.bytes) for p in some if p.freed_ns is not None)
    return History(
        device=device,
        time_ns=time,
        allocated=allocated,
        reserved=np.maximum.accumulate(allocated) if reserved else np.zeros(0, np.int64),
        start_bytes=start_bytes(some),
        made_ns=np.array([p.made_ns for p in made], np.int64),
        bytes=np.array([p.bytes for p in made], np.int64),
        freed_ns=np.array([NEVER_NS if p.freed_ns is None else p.freed_ns for p in made], np.int64),
        group=np.array([p.group for p in made], np.int64),
        kind=np.zeros(len(made), np.uint8),
        free_ns=np.array([time for time, _ in free], np.int64),
        free_bytes=np.array([size for _, size in free], np.int64),
    )


def prepared(*histories: History, groups: list[Group] = GROUPS, steps: Steps = NO_STEPS) -> Prepared:
    return prepare_histories(histories, groups, steps, 0, END_NS)


def values_in(some: list[Piece], start: int, end: int) -> list[int]:
    """Every value of the curve in [start, end]. The curve begins with the recording."""
    events = events_of(some)
    values = start_bytes(some) + np.cumsum([0, *(size for _, size in events)])
    points = list(zip([0, *(time for time, _ in events)], values.tolist(), strict=True))
    inside = [value for time, value in points if start <= time <= end]
    if any(time == start for time, _ in points):
        return inside
    return [value for time, value in points if time < start][-1:] + inside


def before(some: list[Piece], time: int) -> int:
    return start_bytes(some) + sum(size for at, size in events_of(some) if at < time)


ranges = st.tuples(st.integers(0, END_NS), st.integers(0, END_NS)).map(sorted)


@pytest.mark.slow
@given(pieces(), ranges, st.integers(1, 80))
def test_a_slice_has_the_extremes_of_its_range(some: list[Piece], span: list[int], width: int) -> None:
    start, end = span
    found = slice_memory(prepared(history_of(some)), 0, start / 1000, end / 1000, width)
    values = values_in(some, start, end)
    assert (min(found.allocated.low), max(found.allocated.high)) == (min(values), max(values))
    assert found.allocated.time_us[0] == start / 1000
    assert len(found.allocated.time_us) <= 2 * width
    if found.exact:
        assert list(found.allocated.low) == list(found.allocated.high)
        assert list(found.allocated.low) == values
    for curve in (found.allocated, found.reserved):
        assert list(curve.time_us) == sorted(curve.time_us)
    assert from_json(to_json(found), pb.MemorySlice) == found


@pytest.mark.slow
@given(pieces(), ranges)
def test_allocated_freed_survived_and_kept_bytes_agree_with_counting(
    some: list[Piece], span: list[int]
) -> None:
    start, end = span
    found = slice_memory(prepared(history_of(some)), 0, start / 1000, end / 1000, 10)
    made, freed, alive, kept = counted(some, start, end)
    assert (found.allocations, found.allocated_bytes) == (len(made), total(made))
    assert (found.frees, found.freed_bytes) == (len(freed), total(freed))
    assert (found.survivors, found.survived_bytes) == (len(alive), total(alive))
    assert found.kept_bytes == total(kept)
    # The curve rises by what was allocated and falls by what was freed.
    gained = before(some, end + 1) - before(some, start)
    assert found.allocated_bytes - found.freed_bytes == gained


@pytest.mark.slow
@given(pieces(), ranges)
def test_sites_agree_with_counting_and_are_sorted(some: list[Piece], span: list[int]) -> None:
    start, end = span
    found = slice_memory(prepared(history_of(some)), 0, start / 1000, end / 1000, 10)
    made, _, alive, kept = counted(some, start, end)
    wanted = {
        GROUPS[number]: (len(own(made, number)), *(total(own(part, number)) for part in (made, alive, kept)))
        for number in {piece.group for piece in made}
    }
    assert wanted == {
        Group(site.operator, site.place.file, site.place.line, site.place.function): (
            *(site.allocations, site.allocated_bytes, site.survived_bytes, site.kept_bytes),
        )
        for site in found.sites
    }
    order = [(-site.survived_bytes, -site.allocated_bytes) for site in found.sites]
    assert order == sorted(order)


def counted(
    some: list[Piece], start: int, end: int
) -> tuple[list[Piece], list[Piece], list[Piece], list[Piece]]:
    """Pieces allocated in [start, end]; pieces freed in it; of the allocated ones, those that are live at its
    end; and those that are never freed."""
    made = [p for p in some if p.made_ns is not None and start <= p.made_ns <= end]
    freed = [p for p in some if p.freed_ns is not None and start <= p.freed_ns <= end]
    kept = [p for p in made if p.freed_ns is None]
    return made, freed, kept + [p for p in made if p.freed_ns is not None and p.freed_ns > end], kept


def total(some: list[Piece]) -> int:
    return sum(piece.bytes for piece in some)


def own(some: list[Piece], group: int) -> list[Piece]:
    return [piece for piece in some if piece.group == group]


def test_the_whole_recording_is_shown_by_default() -> None:
    some = [Piece(0, None, 5), Piece(END_NS, None, 7)]
    found = slice_memory(prepared(history_of(some)), None, None, None, 100)
    assert (found.start_us, found.end_us) == (0, END_NS / 1000)
    assert (found.trace_start_us, found.trace_end_us) == (0, END_NS / 1000)
    assert found.allocated_bytes == found.kept_bytes == 12
    assert list(found.allocated.high) == [0, 5, 12]


def test_devices_are_kept_apart() -> None:
    first, cpu = [Piece(10, None, 5)], [Piece(20, 30, 7), Piece(40, None, 11, 1)]
    arrays = prepared(history_of(first, 3), history_of(cpu, -1, reserved=False))
    found = {device: slice_memory(arrays, device, None, None, 100) for device in (3, -1)}
    assert [found[3].device, found[3].allocated_bytes, found[3].freed_bytes] == [3, 5, 0]
    assert [found[-1].device, found[-1].allocated_bytes, found[-1].freed_bytes] == [-1, 18, 7]
    assert list(found[-1].allocated.low) == [0, 7, 0, 11]
    assert list(found[3].reserved.low) == [5]
    assert not found[-1].reserved.time_us
    assert slice_memory(arrays, None, None, None, 100).device == 3
    with pytest.raises(UsageError, match="no memory of this device"):
        slice_memory(arrays, 0, None, None, 100)
    with pytest.raises(UsageError):
        slice_memory(prepared(), None, None, None, 100)


def test_if_frees_do_not_name_their_allocation_survivors_are_unknown() -> None:
    history = replace(history_of([Piece(10, 20, 5), Piece(30, None, 7)]), freed_ns=None)
    found = slice_memory(prepared(history), None, None, None, 100)
    assert (found.allocated_bytes, found.freed_bytes) == (12, 5)
    assert (found.survived_bytes, found.kept_bytes) == (-1, -1)
    assert {(site.survived_bytes, site.kept_bytes) for site in found.sites} == {(-1, -1)}


def test_steps_in_the_range_are_marked() -> None:
    steps = Steps(["first", "<b>second</b>"], np.array([0, 1000]), np.array([1000, 2000]))
    arrays = prepared(history_of([Piece(0, None, 1)]), steps=steps)
    found = slice_memory(arrays, None, 1.5, 2.0, 100)
    assert [(step.name, step.start_us, step.end_us) for step in found.steps] == [("<b>second</b>", 1, 2)]


@with_each(("start_us", "end_us"), [(-1e300, 1e300), (50.0, 60.0), (-9.0, -8.0), (1.0, 1.0)])
def test_ranges_outside_the_recording_are_valid(start_us: float, end_us: float) -> None:
    arrays = prepared(history_of([Piece(10, 20, 5)]))
    found = slice_memory(arrays, None, start_us, end_us, 8)
    assert from_json(to_json(found), pb.MemorySlice) == found
    assert found.allocations == (1 if start_us < 0.01 and end_us > 0.02 else 0)


def keeping() -> TraceBuilder:
    """Two steps. Each keeps 1,000 bytes allocated in `cache` and frees 500 bytes of aten::mm."""
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(2):
        at = 100.0 * step
        main.step(step, at=at, us=100)
        main.frame("train.py(12): cache", at=at + 1, us=30)
        main.op("aten::zeros", at=at + 10, us=10).alloc(1000, at=at + 15, address=4096 + step)
        main.op("aten::mm", at=at + 50, us=40).alloc(500, at=at + 55, address=8192)
        main.free(8192, at=at + 80)
    return trace


def test_sites_of_a_trace_name_who_keeps_memory(tmp_path: Path) -> None:
    facts = Facts(read_trace(str(keeping().write(tmp_path))))
    found = slice_memory(prepare_memory(facts), 0, 100, 200, 100)
    assert [step.name for step in found.steps] == ["ProfilerStep#1"]
    assert [(s.operator, s.place.line, s.allocated_bytes, s.kept_bytes) for s in found.sites] == [
        ("aten::zeros", 12, 1000, 1000),
        ("aten::mm", 0, 500, 0),
    ]
    assert (found.allocated_bytes, found.freed_bytes, found.survived_bytes) == (1500, 500, 1000)


def test_a_trace_without_memory_can_be_prepared(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=10)
    with pytest.raises(UsageError):
        slice_memory(prepare_memory(Facts(read_trace(str(trace.write(tmp_path))))), None, None, None, 9)


@pytest.mark.parametrize("name", REAL_TRACES)
def test_on_real_traces_a_slice_agrees_with_counting_over_all_events(name: str, shared_traces: Path) -> None:
    facts = first_in(name)
    arrays = prepare_memory(facts)
    assert facts.memory
    for memory in facts.memory:
        time, value = memory.curve.time_ns, memory.curve.allocated
        edges = np.linspace(facts.recording.start_ns, facts.recording.end_ns, 8, dtype=np.int64)
        for low, high in [(edges[0], edges[-1]), *pairwise(edges)]:
            inside = np.flatnonzero((time >= low) & (time <= high))
            first = int(np.searchsorted(time, low))
            values = np.r_[memory.curve.before(np.array([first])), value[inside]]
            if first < len(time) and time[first] == low:
                values = values[1:]
            for width in (7, 2000):
                found = slice_memory(arrays, memory.device, low / 1000, high / 1000, width)
                assert (min(found.allocated.low), max(found.allocated.high)) == (values.min(), values.max())
                assert len(found.allocated.time_us) <= 2 * width
                assert len(found.sites) <= MOST_SITES
            own = memory.allocations
            made = (own.time_ns >= low) & (own.time_ns <= high)
            alive = made & ((own.freed_ns == NONE) | (own.freed_ns > high))
            assert found.allocated_bytes == own.bytes[made].sum()
            assert found.survived_bytes == (own.bytes[alive].sum() if own.paired else NONE)


def test_lists_are_bounded_and_names_are_cut() -> None:
    count = 5_000
    groups = [Group(f"op{number}" + "x" * 10_000, "f.py", number, "f") for number in range(count)]
    some = [Piece(number % END_NS, None, number, number) for number in range(count)]
    found = slice_memory(prepared(history_of(some), groups=groups), None, None, None, 8)
    assert len(found.sites) == MOST_SITES
    assert [site.place.line for site in found.sites] == list(range(count - 1, count - 1 - MOST_SITES, -1))
    assert max(len(site.operator) for site in found.sites) <= 300
    assert len(found.allocated.time_us) <= 16
