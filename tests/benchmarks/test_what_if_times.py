"""`make bench`: prints how long the what-if analysis takes."""

from __future__ import annotations

import pytest

from tests.benchmarks.what_if import HEADER, line, rows


@pytest.mark.benchmark
@pytest.mark.timeout(300)
def test_what_if(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{HEADER}")
        for row in rows():
            print(line(row), flush=True)
            assert row.slowdown >= 1
