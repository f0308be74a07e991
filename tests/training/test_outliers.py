"""Steps that are slow once in a while: the rank that makes them records one, and no other does."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.report.diagnosis import diagnose_path
from tb_gpudiag.service.processes.process_setup import worker_environment
from tb_gpudiag.training import outliers
from tb_gpudiag.training.outliers import LEAST_STEPS, PATIENCE_STEPS, Outliers
from tb_gpudiag.vocabulary.written import FORWARD, PHASES, WAIT
from tests.patience import HANGS_S
from tests.training.test_step_clock import Loop, Time, now  # noqa: F401

USUAL_MS = 20.0
RANK = 2


class Steps:
    """Steps of one rank of four. Other processes take none of their time, unless they are said to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rank: int = 2, *, knows_waits: bool = True) -> None:
        self.coreless_ms = 0.0
        monkeypatch.setattr(outliers, "coreless_ms", lambda _: self.coreless_ms)
        self.rows: deque[tuple[float, ...]] = deque()
        self.found = Outliers(self.rows, lambda: (rank, 4))
        self.found.knows_waits = knows_waits

    def pass_(self, count: int, ms: float = USUAL_MS, phase: int = FORWARD, coreless_ms: float = 0.0) -> None:
        for _ in range(count):
            self.coreless_ms += coreless_ms
            phases = [0.0] * len(PHASES)
            phases[phase] = ms
            self.found.append((len(self.rows), ms, *phases))

    def why(self) -> str:
        return self.found.why

    def listens(self) -> bool:
        return self.found.listens

    def come_again(self, ms: float, **more: Any) -> bool:
        """Have a slow step, and another one. Return whether this rank records."""
        self.found.usual(USUAL_MS)
        self.pass_(1, 200.0)
        self.pass_(LEAST_STEPS + 1)
        self.pass_(1, ms, **more)
        return self.found.is_armed()


def test_a_rank_that_makes_slow_steps_records(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    assert steps.come_again(190.0)
    assert len(steps.rows) == LEAST_STEPS + 3
    for _ in range(LEAST_STEPS + 1):
        steps.found.recorded(0, USUAL_MS, 0.0)
    steps.found.recorded(0, 300.0, 280.0)  # another rank makes it
    assert steps.why() == ""
    steps.found.recorded(230, 180.0, 0.0)
    assert steps.why() == (
        "slow steps now and then on rank 2 of 4: step 22 took 190 ms, most of it in forward, and the median "
        "is 20 ms; step 230 is recorded, and took 180 ms"
    )
    for left in (2, 1):
        assert not steps.found.is_armed()
        assert steps.come_again(190.0), left
        steps.found.why = "recorded"
    assert not steps.found.is_armed()
    assert not steps.come_again(190.0), "there is a pause"


@pytest.mark.parametrize(
    "more", [{"phase": WAIT}, {"coreless_ms": 160.0}, {"ms": 90.0}], ids=["waits", "no core", "unlike"]
)
def test_other_slow_steps_are_not_recorded(monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    assert not Steps(monkeypatch).come_again(**{"ms": 190.0, **more})


def test_a_slow_step_that_does_not_come_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    steps.found.usual(USUAL_MS)
    steps.pass_(1, 200.0)
    assert steps.listens()
    steps.pass_(PATIENCE_STEPS + 1)
    assert not steps.listens()


def test_few_ranks_record_where_waits_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Steps(monkeypatch, 7, knows_waits=False).come_again(190.0, phase=WAIT)
    assert not Steps(monkeypatch, 8, knows_waits=False).come_again(190.0)


def test_nothing_is_recorded_beside_another_profiler(
    torch: Any,
    now: Time,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outliers, "coreless_ms", lambda _: 0.0)
    loop = Loop(torch, now, tmp_path)

    def train(steps: int) -> None:
        for number, batch in enumerate(loop.clock(loop.batches(steps))):
            loop.forward_and_backward(batch)
            now.passes(500 if number % 50 == 49 else 0)
            loop.optimizer.step()

    train(90)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as other:
        train(110)
    assert any(event.key == "aten::linear" for event in other.key_averages())
    assert not list(tmp_path.glob("*.json"))
    train(110)
    (recording,) = tmp_path.glob("*.json")
    report = diagnose_path(str(recording))
    assert "step 249 is recorded" in report.trace.reason
    assert "ProfilerStep#249" in {step.name for step in report.steps}


@pytest.mark.slow
def test_a_fault_of_one_step_in_200_is_recorded_within_1000(torch: Any, tmp_path: Path) -> None:
    from tests.training.slow_step_job import recordings, refresh_price_list  # and torch

    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("torch without Gloo")
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.slow_step_job", str(tmp_path), str(RANK)],
        capture_output=True,
        timeout=HANGS_S,
        env=worker_environment(),
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    report = diagnose_path(str(next(recordings(tmp_path))))
    assert report.trace.rank == RANK
    assert report.trace.reason.startswith(f"slow steps now and then on rank {RANK} of 4: ")
    assert report.trace.reason in (tmp_path / f"said.{RANK}").read_text(encoding="utf-8")
    (uneven,) = (finding for finding in report.findings if finding.rule == "GD106")
    line = refresh_price_list.__code__.co_firstlineno
    # Beside other jobs, other steps are slow as well, and what all of them do is not the fault.
    assert "Only slow steps ran “refresh_price_list (" in uneven.summary
    assert f"slow_step_job.py, defined at line {line})”" in uneven.summary
