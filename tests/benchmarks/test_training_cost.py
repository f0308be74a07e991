"""`make bench`: prints what a handler costs the steps after a recording, if torch is installed."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.benchmark
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("torch")
def test_training_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.training_cost import ROUNDS, costs, table

    found, diagnosed = costs(tmp_path)
    with capsys.disabled():
        print(f"\nSteps after a recording, next to the same steps with torch's handler\n{table(found)}")
    assert len(list((tmp_path / "ours").iterdir())) == diagnosed == ROUNDS + 1


@pytest.mark.benchmark
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("torch")
def test_clock_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.clock_cost import SIZES, cost, table

    found = [cost(tmp_path / str(width), width, rows) for width, rows in SIZES]
    with capsys.disabled():
        print(f"\nSteps with a step clock, next to the same steps without\n{table(found)}")
    assert len(list(tmp_path.glob("*/gpudiag/clock/rank-0/events*"))) == len(SIZES)
