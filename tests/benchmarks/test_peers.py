"""`make bench`: prints how fast others do it, and checks that none of them is faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.peers import HEADER, OURS, SIZE_BYTES, large_rows, line, started_rows, tools


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if len(tools()) == 1:
        pytest.skip("no other tool is installed")
    found = [*large_rows(tmp_path, SIZE_BYTES), *started_rows(tmp_path)]
    with capsys.disabled():
        print("\n" + "\n".join([HEADER, *map(line, found)]))
    assert all(row.ours_faster > 1 for row in found if row.name != OURS)
