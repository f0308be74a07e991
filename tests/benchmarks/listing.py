"""Measure how long listing many traces takes, and what it costs TensorBoard's other routes.

python -m tests.benchmarks.listing [FILES]
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from tb_gpudiag.service.index.log_index import LogIndex
from tb_gpudiag.service.index.roots import Root
from tests.benchmarks.load import OTHER_ROUTE
from tests.service.helpers import eventually
from tests.slow_storage import slow_python_path
from tests.test_plugin_process import TensorBoard, environment_with_plugin

FILES_OF_RUN = 10
THEN_S = 1_700_000_000
PROBES = 400
SLOW_S = 0.2
SLOW_FILES = 200


@dataclass(frozen=True)
class Listed:
    """Times of scans, in seconds. floor: of asking the operating system alone."""

    files: int
    first_s: float
    known_s: float
    known_cpu_s: float
    floor_s: float

    def __str__(self) -> str:
        return (
            f"{self.files:7,} files: first scan {self.first_s:.2f} s, known files {self.known_s:.2f} s "
            f"({self.known_cpu_s:.2f} s of a processor), the system's calls alone {self.floor_s:.2f} s"
        )


def make_files(log: Path, count: int) -> None:
    """Write so many small files with the names of traces."""
    for first in range(0, count, FILES_OF_RUN):
        run = log / f"group{first // 1000}" / f"run{first // FILES_OF_RUN}"
        run.mkdir(parents=True)
        for number in range(first, min(first + FILES_OF_RUN, count)):
            path = run / f"host_{number}.1700000000.pt.trace.json"
            path.write_bytes(b"{}")
            os.utime(path, (THEN_S, THEN_S))


def listed(folder: Path, count: int) -> Listed:
    """Measure scans of so many files."""
    log = folder / str(count)
    make_files(log, count)
    index = LogIndex([Root(str(log))])
    began = time.perf_counter()
    index.scan()
    first_s = time.perf_counter() - began
    began, began_cpu = time.perf_counter(), time.process_time()
    index.scan()
    known_s, known_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    assert len(index.snapshot().entries) == count
    began = time.perf_counter()
    for parent, _, _ in os.walk(log):
        with os.scandir(parent) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
    return Listed(count, first_s, known_s, known_cpu_s, time.perf_counter() - began)


def probed(folder: Path, count: int) -> dict[str, list[float]]:
    """Return times of another plugin's route: of a TensorBoard on an empty log directory, of one with so many
    files, and of one on slow storage, with a page open on each, by turns."""
    logs = {"idle": folder / "empty", f"{count:,} files": folder / "many", "slow storage": folder / "slow"}
    logs["idle"].mkdir()
    make_files(logs[f"{count:,} files"], count)
    make_files(logs["slow storage"], SLOW_FILES)
    times: dict[str, list[float]] = {name: [] for name in logs}
    with _tensorboards(folder, logs) as running:
        many = running[f"{count:,} files"]
        eventually(lambda: many.ask("status")["traces"] == count)
        eventually(lambda: running["slow storage"].traces())
        with _pages(list(running.values())):
            for _ in range(PROBES):
                for name, tensorboard in running.items():
                    began = time.perf_counter()
                    tensorboard.get(OTHER_ROUTE)
                    times[name].append(time.perf_counter() - began)
                time.sleep(0.03)
    return times


@contextmanager
def _tensorboards(folder: Path, logs: dict[str, Path]) -> Iterator[dict[str, TensorBoard]]:
    running: dict[str, TensorBoard] = {}
    try:
        for number, (name, log) in enumerate(logs.items()):
            own = folder / f"tensorboard{number}"
            own.mkdir()
            environment = environment_with_plugin(own)
            if name == "slow storage":
                path = slow_python_path(own / "slow_site", log, SLOW_S, environment["PYTHONPATH"])
                environment["PYTHONPATH"] = path
            running[name] = TensorBoard(own, f"--logdir={log}", PYTHONPATH=environment["PYTHONPATH"])
        yield running
    finally:
        for tensorboard in running.values():
            tensorboard.process.kill()
            tensorboard.process.wait()


@contextmanager
def _pages(running: list[TensorBoard]) -> Iterator[None]:
    """Keep a page open on each: it asks every second for what has changed."""
    stop = threading.Event()

    def ask() -> None:
        known = [tensorboard.ask("traces")["generation"] for tensorboard in running]
        while not stop.wait(1.0):
            for at, tensorboard in enumerate(running):
                known[at] = tensorboard.ask(f"traces?known={known[at]}")["generation"]

    page = threading.Thread(target=ask)
    page.start()
    try:
        yield
    finally:
        stop.set()
        page.join()


def table(times: dict[str, list[float]]) -> str:
    """Format the times of the other route."""
    rows = []
    for name, found in times.items():
        cuts = quantiles(found, n=20)
        rows.append(f"{name:16} p50 {cuts[9] * 1e3:6.1f} ms   p95 {cuts[18] * 1e3:6.1f} ms")
    return "\n".join([*rows, f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"])


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as folder:
        print(listed(Path(folder), count // 10))
        print(listed(Path(folder), count))
        print(table(probed(Path(folder), count)))


if __name__ == "__main__":
    main()
