"""`make bench`: prints the table of ratios, and checks that the loop and the analysis pair the same events
and that the analysis finds the slope that was planted."""

from __future__ import annotations

import pytest

from tests.benchmarks.memory import EVENTS, KEPT_BYTES, rows, table


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_memory(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(rows(EVENTS))
    with capsys.disabled():
        print(f"\n{EVENTS:,} memory events\n{table(found)}")
    loop, _, memory = found
    assert memory.freed == loop.freed
    assert memory.slope == pytest.approx(KEPT_BYTES, rel=0.001)
