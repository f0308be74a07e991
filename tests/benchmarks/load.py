"""Measure how long another plugin's route takes while pages poll and zoom and traces are analyzed, compared
with an idle TensorBoard in the same run.

    python -m tests.benchmarks.load [MEGABYTES]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from tests.benchmarks.traces import large_trace
from tests.service.helpers import eventually
from tests.test_plugin_process import TensorBoard

TRACES = 3
TABS = 50
SIZE_MB = 100
OTHER_ROUTE = "plugin/scalars/tags"
PROBES = 400
PROBE_EVERY_S = 0.02
ZOOM_S = 20.0
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    """Answering times of the other plugin's route."""

    name: str
    median_s: float
    p95_s: float
    requests: int  # of all pages meanwhile
    slice_p95_s: float  # of the pages' slices


def rows(folder: Path, size_mb: int = SIZE_MB) -> list[Row]:
    """Measure a TensorBoard that is idle, with pages while traces are analyzed, and with pages that zoom."""
    small = large_trace(folder, size_mb << 20)
    for number in range(TRACES):
        run = folder / "log" / f"run{number}"
        run.mkdir(parents=True)
        os.link(small, run / f"worker.{number}.pt.trace.json")
        os.utime(run / f"worker.{number}.pt.trace.json", (1_700_000_000, 1_700_000_000))
    tensorboard = TensorBoard(folder, f"--logdir={folder / 'log'}", "--load_fast=false")
    try:
        ids = eventually(
            lambda: [t["id"] for t in tensorboard.traces()] if len(tensorboard.traces()) == TRACES else None
        )
        idle = _row("idle", _probes(tensorboard, PROBES))
        analyzing = _with_tabs("50 tabs, 3 analyses", tensorboard, ids, until_ready=True)
        zooming = _with_tabs("50 tabs zooming", tensorboard, ids, until_ready=False)
        return [idle, analyzing, zooming]
    finally:
        tensorboard.process.kill()
        tensorboard.process.wait()


def _with_tabs(name: str, tensorboard: TensorBoard, ids: list[str], *, until_ready: bool) -> Row:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.tabs",
        tensorboard.address,
        str(TABS),
        str(ZOOM_S),
        *ids,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as tabs:
        time.sleep(2.0)  # until all of them are open
        found: list[float] = []
        while tabs.poll() is None:
            found += _probes(tensorboard, 20)
            if until_ready and all(trace["state"] == "ready" for trace in tensorboard.traces()):
                break
        assert tabs.stdout is not None
        seen = json.loads(tabs.stdout.read())
    return _row(name, found, seen["answers"], seen["slices_s"])


def _probes(tensorboard: TensorBoard, count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        tensorboard.get(OTHER_ROUTE)
        times.append(time.perf_counter() - began)
        time.sleep(PROBE_EVERY_S)
    return times


def _row(name: str, times: list[float], requests: int = 0, slices_s: list[float] | None = None) -> Row:
    cuts = quantiles(times, n=20)
    slice_p95_s = slices_s[int(0.95 * len(slices_s))] if slices_s else 0.0
    return Row(name, cuts[9], cuts[18], requests, slice_p95_s)


def table(found: list[Row]) -> str:
    """Format the rows. The ratios are to the first one."""
    idle = found[0]
    lines = [f"{'other route':24}{'p50':>18}{'p95':>18}{'pages ask':>12}{'slice p95':>12}"]
    for row in found:
        p50 = f"{row.median_s * 1e3:.1f} ms {row.median_s / idle.median_s:5.1f} x"
        p95 = f"{row.p95_s * 1e3:.1f} ms {row.p95_s / idle.p95_s:5.1f} x"
        lines.append(f"{row.name:24}{p50:>18}{p95:>18}{row.requests:12}{row.slice_p95_s * 1e3:9.0f} ms")
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(table(rows(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else SIZE_MB)))


if __name__ == "__main__":
    main()
