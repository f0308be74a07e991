"""The handler in a real torch.profiler, alone and with two ranks, if torch is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.service.child_process import worker_environment
from tests.training.stage import Diagnosed, handler

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("handler_job.py")
DEADLINE_S = 115


def run(tmp_path: Path, world: int) -> list[list[str]]:
    """Run the job and return each rank's lines."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, (rank, world, tmp_path / "log", tmp_path / "store"))],
            stdout=subprocess.PIPE,
            text=True,
            env=worker_environment(),
        )
        for rank in range(world)
    ]
    said = [rank.communicate(timeout=DEADLINE_S)[0].splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world, said
    return said


def test_a_loop_is_recorded_as_with_torchs_handler(tmp_path: Path) -> None:
    (said,) = run(tmp_path, 1)
    names = sorted(path.name for path in (tmp_path / "log").iterdir())
    assert len(names) == 2
    assert all(re.fullmatch(r"[^.]+_\d+\.\d{19}\.pt\.trace\.json", name) for name in names)
    verdicts = [line for line in said if line.startswith("gpudiag: ")]
    assert [any(name in line for line in verdicts) for name in names] == [True, True]
    assert all("No GPU activity was recorded" in line for line in verdicts)
    callbacks = [line.split() for line in said if line.startswith("callback ")]
    assert [(Path(path).name, steps) for _, path, steps in callbacks] == [(name, "4") for name in names]


def test_rank_0_logs_the_verdict_of_the_job(tmp_path: Path) -> None:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("torch without Gloo")
    said = run(tmp_path, 2)
    assert len(list((tmp_path / "log").iterdir())) == 4
    jobs = [[line for line in lines if line.startswith("gpudiag: Job 2 ranks: ")] for lines in said]
    assert 1 <= len(jobs[0]) <= 2  # a recording that is overtaken by the next one has no verdict of the job
    assert not jobs[1]
    assert all(sum(line.startswith("callback ") for line in lines) == 2 for lines in said)


def test_a_schedule_on_demand_records_the_next_steps(tmp_path: Path) -> None:
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
