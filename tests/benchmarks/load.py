"""Measure how long another plugin's route takes while pages poll and zoom and traces are analyzed.

    python -m tests.benchmarks.load [MEGABYTES]

It is compared with an idle TensorBoard and with two floors: as many pages that ask a plugin which only sends
ready bytes, and the same next to as many busy processes of low priority as there are analyses at once.
TensorBoard itself needs about 2 ms of Python for each request, and the pages run on the same cores. Idle and
the first floor are measured twice, because other programs on the machine disturb.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from tb_gpudiag.service.processes.process_setup import NICE
from tb_gpudiag.service.settings import WORKERS
from tests.benchmarks import floor
from tests.benchmarks.tabs import WIDTH_PX
from tests.benchmarks.traces import large_trace
from tests.service.helpers import eventually
from tests.test_plugin_process import TensorBoard, environment_with_plugin

TRACES = 3
TABS = 50
SIZE_MB = 100
_SORTING = "import numpy as np; a = np.random.rand(4_000_000)\nwhile True: np.cumsum(np.sort(a))"
OTHER_ROUTE = "plugin/scalars/tags"
PROBES = 200
PROBE_EVERY_S = 0.02
ZOOM_S = 8.0
ANALYZE_S = 20.0
REPOSITORY = Path(__file__).resolve().parents[2]

IDLE, FLOOR = "idle", f"{TABS} tabs, ready bytes"
BUSY_FLOOR = f"ready bytes, {WORKERS} busy"
ANALYZING, ZOOMING = f"{TABS} tabs, {TRACES} analyses", f"{TABS} tabs zooming"


@dataclass(frozen=True)
class Sample:
    """What was measured in one situation."""

    times_s: list[float]  # of the other plugin's route
    requests: int = 0  # of all pages meanwhile
    slices_s: list[float] = field(default_factory=list)  # times of the pages' slices

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            self.times_s + other.times_s, self.requests + other.requests, self.slices_s + other.slices_s
        )

    @property
    def median_s(self) -> float:
        return quantiles(self.times_s, n=20)[9]

    @property
    def p95_s(self) -> float:
        return quantiles(self.times_s, n=20)[18]

    @property
    def slice_p95_s(self) -> float:
        return quantiles(self.slices_s, n=20)[18] if len(self.slices_s) > 1 else 0.0


def samples(folder: Path, size_mb: int = SIZE_MB) -> dict[str, Sample]:
    """Measure one situation after the other, on the same TensorBoard."""
    large = large_trace(folder, size_mb << 20)
    for number in range(TRACES):
        run = folder / "log" / f"run{number}"
        run.mkdir(parents=True)
        os.link(large, run / f"worker.{number}.pt.trace.json")
        os.utime(run / f"worker.{number}.pt.trace.json", (1_700_000_000, 1_700_000_000))
    with tensorboard_at(folder) as tensorboard:
        ids = eventually(
            lambda: [t["id"] for t in tensorboard.traces()] if len(tensorboard.traces()) == TRACES else None
        )
        idle = probes(tensorboard, PROBES)
        analyzing = with_tabs(tensorboard, "gpudiag", ids, analyzing=True)
        for id_ in ids:
            tensorboard.report(id_)
        _save_answers(tensorboard, ids[0], folder / "floor")
        ready_bytes = with_tabs(tensorboard, floor.NAME, ids)
        with _busy():
            busy = with_tabs(tensorboard, floor.NAME, ids)
        zooming = with_tabs(tensorboard, "gpudiag", ids)
        ready_bytes += with_tabs(tensorboard, floor.NAME, ids)
        idle += probes(tensorboard, PROBES)
        return {
            IDLE: Sample(idle),
            FLOOR: ready_bytes,
            ZOOMING: zooming,
            BUSY_FLOOR: busy,
            ANALYZING: analyzing,
        }


@contextmanager
def tensorboard_at(folder: Path) -> Iterator[TensorBoard]:
    """Start a TensorBoard that has the plugin of the floor, too."""
    info = folder / "floor-site" / "floor-0.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: floor\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text(
        f"[tensorboard_plugins]\n{floor.NAME} = {floor.__name__}:{floor.FloorPlugin.__name__}\n"
    )
    (folder / "floor").mkdir()
    python_path = os.pathsep.join([str(info.parent), environment_with_plugin(folder)["PYTHONPATH"]])
    tensorboard = TensorBoard(
        folder,
        f"--logdir={folder / 'log'}",
        "--load_fast=false",
        **{"PYTHONPATH": python_path, floor.FLOOR_DIRECTORY: str(folder / "floor")},
    )
    try:
        yield tensorboard
    finally:
        tensorboard.process.kill()
        tensorboard.process.wait()


def _save_answers(tensorboard: TensorBoard, id_: str, directory: Path) -> None:
    """Save what gpudiag answers, for the plugin of the floor."""
    whole = tensorboard.ask(f"timeline?id={id_}&width=1")
    start_us, end_us = whole["start_us"], whole["end_us"]
    start_us += (end_us - start_us) / 4
    end_us = start_us + (end_us - start_us) / 16
    generation = tensorboard.ask("traces")["generation"]
    for route, query in {
        "traces": f"known={generation}",
        "report": f"id={id_}",
        "timeline": f"id={id_}&start_us={start_us}&end_us={end_us}&width={WIDTH_PX}",
    }.items():
        url = f"{tensorboard.address}/data/plugin/gpudiag/{route}?{query}"
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            (directory / route).write_bytes(answer.read())


def with_tabs(
    tensorboard: TensorBoard,
    plugin: str,
    ids: list[str],
    *,
    analyzing: bool = False,
    tabs: int = TABS,
    seconds: float = ZOOM_S,
) -> Sample:
    """Measure the other route while pages ask a plugin. analyzing: until all traces are analyzed."""
    seconds = ANALYZE_S if analyzing else seconds
    command = [
        *(sys.executable, "-m", "tests.benchmarks.tabs"),
        *(f"{tensorboard.address}/data/plugin/{plugin}", str(tabs), str(seconds), *ids),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as pages:
        time.sleep(2.0)  # until all of them are open
        found: list[float] = []
        while pages.poll() is None:
            found += probes(tensorboard, 20)
            if analyzing and all(trace["state"] == "ready" for trace in tensorboard.traces()):
                break
        assert pages.stdout is not None
        seen = json.loads(pages.stdout.read())
    return Sample(found, seen["answers"], seen["slices_s"])


@contextmanager
def _busy() -> Iterator[None]:
    """Keep as many processes busy as there are analyses at once: what any work of low priority costs."""
    command = ["nice", "-n", str(NICE), sys.executable, "-c", _SORTING]
    processes = [subprocess.Popen(command) for _ in range(WORKERS)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def probes(tensorboard: TensorBoard, count: int) -> list[float]:
    """Return how long the other route takes, again and again."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        tensorboard.get(OTHER_ROUTE)
        times.append(time.perf_counter() - began)
        time.sleep(PROBE_EVERY_S)
    return times


def table(found: Mapping[str, Sample]) -> str:
    """Format the samples. The ratios are to idle."""
    idle = found[IDLE]
    lines = [
        f"{'other route':24}{'p50':>18}{'p95':>18}{'probes':>8}{'pages ask':>12}{'slice p95':>12}",
        *(f"{name:24}{_cells(sample, idle)}" for name, sample in found.items()),
        f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    ]
    return "\n".join(lines)


def _cells(sample: Sample, idle: Sample) -> str:
    p50 = f"{sample.median_s * 1e3:.1f} ms {sample.median_s / idle.median_s:5.1f} x"
    p95 = f"{sample.p95_s * 1e3:.1f} ms {sample.p95_s / idle.p95_s:5.1f} x"
    asked = f"{len(sample.times_s):8}{sample.requests:12}"
    return f"{p50:>18}{p95:>18}{asked}{sample.slice_p95_s * 1e3:9.0f} ms"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(table(samples(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else SIZE_MB)))


if __name__ == "__main__":
    main()
