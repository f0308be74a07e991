"""A diagnosis takes so many calls of functions for each thread, stream, name, … more, however many there are.

Calls are the same on every machine. `make bench` measures the time, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tests.benchmarks.growing import GROWING

COUNTS = (300, 900)
# Loops over threads and names remain, of 330 calls each. A loop over all threads for each thread makes
# 600 more for each, and a few array operations for each stream make 20 each.
MOST_CALLS = 400


def _calls(path: Path, what: str, count: int) -> int:
    """Return how many calls of functions the diagnosis of such a trace takes."""
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": GROWING[what](count)}))
    (file,) = find_traces(str(path)).files
    calls = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        build_report(Facts(read_trace(str(path))), file)
    finally:
        sys.setprofile(before)
    return calls


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    _calls(tmp_path_factory.mktemp("imported") / "host_1.1.pt.trace.json", "threads", 50)


@pytest.mark.slow
@pytest.mark.parametrize("what", GROWING)
def test_calls_for_each_more(what: str, tmp_path: Path) -> None:
    path = tmp_path / "host_1.1.pt.trace.json"
    few, many = (_calls(path, what, count) for count in COUNTS)
    assert many - few < MOST_CALLS * (COUNTS[1] - COUNTS[0])
