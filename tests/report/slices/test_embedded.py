from __future__ import annotations

import base64
import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.diagnosis import only_trace
from tb_gpudiag.report.slices import embedded as module
from tb_gpudiag.report.slices.embedded import embedded
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.operators.prepare_calls import prepare_calls
from tb_gpudiag.report.slices.timeline import prepare_timeline
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.report.reports import slow_loader

pytestmark = pytest.mark.slow  # each test makes traces of tens of thousands of events


@lru_cache(1)
def _facts(path: Path) -> Facts:
    return Facts(read_trace(str(path)))


def _embedded(path: Path) -> dict[str, Any]:
    file, facts = only_trace(str(path)), _facts(path)
    prepared = {**prepare_timeline(facts), **prepare_memory(facts), **prepare_calls(facts)}
    return embedded(build_report(facts, file), prepared, file.size_bytes, file.modified_ns)


def _unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def _short_kernels(count: int) -> TraceBuilder:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=20.0 * count)
    for i in range(count):
        uneven = i * 7919 % 1000 / 1000  # so that times do not compress to nothing
        main.launch("gemm", at=20.0 * i + uneven, us=1, runs_at=20.0 * i + 4 - uneven, runs_us=1 + uneven)
    return trace


KERNELS = 1_200
"""More than are boxes of their own in one slice."""


def _is_inside(part: dict[str, float], other: dict[str, float]) -> bool:
    length = part["end_us"] - part["start_us"], other["end_us"] - other["start_us"]
    middle = (part["start_us"] + part["end_us"]) / 2
    return length[0] < length[1] * 0.9 and other["start_us"] < middle < other["end_us"]


def test_answers_are_complete_for_a_small_trace(tmp_path: Path) -> None:
    path = slow_loader().write(tmp_path / "run")
    content = _embedded(path)
    (entry,) = content["traces"]["traces"]
    assert (entry["state"], entry["size_bytes"]) == ("ready", path.stat().st_size)
    report = _unpacked(content["report"])["report"]
    assert report["findings"][0]["rule"] == "GD101"
    assert _unpacked(content["rules"])["GD101"]["markdown"].startswith("#")
    (whole,) = content["timeline"]
    lanes = _unpacked(whole["answer"])["lanes"]
    assert all(count == 1 for lane in lanes for count in lane["box_count"])
    gaps = next(lane for lane in lanes if lane["kind"] == "gaps")
    operators = _unpacked(content["tables"]["operators"]["answers"]["operator/operator"])
    assert {row["name"] for row in operators["rows"]} == {"aten::to", "aten::mm"}
    assert _unpacked(content["tables"]["callTree"]["answers"]["host"])["state"] == "ready"
    assert set(_unpacked(content["gaps"])) == {f"0:{gap}" for gap in gaps["box_gap"]}


def test_events_have_room_or_a_part_of_the_recording_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _short_kernels(KERNELS).write(tmp_path)
    events = _embedded(path)["events"]
    assert (events["gpu"], events["host"]) == (None, None)
    everything = _unpacked(events["about"])
    assert sum(everything["rows"]) == 2 * KERNELS + 1
    size = _characters(events)
    monkeypatch.setattr(module, "EVENT_BYTES", size // 2)
    events = _embedded(path)["events"]
    assert _characters(events) <= size // 2
    parts = [part for part in (events["gpu"], events["host"]) if part is not None]
    assert parts
    assert all(0 < part["end_us"] < 20 * KERNELS for part in parts)
    fewer = _unpacked(events["about"])
    assert 0 < sum(fewer["rows"]) < sum(everything["rows"])
    monkeypatch.setattr(module, "EVENT_BYTES", 0)
    assert sum(_unpacked(_embedded(path)["events"]["about"])["rows"]) == 0


def _characters(events: dict[str, Any]) -> int:
    return len(events["about"]) + sum(len(column) for column in events["columns"].values())


def test_merged_events_are_in_finer_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENT_BYTES", 0)
    content = _embedded(_short_kernels(KERNELS).write(tmp_path))
    slices = content["timeline"]
    assert len(slices) > 1
    leaves = [part for part in slices if not any(_is_inside(other, part) for other in slices)]
    kernels = 0
    for part in leaves:
        (lane,) = (lane for lane in _unpacked(part["answer"])["lanes"] if lane["kind"] == "stream")
        assert set(lane["box_count"]) <= {1}
        kernels += sum(part["start_us"] <= start < part["end_us"] for start in lane["box_start_us"])
    assert kernels == KERNELS


def test_without_room_detail_is_left_out_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVENT_BYTES", 0)
    monkeypatch.setattr(module, "TIMELINE_BYTES", 100)
    content = _embedded(_short_kernels(KERNELS).write(tmp_path))
    assert len(content["timeline"]) == 1
    assert "no room" in _unpacked(content["report"])["report"]["trace"]["notes"][-1]


def test_a_memory_snapshot_has_its_curve_and_no_timeline(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(2 << 20, at=0)
    snapshot.allocate(1024, at=1, stack=["train.py(9): forward"])
    content = _embedded(snapshot.write(tmp_path))
    assert content["timeline"] == []
    assert _unpacked(content["memory"]["0"])["exact"]
    assert _unpacked(content["bands"]["0"])["band_bytes"] == [1024]
