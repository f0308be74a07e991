"""`gpudiag diagnose DIR` of many runs: a table, the worst first, and jobs instead of their ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpudiag.cli.main import main
from tests.builder import TraceBuilder
from tests.simulator.jobs import DistributedJob, simulate_job

pytestmark = pytest.mark.slow  # each test runs commands on whole traces


def write(folder: Path, runs: dict[str, float]) -> Path:
    """Write a trace per run, whose GPU waits this long for data in each step of 1,000 µs."""
    for run, us in runs.items():
        trace = TraceBuilder()
        main_thread = trace.thread()
        for step in range(4):
            at = step * 1000.0
            main_thread.step(step, at=at, us=1000)
            main_thread.loader(at=at, us=us)
            main_thread.launch("gemm", at=at + us, us=5, runs_at=at + us + 6, runs_us=990 - us)
        trace.write(folder / run)
    return folder


def test_many_runs_are_a_table_worst_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {f"run{i}": us for i, us in enumerate((100.0, 700.0, 300.0, 500.0, 200.0))}
    assert main(["diagnose", str(write(tmp_path, runs)), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Worst of 5 recordings: run1/")
    order = [shown.index(run) for run in ("run1", "run3", "run2", "run4", "run0")]
    assert order == sorted(order)
    assert "Findings\n" not in shown
    assert "gpudiag diagnose PATH --run RUN" in shown


def test_a_few_runs_are_shown_in_full_if_the_user_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(write(tmp_path, {"a": 300.0, "b": 500.0}))
    assert main(["diagnose", log, "--quiet", "--full"]) == 0
    full = capsys.readouterr().out
    assert full.count("Findings\n") == 2
    assert main(["diagnose", log, "--quiet"]) == 0
    short = capsys.readouterr().out
    assert short.count("\n") <= 40 < full.count("\n")
    assert short.count("GPU 0, “Test GPU”") == 1


def test_the_ranks_of_a_job_are_one_line_and_one_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate_job(DistributedJob("ddp", ranks=4), seed=0).write(tmp_path / "job")
    write(tmp_path, {"alone": 500.0})
    assert main(["diagnose", str(tmp_path), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Worst of 1 job and 1 recording: alone/")
    assert "Job job · 4 ranks" in shown
    assert main(["diagnose", str(tmp_path), "--quiet", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [len(job["ranks"]) for job in data["jobs"]] == [4]
    assert len(data["reports"]) == 5


def test_findings_on_jobs_count_for_fail_on(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    simulate_job(DistributedJob("ddp", ranks=4), seed=0).write(folder)
    assert main(["diagnose", str(folder), "--quiet", "--fail-on", "GD602"]) == 0
