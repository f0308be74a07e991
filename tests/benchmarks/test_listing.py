"""`make bench`: prints how long listing many traces takes, and what it costs TensorBoard's other routes."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.benchmarks.listing import listed, probed, table


@pytest.mark.benchmark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("files", "at_most_s"), [(5_000, 1.0), (50_000, 10.0)])
def test_listing(tmp_path: Path, files: int, at_most_s: float, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(tmp_path, files)
    with capsys.disabled():
        print(f"\n{found}")
    assert found.known_s < at_most_s


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_other_routes_while_many_files_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = probed(tmp_path, 50_000)
    with capsys.disabled():
        print(f"\n{table(times)}")
    idle, *others = times.values()
    for found in others:
        assert median(found) < 2 * median(idle)
        assert sorted(found)[int(0.95 * len(found))] < 2 * sorted(idle)[int(0.95 * len(idle))]
