"""`gpudiag diagnose` on files of Nsight Systems, and `--export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tests.builder.nsys import Export


@pytest.fixture
def export(tmp_path: Path) -> Path:
    made = Export().call("cudaLaunchKernel_v7000", 100, 200, 5).kernel("gemm", 300, 900, 5)
    return made.write(tmp_path / "made.sqlite")


@pytest.fixture
def nsys(tmp_path: Path, export: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `nsys` that exports one report, and fails for any other."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        "assert sys.argv[1:5] == ['export', '--type', 'sqlite', '--output'], sys.argv\n"
        "if not sys.argv[6].endswith('good.nsys-rep'): sys.exit('newer than this nsys')\n"
        f"shutil.copy({str(export)!r}, sys.argv[5])\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return program


def diagnose(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    """Return the exit status, the workers of the reports, and what was told."""
    status = main(["diagnose", *map(str, arguments), "--format", "json"])
    out, err = capsys.readouterr()
    return status, [report["trace"]["worker"] for report in json.loads(out)["reports"]], err


def report(folder: Path, name: str = "good.nsys-rep") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(b"NVIDIA Tegra Profiler Report")
    return path


def test_an_export_is_diagnosed(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diagnose(export, capsys=capsys)[:2] == (0, ["made"])


def test_a_report_is_told_how_to_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, workers, told = diagnose(report(tmp_path / "log"), capsys=capsys)
    assert (status, workers) == (2, [])
    assert "nsys export --type sqlite" in told
    assert "--export" in told


@pytest.mark.usefixtures("nsys")
def test_export_of_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = report(tmp_path / "log")
    assert diagnose(path, "--export", capsys=capsys)[:2] == (0, ["good"])
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["good.nsys-rep", "good.sqlite"]


@pytest.mark.usefixtures("nsys")
def test_export_of_a_log_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = report(tmp_path / "log")
    report(path.parent, "other.nsys-rep")
    status, workers, told = diagnose(path.parent, "--export", capsys=capsys)
    assert (status, workers) == (0, ["good"])
    assert "newer than this nsys" in told
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "good.nsys-rep",
        "good.sqlite",
        "other.nsys-rep",
    ]


@pytest.mark.usefixtures("nsys")
def test_a_report_that_cannot_be_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = report(tmp_path / "log", "other.nsys-rep")
    status, _, told = diagnose(path, "--export", capsys=capsys)
    assert status == 2
    assert "newer than this nsys" in told
    assert "no such file" not in told


def test_an_export_that_is_there_is_not_made_again(
    tmp_path: Path, nsys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = report(tmp_path / "log")
    diagnose(path, "--export", capsys=capsys)
    nsys.write_text("#!/bin/false\n")
    assert diagnose(path, "--export", capsys=capsys)[:2] == (0, ["good"])


def test_without_nsys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["diagnose", str(report(tmp_path / "log")), "--export"]) == 2
    assert "nsys is not on the PATH" in capsys.readouterr().err
