"""A file may name any number of devices. Those that a process can have are read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.trace.times import MOST_DEVICES
from tests.builder import SnapshotBuilder
from tests.trace.support import document, read_bytes, span


def kernel(device: int, ts: int) -> dict[str, Any]:
    return span("k", ts, cat="kernel", pid=device, tid=7, args={"device": device, "stream": 7})


def test_the_devices_with_most_events_are_read() -> None:
    few = [kernel(device, device) for device in range(1000)]
    busy = [kernel(999, 2000 + i) for i in range(5)]
    trace = read_bytes(document(*few, *busy, span("host", 1)))
    devices = set(trace.events.device.tolist())
    assert len(devices - {-1}) == MOST_DEVICES
    assert 999 in devices
    assert (trace.events.device == 999).sum() == 6
    assert [trace.events.names[i] for i in trace.events.name[trace.events.device == -1]] == ["host"]
    assert any(f"events of {1000 - MOST_DEVICES} devices skipped" in note for note in trace.notes)


def test_as_many_devices_as_a_process_can_have_are_all_read() -> None:
    trace = read_bytes(document(*(kernel(device, device) for device in range(MOST_DEVICES)), span("host", 1)))
    assert len(set(trace.events.device.tolist())) == MOST_DEVICES + 1
    assert trace.notes == []


def test_memory_of_too_many_devices_is_skipped() -> None:
    events = [
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": i, "args": {"Bytes": 1, "Device Id": i}}
        for i in range(100)
    ]
    trace = read_bytes(document(*events))
    assert len(set(trace.memory.device.tolist())) == MOST_DEVICES
    assert any(f"events of {100 - MOST_DEVICES} devices skipped" in note for note in trace.notes)


def test_histories_of_too_many_devices_are_skipped(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 21)
    snapshot.allocate(512, at=1)
    document = snapshot.document()
    entries = document["device_traces"][0]
    document["device_traces"] = [[dict(entry) for entry in entries] for _ in range(100)]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document))
    trace = read_trace(str(path))
    assert len(set(trace.memory.device.tolist())) <= MOST_DEVICES
    assert any("history of" in note for note in trace.notes)
