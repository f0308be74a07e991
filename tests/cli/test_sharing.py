"""Commands share results with other users and with the tab."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.cli.main import main
from tb_gpudiag.report import diagnosis
from tb_gpudiag.report.diagnosis import read_facts
from tb_gpudiag.service.analyses.task import Task
from tb_gpudiag.service.analyses.worker import analyze
from tb_gpudiag.trace.files.find import find_traces
from tests.builder import TraceBuilder

pytestmark = pytest.mark.slow  # each test runs commands on whole traces

THEN_S = 1_700_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "log" / "run"
    folder.mkdir(parents=True)
    for rank in range(2):
        path = folder / f"host_{rank}.1000.pt.trace.json"
        trace = TraceBuilder()
        trace.thread().step(0, at=0, us=500).launch("gemm", at=15, us=5, runs_at=30, runs_us=100 + rank)
        path.write_bytes(trace.bytes())
        os.utime(path, (THEN_S, THEN_S))
    return tmp_path / "log"


@pytest.fixture
def diagnose(log: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str]]:
    """Run the command; return its document and what it tells."""

    def run(*options: str) -> tuple[Any, str]:
        assert main(["diagnose", str(log), "--format", "json", *options]) == 0
        out, err = capsys.readouterr()
        return json.loads(out), err

    return run


@pytest.fixture
def analyzed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the traces that were read."""
    names: list[str] = []

    def counted(file: Any, *others: Any) -> Any:
        names.append(os.path.basename(file.path))
        return read_facts(file, *others)

    monkeypatch.setattr(diagnosis, "read_facts", counted)
    return names


def test_a_second_command_takes_results_from_the_shared_cache(
    diagnose: Callable[..., tuple[Any, str]],
    analyzed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, _ = diagnose()
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(tmp_path / "team"))
    first, told_first = diagnose()
    analyzed.clear()
    second, told_second = diagnose()
    assert alone == first == second
    assert analyzed == []
    assert told_first == ""
    assert told_second.count("(shared cache)") == 2
    assert "host_0.1000.pt.trace.json: result of " in told_second


def test_a_directory_that_cannot_be_used_is_told_once(
    diagnose: Callable[..., tuple[Any, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, _ = diagnose()
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(tmp_path / "not" / "there"))
    found, told = diagnose()
    assert found == alone
    assert len(told.splitlines()) == 1
    assert "Results are not shared" in told


def test_commands_on_several_traces_share_digests(
    log: Path,
    analyzed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(tmp_path / "team"))
    documents = []
    for _ in range(2):
        main(["history", str(log), "--format", "json", "--processes", "1", "--quiet"])
        documents.append(capsys.readouterr().out)
    assert len(analyzed) == 2
    assert documents[0] == documents[1]
    assert json.loads(documents[0])


def test_commands_and_the_tab_find_what_the_other_has_read(
    log: Path,
    analyzed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(cache))
    first, second = find_traces(str(log)).files
    analyze(Task(first, kind="diagnose", cache=str(cache)), lambda share, stage: None)
    analyze(Task(second, kind="digest", cache=str(cache)), lambda share, stage: None)
    assert main(["history", str(log), "--format", "json", "--processes", "1", "--quiet"]) == 0
    assert len(analyzed) == 2  # by the tab
    (cache / "digests").rename(tmp_path / "away")
    assert main(["diagnose", str(log), "--quiet"]) == 0
    assert len(analyzed) == 4
    for file in (first, second):
        found = analyze(Task(file, kind="digest", cache=str(cache)), lambda share, stage: None)
        assert "origin" not in found.summary  # it is this user's own
    assert len(analyzed) == 4
    assert list(log.rglob("*.gpudiag")) == []


def test_an_interactive_page_is_made_of_a_shared_result(
    log: Path, tmp_path: Path, analyzed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tb_gpudiag.cli.diagnosed.has_interactive_html", lambda: True)
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(tmp_path / "team"))
    (log / "run" / "host_1.1000.pt.trace.json").unlink()
    pages = []
    for name in ("first.html", "second.html"):
        assert main(["diagnose", str(log), "--format", "html", "-o", str(tmp_path / name)]) == 0
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]
    assert len(analyzed) == 1
