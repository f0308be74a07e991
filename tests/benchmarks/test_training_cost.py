"""`make bench`: prints what a handler costs the steps that are not recorded, if torch is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_training_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.training_cost import CYCLES, ROUNDS, costs, table

    found, diagnosed = costs(tmp_path)
    with capsys.disabled():
        print(f"\nSteps outside of recordings, relative to torch's handler\n{table(found)}")
        print(f"{diagnosed} of {ROUNDS * CYCLES} recordings were diagnosed meanwhile")
    assert len(list((tmp_path / "ours").iterdir())) == ROUNDS * CYCLES
