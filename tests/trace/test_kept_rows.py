"""Events far from all others are not part of the recording."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.trace.trace_parts import LONGEST_NAME
from tests.builder import SnapshotBuilder
from tests.trace.support import document, memory_rows, names, read_bytes, span
from tests.with_each import with_each

NOW_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000


def memory(ts: int) -> dict[str, Any]:
    return {"ph": "i", "name": "[memory]", "pid": 7, "tid": 8, "ts": ts, "args": {"Bytes": 512}}


@with_each("stray_us", [0, NOW_US - 25 * HOUR_US, NOW_US + 25 * HOUR_US, 3 * 10**15])
def test_a_stray_event_is_malformed_and_the_rest_is_kept(stray_us: int) -> None:
    events = [span(f"good{i}", NOW_US + i) for i in range(4)]
    trace = read_bytes(document(span("stray", stray_us), memory(stray_us), *events, memory(NOW_US + 2)))
    assert names(trace) == [f"good{i}" for i in range(4)]
    assert [row[0] for row in memory_rows(trace)] == [(NOW_US + 2) * 1000]
    assert (trace.events_read, trace.malformed_events) == (5, 2)
    assert (trace.start_ns, trace.events.end_ns.max()) == (NOW_US * 1000, 4000)
    assert "2 events of these with a timestamp far from all others" in trace.notes


def test_a_stray_span_without_a_usable_duration_is_counted_once() -> None:
    events = [*(span(f"good{i}", NOW_US + i) for i in range(4)), span("short", NOW_US + 1, -5)]
    trace = read_bytes(document(span("stray", 0, -5), *events))
    assert sorted(names(trace)) == [*(f"good{i}" for i in range(4)), "short"]
    assert (trace.events_read, trace.malformed_events) == (4, 2)
    assert "1 span without a usable duration read as 0 ns long" in trace.notes


def test_a_stray_begin_or_end_takes_no_other_event_with_it() -> None:
    begin, end = ({"ph": phase, "cat": "cpu_op", "name": "b", "pid": 7, "tid": 8} for phase in "BE")
    events = [{**begin, "ts": 0}, {**begin, "ts": NOW_US}, {**end, "ts": NOW_US + 5}, span("x", NOW_US)]
    trace = read_bytes(document(*events))
    assert names(trace) == ["b", "x"]
    assert trace.events.duration_ns.tolist() == [5000, 1000]
    assert trace.malformed_events == 1


@with_each("key", ["Bytes", "Total Allocated", "Total Reserved"])
@with_each("size", [2**62, -(2**62), 2**63 - 1, 2**50 + 1])
def test_memory_that_no_machine_has_is_malformed(key: str, size: int) -> None:
    event = memory(NOW_US)
    impossible = {**event, "args": {**event["args"], key: size}}
    trace = read_bytes(document(event, impossible, {**event, "args": {**event["args"], key: 2**50}}))
    assert (len(trace.memory), trace.malformed_events) == (2, 1)
    assert "1 malformed event skipped" in trace.notes


@pytest.mark.slow
def test_names_of_megabytes_are_cut() -> None:
    long = "a.py(1): " * 200_000
    events = [span(f"{i}{long}", NOW_US, pid="9" * 9_000, tid=long) for i in range(3)]
    kernel = span("k" * 5_160, NOW_US, cat="kernel", pid="9" * 9_000, tid="8" * 9_000)
    trace = read_bytes(document(*events, kernel))
    assert [len(name) for name in trace.events.names] == [LONGEST_NAME] * 3 + [5_160]
    assert max(len(thread.tid) for thread in trace.events.threads) == LONGEST_NAME
    assert (trace.events.device[-1], trace.events.stream[-1]) == (NONE, NONE)


@with_each("hours", [1, 23, 24 * 10])
def test_a_long_recording_keeps_all_its_events(hours: int) -> None:
    events = [span(f"e{i}", NOW_US + i * hours * HOUR_US // 40) for i in range(41)]
    trace = read_bytes(document(*events))
    assert (len(trace.events), trace.malformed_events) == (41, 0)


def test_a_burst_in_a_recording_of_a_day_keeps_what_is_around_it() -> None:
    burst = [span("burst", NOW_US + i) for i in range(50)]
    trace = read_bytes(document(span("first", NOW_US - 12 * HOUR_US), *burst, span("last", NOW_US + HOUR_US)))
    assert (len(trace.events), trace.malformed_events) == (52, 0)


def snapshot_with(time_us: int, row: int, folder: Path) -> Trace:
    """Read a snapshot of eight allocations, a microsecond apart, one of which has another time."""
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 21)
    for _ in range(8):
        snapshot.allocate(512, at=1)
    document = snapshot.document()
    entries = [entry for entry in document["device_traces"][0] if entry["action"] == "alloc"]
    document["device_traces"][0] = entries
    for number, entry in enumerate(entries):
        entry["time_us"] = NOW_US + number if number != row else time_us
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document))
    return read_trace(str(path))


@with_each("stray_us", [0, NOW_US - 25 * HOUR_US, NOW_US + 25 * HOUR_US, 3 * 10**15])
@with_each("row", [0, 3, 7])
def test_a_stray_entry_of_a_snapshot_keeps_its_bytes_and_gets_a_time(
    tmp_path: Path, stray_us: int, row: int
) -> None:
    trace = snapshot_with(stray_us, row, tmp_path)
    before = max(0, row - 1)
    begin = 1 if row == 0 else 0
    times = [number if number != row else max(before, begin) for number in range(8)]
    assert trace.start_ns == (NOW_US + begin) * 1000
    assert trace.memory.time_ns.tolist() == [(time - begin) * 1000 for time in times]
    assert trace.memory.bytes.tolist() == [512] * 8
    assert any("one timestamp far from all others" in note for note in trace.notes)


@with_each("stray_ns", [0, (NOW_US + 25 * HOUR_US) * 1000])
@with_each("row", [0, 2, 4])
def test_a_stray_entry_of_a_memory_timeline_keeps_its_bytes_and_gets_a_time(
    tmp_path: Path, stray_ns: int, row: int
) -> None:
    events = [[NOW_US * 1000 + i if i != row else stray_ns, 2, 512, 0] for i in range(5)]
    path = tmp_path / "m.raw.json.gz"
    path.write_bytes(gzip.compress(json.dumps(events).encode()))
    trace = read_trace(str(path))
    assert int(trace.memory.time_ns.max()) <= 4
    assert trace.memory.allocated.tolist() == [512 * (i + 1) for i in range(5)]
    assert any("one timestamp far from all others" in note for note in trace.notes)


@pytest.mark.parametrize("stray_us", [0, NOW_US + 25 * HOUR_US])
def test_a_stray_sum_of_a_memory_timeline_gets_a_time(tmp_path: Path, stray_us: int) -> None:
    times = [NOW_US, NOW_US + 1, stray_us, NOW_US + 3]
    sums = [[0, 512 * (i + 1), *[0] * 7] for i in range(4)]
    path = tmp_path / "memory_timeline.json"
    path.write_text(json.dumps([times, sums]))
    trace = read_trace(str(path))
    assert (trace.start_ns, int(trace.memory.time_ns.max())) == (NOW_US * 1000, 3000)
