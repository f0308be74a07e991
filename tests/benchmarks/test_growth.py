"""`make bench`: four times as many lanes, names or waits take about four times the CPU time, not sixteen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace

FEW = 5_000
MORE = 4
# Linear is 4, with a logarithm 5; a part that is quadratic in so many shows as 8 and more.
MOST_GROWTH = 7


def _launch(i: int, *, thread: int = 1, stream: int = 7, kernel: str = "k") -> list[dict[str, Any]]:
    at, link = 1_000 + 20 * i, {"correlation": i + 1}
    return [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": thread, "ts": at, "dur": 5},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": thread, "ts": at + 1}
        | {"dur": 3, "args": link},
        {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": stream, "ts": at + 6, "dur": 5}
        | {"args": link | {"device": 0, "stream": stream}},
    ]


def _wait(i: int) -> list[dict[str, Any]]:
    """A launch on one stream that waits for an event of another one."""
    at, record, wait = 1_000 + 20 * i, 3 * i + 1, 3 * i + 2
    made = {"name": "cudaStreamWaitEvent", "ts": at + 12, "args": {"correlation": wait}}
    recorded = {"name": "cudaEventRecord", "ts": at + 10, "args": {"correlation": record}}
    sync = {"wait_on_stream": 7, "stream": 20, "device": 0, "correlation": wait}
    return [
        *(
            {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1, "dur": 1} | call
            for call in (recorded, made)
        ),
        {
            "ph": "X",
            "cat": "cuda_sync",
            "name": "Stream Wait Event",
            "pid": 0,
            "tid": 20,
            "ts": at + 12,
            "dur": 0,
        }
        | {"args": sync | {"wait_on_cuda_event_record_corr_id": record}},
        *_launch(3 * i + 2, stream=(7, 20)[i % 2]),
    ]


GROWING: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "threads": lambda i: _launch(i, thread=i),
    "streams": lambda i: _launch(i, stream=i),
    "names of kernels": lambda i: _launch(i, kernel=f"{i:06d}{'k' * 1_000}"),
    "waits of streams": _wait,
}


def _cpu_s(path: Path, events: Callable[[int], list[dict[str, Any]]], count: int) -> float:
    written = [event for i in range(count) for event in events(i)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": written}))
    begun_s = time.process_time()
    build_report(Facts(read_trace(str(path))), find_traces(str(path)).files[0])
    return time.process_time() - begun_s


@pytest.mark.benchmark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", GROWING)
def test_growth(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "host_1.1.pt.trace.json"
    _cpu_s(path, GROWING[what], 100)  # imports
    few_s, more_s = (_cpu_s(path, GROWING[what], count) for count in (FEW, MORE * FEW))
    with capsys.disabled():
        print(f"\n{FEW:,} {what}: {few_s:.2f} s, {MORE} times as many: {more_s / few_s:.1f} times as long")
    assert more_s < MOST_GROWTH * few_s
