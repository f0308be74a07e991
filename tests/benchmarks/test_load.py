"""`make bench`: prints how long another plugin's route takes while pages zoom and traces are analyzed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.load import ANALYZING, FLOOR, IDLE, ZOOMING, samples, table


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = samples(tmp_path)
    with capsys.disabled():
        print(f"\n{table(found)}")
    for name in (ANALYZING, ZOOMING):
        assert found[name].requests > 300
        # The goal: at most twice as long as without gpudiag, where the machine allows that.
        assert found[name].median_s < 2 * max(found[IDLE].median_s, found[FLOOR].median_s)
        assert found[name].p95_s < 2 * max(found[IDLE].p95_s, found[FLOOR].p95_s)
