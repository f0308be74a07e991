"""`make bench`: prints the table of ratios, and checks that all rows read the same number of events."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.reading import HEADER, line, rows
from tests.benchmarks.traces import SIZE_BYTES


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    with capsys.disabled():
        print(f"\n{HEADER}")
        for row in rows(tmp_path, SIZE_BYTES):
            found.append(row)
            print(line(row), flush=True)
    assert len({row.measured.result for row in found}) == 1
