"""Parts of the analysis process. test_analysis_queue.py tests it as a whole."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.digest.digest_files import from_bytes
from tb_gpudiag.errors import ProcessFailed
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.analyses.task import DigestSource, EntryContent, RecordSource, Task, save
from tb_gpudiag.service.analyses.worker import analyze
from tb_gpudiag.service.caches.cache import Cache
from tb_gpudiag.service.caches.cache_entry import create_private, read_entry
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.service.helpers import trace_file

RESULT = EntryContent(b"report", {"x": np.arange(3)}, {})


def task(path: Path, *drafts: Path) -> Task:
    return Task(trace_file(path), drafts=tuple(map(str, drafts)))


def analyzed(task: Task, progress: Callable[[float, str], None] = lambda share, stage: None) -> Path:
    """Do the task as an analysis process does, in this one."""
    return save(analyze(task, progress), task.drafts)


def test_an_analysis_saves_report_timeline_and_memory(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=500).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    stages: list[tuple[float, str]] = []
    where = analyzed(
        task(trace.write(tmp_path), tmp_path / "draft"), lambda share, stage: stages.append((share, stage))
    )
    entry = read_entry(where)
    assert entry is not None
    state = from_json(gzip.decompress(entry.report_gz()).decode(), pb.ReportState)
    assert (state.state, state.progress) == (pb.ReportState.ready, 1.0)
    assert (state.report.trace.run, state.report.trace.worker, state.report.trace.span) == ("run", "w", "1")
    row = from_json(entry.summary["row"], pb.RunRow)
    assert entry.summary["limiter"] == pb.Verdict.Limiter.Name(row.limiter)
    assert entry.summary["sentence"] == row.sentence
    assert (row.limiter, row.sentence) == (state.report.verdict.limiter, state.report.verdict.sentence)
    assert from_bytes(entry.content("digest")).findings[0].rule == state.report.findings[0].rule
    assert {"level_key", "memory_made_ns"} <= set(entry.arrays())
    shares = [share for share, _ in stages]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] < 1


def test_a_memory_snapshot_is_analyzed_too(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 21)
    snapshot.allocate(1 << 20, at=1)
    entry = read_entry(analyzed(task(snapshot.write(tmp_path), tmp_path / "draft")))
    assert entry is not None
    state = from_json(gzip.decompress(entry.report_gz()).decode(), pb.ReportState)
    assert (state.report.trace.kind, state.report.memory[0].peak_allocated_bytes) == (
        pb.TraceInfo.snapshot,
        1 << 20,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_when_a_disk_fills_up_the_next_draft_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    first, second = cache.drafts()

    def full(path: Path) -> int:
        if path == first:
            path.touch()
            return os.open("/dev/full", os.O_WRONLY)
        return create_private(path)

    monkeypatch.setattr("tb_gpudiag.service.caches.cache_entry.create_private", full)
    assert save(RESULT, (str(first), str(second))) == second
    assert not first.exists()
    assert cache.commit(second, "k") is not None
    assert "GPUDIAG_CACHE_DIR" in cache.note
    cache.discard(second)
    with pytest.raises(ProcessFailed, match="No space left on device"):
        save(RESULT, (str(first),))


def test_a_task_survives_a_round_trip(tmp_path: Path) -> None:
    path = TraceBuilder().write(tmp_path)
    sides = ((DigestSource("a", "/a"),), (DigestSource("b", "/b"), DigestSource("c", "/\udcff")))
    given = replace(
        task(path, tmp_path / "é"), kind="compare", sides=sides, records=(RecordSource("r", 7, "="),)
    )
    assert Task.of(json.loads(json.dumps(given.request()))) == given


def test_the_report_is_shown_before_the_timeline_is_prepared(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=0, us=5, runs_at=10, runs_us=50)
    path = trace.write(tmp_path)
    order: list[str | pb.ReportState] = []

    def show(content: bytes) -> None:
        order.append(from_json(gzip.decompress(content).decode(), pb.ReportState))

    result = analyze(task(path), lambda share, stage: order.append(stage), show)
    *_, early, stage = order
    assert isinstance(early, pb.ReportState)
    assert (early.state, stage) == (pb.ReportState.running, early.stage)
    assert early.report == from_json(gzip.decompress(result.content).decode(), pb.ReportState).report


@pytest.mark.slow
def test_lines_of_code_are_from_the_named_folder_and_not_shared(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("def prepare(batch):\n    return batch.unique()\n")
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("before", at=50, us=5, runs_at=60, runs_us=240)
    main.step(0, at=100, us=3000)
    main.frame("train.py(1): prepare", at=150, us=1700)
    main.op("aten::unique", at=200, us=1620)
    main.launch("after", at=1900, us=5, runs_at=1906, runs_us=1194)
    asked = task(trace.write(tmp_path), tmp_path / "draft")

    def lines(asked: Task) -> list[str]:
        shown: list[bytes] = []
        analyze(asked, lambda share, stage: None, shown.append)
        report = from_json(gzip.decompress(shown[0]).decode(), pb.ReportState).report
        places = [place for finding in report.findings for place in finding.places]
        return [line.text for place in places for line in place.candidates]

    assert lines(asked) == []
    assert lines(replace(asked, source_root=str(code))) == ["return batch.unique()"]
    assert lines(replace(asked, source_root=str(code), shared=str(tmp_path / "shared"))) == []
