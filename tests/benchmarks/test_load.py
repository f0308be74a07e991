"""`make bench`: prints how long another plugin's route takes while pages zoom, traces are analyzed, or a job
records, and what the pages cost that job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.load import ANALYZING, FLOOR, IDLE, ZOOMING, samples, table
from tests.benchmarks.load_training import HANDLER, PLAIN, WATCHED, measured, tables
from tests.benchmarks.writer import KEPT


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


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_load_of_a_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loops, routes = measured(tmp_path)
    with capsys.disabled():
        print(f"\n{tables(loops, routes)}")
    for loop in loops.values():
        assert len(loop.records_s) > 10
        assert loop.files == KEPT
    # Next to the same pages, a handler makes neither side slower than a plain write does, within the noise.
    assert loops[HANDLER + WATCHED].step_s < 1.5 * loops[PLAIN + WATCHED].step_s
    assert routes[HANDLER + WATCHED].median_s < 2 * max(
        routes["idle"].median_s, routes[PLAIN + WATCHED].median_s
    )
