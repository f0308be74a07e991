"""Commands share results with other users and with the tab: a shared cache, and sidecars."""

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


def test_sidecars_are_written_on_request_only_and_then_used(
    diagnose: Callable[..., tuple[Any, str]], analyzed: list[str], log: Path
) -> None:
    alone, _ = diagnose()
    assert list(log.rglob("*.gpudiag")) == []
    first, _ = diagnose("--write-sidecar")
    assert len(list(log.rglob("*.gpudiag"))) == 2
    analyzed.clear()
    second, told = diagnose()
    assert alone == first == second
    assert analyzed == []
    assert told.count("(sidecar)") == 2


def test_sidecars_are_written_of_shared_results_too(
    diagnose: Callable[..., tuple[Any, str]],
    analyzed: list[str],
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(tmp_path / "team"))
    alone, _ = diagnose()
    analyzed.clear()
    diagnose("--write-sidecar")
    monkeypatch.delenv("GPUDIAG_SHARED_CACHE_DIR")
    assert diagnose()[0] == alone
    assert analyzed == []
    assert len(list(log.rglob("*.gpudiag"))) == 2


def test_a_sidecar_that_cannot_be_written_is_an_error_and_the_report_is_there(
    diagnose: Callable[..., tuple[Any, str]], log: Path
) -> None:
    (log / "run" / "host_0.1000.pt.trace.json.gpudiag").symlink_to(log)
    found, told = diagnose("--write-sidecar")
    assert len(found["reports"]) == 2
    assert [error["what"] for error in found["errors"]] == ["no sidecar is written: it is a link"]
    assert "delete the link" in told


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


def test_an_interactive_page_is_made_of_a_shared_result(
    log: Path, tmp_path: Path, analyzed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tb_gpudiag.cli.diagnose.has_interactive_html", lambda: True)
    monkeypatch.setenv("GPUDIAG_SHARED_CACHE_DIR", str(tmp_path / "team"))
    (log / "run" / "host_1.1000.pt.trace.json").unlink()
    pages = []
    for name in ("first.html", "second.html"):
        assert main(["diagnose", str(log), "--format", "html", "-o", str(tmp_path / name)]) == 0
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]
    assert len(analyzed) == 1
