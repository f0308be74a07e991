"""Digests of commands are kept, so that an unchanged directory is not read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_gpudiag.service.analyses.digests import Digested, digest_all
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


@pytest.mark.slow
def test_without_a_cache_traces_are_read_each_time(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (trace.parent / "file").touch()
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(trace.parent / "file"))
    assert digested(trace).digest is not None
    assert digested(trace).digest is not None
