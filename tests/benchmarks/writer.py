"""A training loop that records once per second: `python -m tests.benchmarks.writer FOLDER TRACE SECONDS HOW`.

HOW: "plain" writes the recordings as torch's handler does, "handler" uses DiagnosisHandler. A recording is a
copy of TRACE: no torch is needed. Prints the times of the steps between recordings, and of the recordings.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from tb_gpudiag import DiagnosisHandler
from tests.training.stage import FakeProfiler

KEPT: Final = 5
EVERY_S: Final = 1.0
WIDTH: Final = 192
# What is not diagnosed by then is of no interest: all is measured.
CLOSE_S: Final = 1.0


def main() -> None:
    folder, trace, seconds, how = sys.argv[1:]
    logging.getLogger("tb_gpudiag.training").setLevel(logging.CRITICAL)
    profiler = FakeProfiler(Path(trace).read_bytes())
    handler: Any = DiagnosisHandler(folder, "rank0", keep=KEPT) if how == "handler" else Plain(Path(folder))
    steps_s, records_s = [], []
    matrix = np.random.default_rng(0).random((WIDTH, WIDTH), np.float32)
    end_s = time.perf_counter() + float(seconds)
    next_s = time.perf_counter()
    while (began_s := time.perf_counter()) < end_s:
        if began_s >= next_s:
            handler(profiler)
            next_s = began_s + EVERY_S
            records_s.append(time.perf_counter() - began_s)
            continue
        for _ in range(8):
            matrix = np.tanh(matrix @ matrix)
        steps_s.append(time.perf_counter() - began_s)
    handler.close(CLOSE_S)
    print(
        json.dumps({"steps_s": steps_s, "records_s": records_s, "files": len(list(Path(folder).iterdir()))})
    )


class Plain:
    """Writes recordings, and deletes the oldest ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: list[Path] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, profiler: FakeProfiler) -> None:
        self._paths.append(self._folder / f"rank0.{time.time_ns()}.pt.trace.json")
        profiler.export_chrome_trace(str(self._paths[-1]))
        if len(self._paths) > KEPT:
            self._paths.pop(0).unlink()

    def close(self, timeout_s: float) -> None:
        pass


if __name__ == "__main__":
    main()
