"""`make bench`: prints how long another plugin's route takes while pages zoom and traces are analyzed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.load import rows, table


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(tmp_path)
    with capsys.disabled():
        print(f"\n{table(found)}")
    for row in found[1:]:
        assert row.requests > 500
        # The goal is twice the idle time. Other programs on the machine disturb: this fails where requests
        # compute again.
        assert row.median_s < 4 * found[0].median_s
