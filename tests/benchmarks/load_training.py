"""Measure a training that records into the log directory of a TensorBoard while pages poll and zoom.

    python -m tests.benchmarks.load_training

Both sides are measured: another plugin's route, and the steps of the training. A DiagnosisHandler is compared
with a plain write of the same files, with and without the TensorBoard.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from tests.benchmarks.load import PROBES, REPOSITORY, Sample, probes, tensorboard_at, with_tabs
from tests.benchmarks.traces import large_trace
from tests.service.helpers import eventually

SIZE_MB: Final = 4
TABS: Final = 10
SECONDS: Final = 20.0
# Until the loop runs.
START_S: Final = 3.0

PLAIN, HANDLER = "plain write", "DiagnosisHandler"
WATCHED: Final = f", {TABS} tabs"


@dataclass(frozen=True)
class Training:
    """Times of a loop: of its steps, and of writing a recording. files: what it left."""

    steps_s: list[float]
    records_s: list[float]
    files: int

    @property
    def step_s(self) -> float:
        return median(self.steps_s)

    @property
    def step_p95_s(self) -> float:
        return quantiles(self.steps_s, n=20)[18]

    @property
    def recordings_s(self) -> float:
        return median(self.records_s)


def measured(folder: Path) -> tuple[dict[str, Training], dict[str, Sample]]:
    """Measure the loops alone, then next to a TensorBoard. Return the loops, and the other plugin's route."""
    trace = large_trace(folder, SIZE_MB << 20)
    base = folder / "log" / "base"
    base.mkdir(parents=True)
    os.link(trace, base / "worker.1.pt.trace.json")
    os.utime(base / "worker.1.pt.trace.json", (1_700_000_000, 1_700_000_000))
    loops = {}
    for how, name in (("plain", PLAIN), ("handler", HANDLER)):
        with _writer(folder / f"alone_{how}", trace, how, SECONDS) as alone:
            loops[name] = _times(alone)
    routes = {}
    with tensorboard_at(folder) as tensorboard:
        ids = eventually(lambda: [entry["id"] for entry in tensorboard.traces()])
        tensorboard.report(ids[0])
        routes["idle"] = Sample(probes(tensorboard, PROBES))
        for how, name in (("plain", PLAIN), ("handler", HANDLER)):
            with _writer(folder / "log" / how, trace, how, SECONDS + START_S) as writer:
                routes[name + WATCHED] = with_tabs(tensorboard, "gpudiag", ids, tabs=TABS, seconds=SECONDS)
                loops[name + WATCHED] = _times(writer)
    return loops, routes


@contextmanager
def _writer(folder: Path, trace: Path, how: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.benchmarks.writer", str(folder), str(trace), str(seconds), how]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _times(process: subprocess.Popen[bytes]) -> Training:
    return Training(**json.loads(process.communicate(timeout=120)[0]))


def tables(loops: Mapping[str, Training], routes: Mapping[str, Sample]) -> str:
    """Format what was measured. The ratios are to a plain write alone, and to an idle TensorBoard."""
    plain, idle = loops[PLAIN], routes["idle"]
    lines = [f"{'training loop':28}{'step p50':>18}{'p95':>18}{'recording':>12}{'files':>7}"]
    for name, one in loops.items():
        p50, p95 = _cell(one.step_s, plain.step_s), _cell(one.step_p95_s, plain.step_p95_s)
        lines.append(f"{name:28}{p50:>18}{p95:>18}{one.recordings_s * 1e3:9.1f} ms{one.files:7}")
    lines.append(f"\n{'other route':28}{'p50':>18}{'p95':>18}{'pages ask':>12}")
    for name, sample in routes.items():
        p50, p95 = _cell(sample.median_s, idle.median_s), _cell(sample.p95_s, idle.p95_s)
        lines.append(f"{name:28}{p50:>18}{p95:>18}{sample.requests:12}")
    return "\n".join(lines)


def _cell(found_s: float, base_s: float) -> str:
    return f"{found_s * 1e3:.1f} ms {found_s / base_s:5.1f} x"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(tables(*measured(Path(folder))))


if __name__ == "__main__":
    main()
