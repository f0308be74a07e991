"""What a command or the tab has found in a trace is kept, and both find it: nobody waits for it twice."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import from_json
from tb_gpudiag.service.analyses.digests import Digested, digest_all
from tb_gpudiag.service.analyses.task import Task
from tb_gpudiag.service.analyses.worker import analyze
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.trace.files.find import find_traces
from tests.report.reports import slow_loader


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "cache"))
    slow_loader().write(tmp_path / "log")
    (path,) = (tmp_path / "log").iterdir()
    return path


def digested(trace: Path) -> Digested:
    (found,) = digest_all(find_traces(str(trace)).files, processes=1)
    return found


def no_reading(*_: object) -> None:
    raise AssertionError("the trace is read again")


def test_an_unchanged_trace_is_not_read_again(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digested(trace)
    assert first.digest is not None
    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", no_reading)
    again = digested(trace)
    assert again.digest is not None
    assert again.digest.about == first.digest.about
    assert again.digest.collectives.equals(first.digest.collectives)


def test_a_changed_trace_is_read_again(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digested(trace)
    status = trace.stat()
    os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", no_reading)
    assert digested(trace).error is not None


def test_a_cache_that_others_can_write_to_is_not_used(trace: Path) -> None:
    assert SharedCache.of_user(settings_from()) is not None
    settings = settings_from()
    assert settings.cache_directory is not None
    settings.cache_directory.chmod(0o777)
    assert SharedCache.of_user(settings) is None
    assert digested(trace).digest is not None


def printed(trace: Path, capsys: pytest.CaptureFixture[str]) -> str:
    main(["diagnose", str(trace), "--format", "json"])
    return capsys.readouterr().out


def opened(trace: Path, source_root: Path | None = None) -> list[pb.ReportState]:
    """Analyze the trace as the tab does, and return what its page gets meanwhile; at most what it gets before
    the trace is read, if reading fails."""
    shown: list[pb.ReportState] = []
    (file,) = find_traces(str(trace)).files
    cache = str(settings_from().cache_directory)

    def show(content: bytes) -> None:
        shown.append(from_json(gzip.decompress(content).decode(), pb.ReportState))

    try:
        analyze(Task(file, cache=cache, source_root=str(source_root or "")), lambda *_: None, show)
    except AssertionError:
        assert not source_root
    return shown


def test_a_command_does_not_diagnose_a_trace_twice(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = printed(trace, capsys)
    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", no_reading)
    assert printed(trace, capsys) == first
    assert digested(trace).digest is not None


def test_the_tab_shows_the_report_of_a_command_before_it_reads_the_trace(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(trace, capsys)
    whole = opened(trace)
    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", no_reading)
    (early,) = opened(trace)
    assert early.state == pb.ReportState.running
    assert [early, early] == whole  # from the store, and from the trace


def test_a_command_finds_what_the_tab_has_diagnosed_and_none_of_its_lines_of_code(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tb_gpudiag.service.analyses.worker.add_source_lines", with_a_line)
    (shown,) = opened(trace, trace.parent)
    assert shown.report.verdict.sentence == "a line of code"
    monkeypatch.setattr("tb_gpudiag.report.diagnosis.read_facts", no_reading)
    assert "a line of code" not in printed(trace, capsys)


def with_a_line(report: pb.Report, _root: str) -> None:
    report.verdict.sentence = "a line of code"


@pytest.mark.slow
def test_without_a_cache_traces_are_read_each_time(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (trace.parent / "file").touch()
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(trace.parent / "file"))
    assert digested(trace).digest is not None
    assert digested(trace).digest is not None
