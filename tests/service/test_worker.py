"""Parts of the analysis process. test_jobs.py tests it as a whole."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.digest.digest_files import from_bytes
from tb_gpudiag.errors import JobFailed, NotATrace
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.analyses.protocol import Done, Failed, Progress, Task, parse
from tb_gpudiag.service.analyses.worker import analyze, save
from tb_gpudiag.service.caches.cache import Cache
from tb_gpudiag.service.caches.cache_entry import read_entry
from tb_gpudiag.service.caches.private import create_private
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.service.helpers import trace_file


def task(path: Path, *drafts: Path) -> Task:
    return Task(trace_file(path), [str(draft) for draft in drafts], memory_limit_bytes=1 << 40, parent=0)


def test_an_analysis_saves_report_timeline_and_memory(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=500).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    stages: list[tuple[float, str]] = []
    where = analyze(
        task(trace.write(tmp_path), tmp_path / "draft"), lambda share, stage: stages.append((share, stage))
    )
    entry = read_entry(where)
    assert entry is not None
    state = from_json(gzip.decompress(entry.report_gz()).decode(), pb.ReportState)
    assert (state.state, state.progress) == ("ready", 1.0)
    assert (state.report.trace.run, state.report.trace.worker, state.report.trace.span) == ("run", "w", "1")
    row = from_json(entry.summary["row"], pb.RunRow)
    assert (entry.summary["limiter"], entry.summary["sentence"]) == (row.limiter, row.sentence)
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
    entry = read_entry(analyze(task(snapshot.write(tmp_path), tmp_path / "draft"), lambda share, stage: None))
    assert entry is not None
    state = from_json(gzip.decompress(entry.report_gz()).decode(), pb.ReportState)
    assert (state.report.trace.kind, state.report.memory[0].peak_allocated_bytes) == ("snapshot", 1 << 20)


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
    path = TraceBuilder().write(tmp_path)
    assert save(task(path, first, second), b"report", {"x": np.arange(3)}, {}) == second
    assert not first.exists()
    assert cache.commit(second, "k") is not None
    assert "GPUDIAG_CACHE_DIR" in cache.note
    cache.discard(second)
    with pytest.raises(JobFailed, match="No space left on device"):
        save(task(path, first), b"report", {"x": np.arange(3)}, {})


def test_messages_survive_a_round_trip_and_other_lines_are_skipped() -> None:
    error = NotATrace("what\nnow", where="/a/ü\udcff", remedy="r")
    sent: list[Progress | Done | Failed] = [Progress(0.25, "reading"), Done("/draft"), Failed(error)]
    noise = [
        b"\n",
        b"{}\n",
        b"[1]\n",
        b"null\n",
        b'{"progress": "x"}\n',
        b'{"failed": 1}\n',
        b"\xff\xfe\n",
        b"x" * 200_000,
    ]
    lines = [message.to_line() for message in sent]
    heard = list(
        parse(io.BytesIO(b"".join([*noise[:4], lines[0], *noise[4:7], lines[1], lines[2], noise[7]])))
    )
    assert heard[:2] == sent[:2]
    failed = heard[2]
    assert isinstance(failed, Failed)
    assert (type(failed.error), failed.error.what, failed.error.where) == (NotATrace, error.what, error.where)
    assert len(heard) == 3


@pytest.mark.parametrize("kind", ["os", "GpudiagError", "__import__", "TraceError", "Nonsense"])
def test_an_error_of_unknown_kind_is_still_an_error(kind: str) -> None:
    line = json.dumps({"failed": kind, "what": "w", "where": "", "remedy": ""}).encode() + b"\n"
    (heard,) = parse(io.BytesIO(line))
    assert isinstance(heard, Failed)
    assert heard.error.what == "w"


def test_a_task_survives_a_round_trip(tmp_path: Path) -> None:
    path = TraceBuilder().write(tmp_path)
    given = task(path, tmp_path / "é", tmp_path / "b")
    assert Task.from_line(given.to_line()) == given
