"""Reports of files that are about memory only: snapshots and memory timelines."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.memory_slice import slice_memory
from tb_gpudiag.report.slices.timeline import prepare_timeline, slice_timeline
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.format import size_bytes
from tests.builder import SnapshotBuilder
from tests.report.views.formats import FORMATS, one_space, words_in
from tests.some_values import slow
from tests.wording.plain import plain

MB = 1 << 20
ABOUT_MEMORY = {"GD401", "GD402", "GD403", "GD405", "GD906"}


def report_of(folder: Path) -> pb.Report:
    (file,) = find_traces(str(folder)).files
    return build_report(Facts(read_trace(file.path)), file)


def training(steps: int = 8) -> SnapshotBuilder:
    """Each step frees an activation and keeps a result."""
    snapshot = SnapshotBuilder()
    snapshot.segment(40 * MB)
    snapshot.allocate(3 * MB, at=1, stack=["train.py(3): main", "model.py(7): __init__"])
    for step in range(steps):
        at = 1_000 * (step + 1)
        snapshot.step(step, at=at, us=1_000)
        activation = snapshot.allocate(
            2 * MB, at=at + 10, stack=["train.py(9): main", "model.py(20): forward"]
        )
        snapshot.allocate(MB, at=at + 20, stack=["train.py(9): main", "train.py(12): keep"])
        snapshot.free(activation, at=at + 500)
    return snapshot


def rules_of(report: pb.Report) -> set[str]:
    return {
        answer.rule for answers in (report.findings, report.clear, report.unchecked) for answer in answers
    }


def test_only_memory_rules_run_on_a_snapshot(tmp_path: Path) -> None:
    training().write(tmp_path)
    report = report_of(tmp_path)
    assert report.trace.kind == pb.TraceInfo.snapshot
    assert {"GD401", "GD403", "GD906"} <= rules_of(report) <= ABOUT_MEMORY
    assert report.trace.recorded.stacks
    assert not report.devices
    assert not report.tables
    assert [step.name for step in report.steps] == [f"ProfilerStep#{i}" for i in range(8)]


def test_the_recording_of_a_snapshot_spans_its_history_and_its_marks(tmp_path: Path) -> None:
    snapshot = training(steps=2)  # from 1,000 to 3,000 µs
    snapshot.allocate(MB, at=9_000)
    snapshot.write(tmp_path)
    report = report_of(tmp_path)
    assert report.trace.duration_us == 9_000
    prepared = prepare_memory(Facts(read_trace(report.trace.path)))
    whole = slice_memory(prepared, 0, None, None, 1_000)
    assert (whole.start_us, whole.end_us) == (0, 9_000)
    assert whole.allocations == 6


def test_the_verdict_on_a_snapshot_names_its_peak_and_no_limiter(tmp_path: Path) -> None:
    training().write(tmp_path)
    verdict = report_of(tmp_path).verdict
    assert verdict.limiter == pb.Verdict.unknown
    assert "memory snapshot" in verdict.sentence
    assert "13 MiB" in plain(verdict.sentence)  # the weights, eight results and the last activation
    assert "40 MiB" in plain(verdict.sentence)


def test_every_format_of_a_snapshot_is_about_memory(tmp_path: Path) -> None:
    training().write(tmp_path)
    report = report_of(tmp_path)
    for format in FORMATS:
        shown = words_in(format, report)
        assert re.search(r"Memory leak on GPU 0: \S+ MiB per step; look first", shown)
        assert "Cannot tell" not in shown
        assert "Growing allocations" in shown
        assert "Allocated by" not in shown  # no operator is known here


def test_a_job_that_ran_out_of_memory_is_limited_by_it(tmp_path: Path) -> None:
    snapshot = training()
    snapshot.out_of_memory(1 << 40, at=20_000, device_free=0)
    snapshot.write(tmp_path)
    verdict = report_of(tmp_path).verdict
    assert verdict.limiter == pb.Verdict.memory
    assert "ran out of memory" in verdict.sentence


@pytest.mark.parametrize("entries", [0, *slow(1, 7), 1_000])
@pytest.mark.parametrize("marked", [True, False])
def test_every_format_shows_any_snapshot(entries: int, marked: bool, tmp_path: Path) -> None:
    snapshot = training()
    snapshot.forget(entries)
    if not marked:
        snapshot.annotations.clear()
    snapshot.write(tmp_path)
    report = report_of(tmp_path)
    for format in FORMATS:
        assert "GPU 0" in words_in(format, report)
    timeline = slice_timeline(prepare_timeline(Facts(read_trace(report.trace.path))), None, None, 1_000)
    assert len(timeline.steps) == (8 if marked else 0)
    assert {lane.kind for lane in timeline.lanes} <= {pb.Timeline.thread}


def test_an_empty_snapshot_has_a_report(tmp_path: Path) -> None:
    SnapshotBuilder().write(tmp_path)
    report = report_of(tmp_path)
    assert report.verdict.limiter == pb.Verdict.unknown
    assert not report.memory
    assert words_in("text", report)


def test_a_memory_timeline_has_a_report(tmp_path: Path) -> None:
    events = [(-1, 1, 4 * MB, 0)]
    for i in range(50):
        events += [(10_000 * i + 1, 2, 2 * MB, 4), (10_000 * i + 5_000, 4, -2 * MB, 4)]
    (tmp_path / "rank0.raw.json.gz").write_bytes(gzip.compress(json.dumps(events).encode()))
    report = report_of(tmp_path)
    assert report.trace.kind == pb.TraceInfo.memory_timeline
    assert report.memory[0].peak_allocated_bytes == 6 * MB
    assert report.memory[0].peak_reserved_bytes == 0
    assert rules_of(report) <= ABOUT_MEMORY
    assert "6 MiB" in plain(report.verdict.sentence)
    for format in FORMATS:
        assert one_space(size_bytes(6 * MB)) in words_in(format, report)
