"""`make bench`: four times as many threads or names take about four times the CPU time, not sixteen."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tb_gpudiag.service.analyses.diagnoses import diagnose_trace
from tb_gpudiag.trace.files.find import find_traces
from tests.benchmarks.growing import GROWING

FEW = 5_000
MORE = 4
# Linear is 4, with a logarithm 5; a part that is quadratic in so many shows as 8 and more.
MOST_GROWTH = 7


def _cpu_s(path: Path, what: str, count: int) -> float:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": GROWING[what](count)}))
    begun_s = time.process_time()
    assert diagnose_trace(find_traces(str(path)).files[0]).arrays  # of the page
    return time.process_time() - begun_s


@pytest.mark.benchmark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", GROWING)
def test_growth(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "host_1.1.pt.trace.json"
    _cpu_s(path, what, 100)  # imports
    few_s, more_s = (_cpu_s(path, what, count) for count in (FEW, MORE * FEW))
    with capsys.disabled():
        print(f"\n{FEW:,} {what}: {few_s:.2f} s, {MORE} times as many: {more_s / few_s:.1f} times as long")
    assert more_s < MOST_GROWTH * few_s
