"""`gpudiag diagnose` on files of Nsight Systems, and `--export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tests.builder.nsys import Export

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


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


@pytest.mark.parametrize("command", ["annotate", "scrub"])
def test_an_export_is_not_copied(
    export: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy.json"
    assert main([command, str(export), "-o", str(target)]) == 2
    assert "export of Nsight Systems" in capsys.readouterr().err
    assert not target.exists()


def test_exports_of_ranks_are_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 1 comes 30 ms late to every collective."""
    ms = 1_000_000
    for rank in range(2):
        export = Export(100 + rank)
        for step in range(8):
            at, late = step * 100 * ms, rank * 30 * ms
            export.range(f"step {step}", at, at + 99 * ms)
            for number, (name, start, end, stream) in enumerate(
                (
                    ("gemm", 3 * ms + late, 40 * ms + late, 7),
                    ("ncclDevKernel_AllReduce", 44 * ms + late, 95 * ms, 20),
                )
            ):
                correlation = 2 * step + number + 1
                launch = at + start - ms
                export.call("cudaLaunchKernel_v7000", launch, launch + ms // 2, correlation)
                export.kernel(name, at + start, at + end, correlation, streamId=stream)
            # The host waits for its GPU, so that it begins the next step sooner if the GPU does.
            export.call("cudaStreamSynchronize_v3020", at + 46 * ms + late, at + 95 * ms, 1_000 + step)
        for name, value in (("RANK", rank), ("WORLD_SIZE", 2)):
            variable = f'{name}="{value}"'
            export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=variable)
        export.write(tmp_path / f"rank{rank}.sqlite")
    assert main(["job", str(tmp_path), "--format", "json", "--processes", "1"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert [rank["rank"] for rank in job["ranks"]] == [0, 1]
    assert "GD602" in [found["rule"] for found in job["findings"]]
