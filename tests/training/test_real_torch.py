"""The handler in a real torch.profiler, alone and with two ranks, if torch is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.patience import HANGS_S
from tests.training.stage import Diagnosed, handler

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("handler_job.py")


@pytest.fixture(scope="module")
def jobs(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of jobs of one and of two ranks, run by one process: importing torch costs more than a job."""
    gloo = torch.distributed.is_available() and torch.distributed.is_gloo_available()
    for _ in range(2):
        folder = tmp_path_factory.mktemp("jobs")
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder), "1", *["2"] * gloo],
            capture_output=True,
            timeout=HANGS_S,
            env=worker_environment(),
            check=False,
        )
        print(done.stderr.decode(errors="replace"))
        if not done.returncode:  # gloo's ranks do not always find one another
            break
    assert done.returncode == 0
    return folder


def said(job: Path) -> list[list[str]]:
    """Return each rank's lines."""
    return [path.read_text(encoding="utf-8").splitlines() for path in sorted(job.glob("said.*"))]


def test_a_loop_is_recorded_as_with_torchs_handler(jobs: Path) -> None:
    (lines,) = said(jobs / "1")
    names = sorted(path.name for path in (jobs / "1" / "log").iterdir())
    assert len(names) == 2
    assert all(re.fullmatch(r"[^.]+_\d+\.\d{19}\.pt\.trace\.json", name) for name in names)
    verdicts = [line for line in lines if line.startswith("gpudiag: ")]
    assert [any(name in line for line in verdicts) for name in names] == [True, True]
    # torch with CUDA says that it found no driver. A busy machine may interrupt a job of so few steps.
    said_at_all = (
        "No GPU activity was recorded",
        "The job ran on the CPU: torch found no GPU driver",
        "Something interrupted the job",
    )
    assert [line for line in verdicts if not any(words in line for words in said_at_all)] == []
    callbacks = [line.split() for line in lines if line.startswith("callback ")]
    assert [(Path(path).name, steps) for _, path, steps in callbacks] == [(name, "4") for name in names]


def test_rank_0_logs_the_verdict_of_the_job(jobs: Path) -> None:
    if not (jobs / "2").exists():
        pytest.skip("torch without Gloo")
    ranks = said(jobs / "2")
    assert len(list((jobs / "2" / "log").iterdir())) == 4
    verdicts = [[line for line in lines if line.startswith("gpudiag: Job 2 ranks: ")] for lines in ranks]
    assert (
        1 <= len(verdicts[0]) <= 2
    )  # a recording that is overtaken by the next one has no verdict of the job
    assert not verdicts[1]
    assert all(sum(line.startswith("callback ") for line in lines) == 2 for lines in ranks)


def test_a_schedule_on_demand_records_the_next_steps(torch: Any, tmp_path: Path) -> None:
    got = Diagnosed()
    with handler(tmp_path / "log", on_diagnosis=got) as made:
        schedule = made.on_demand(active=3, warmup=1)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=made
        ) as profiler:
            for step in range(30):
                torch.rand(64, 64) @ torch.rand(64, 64)
                if step == 10:
                    schedule.arm()
                profiler.step()
        (report,) = got.expect(1)
    assert [step.name for step in report.steps] == ["ProfilerStep#12", "ProfilerStep#13", "ProfilerStep#14"]
    assert len(list((tmp_path / "log").iterdir())) == 1
