"""A job with a handler, in processes that are forked or spawned.

`python forked_job.py FOLDER TRACE fork|spawn|hang`. hang: say so when a helper runs, and wait.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

from tb_gpudiag import DiagnosisHandler
from tb_gpudiag.training import helper

helper.NICE = 0  # on a busy machine, a low priority would stall the tests


class Copies:
    """Stands in for the profiler: "records" a file that is there."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(self._source.read_bytes())


def record(handler: Any, source: Path, times: int) -> None:
    """Record, and wait for the diagnoses."""
    logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s", stream=sys.stdout)
    for _ in range(times):
        handler(Copies(source))
    handler.close(90)


def spawned(folder: Path, source: Path) -> None:
    """Record in a process that was started anew."""
    record(DiagnosisHandler(folder), source, 2)


def main(folder: Path, source: Path, how: str) -> None:
    """Run the job."""
    reports: list[object] = []
    handler = DiagnosisHandler(folder, on_diagnosis=reports.append)
    child: multiprocessing.process.BaseProcess
    if how == "spawn":
        child = multiprocessing.get_context("spawn").Process(target=spawned, args=(folder, source))
        child.start()
        record(handler, source, 1)
    else:
        handler(Copies(source))
        while not reports:
            time.sleep(0.01)
        if how == "hang":
            print("diagnosed", flush=True)
            time.sleep(600)
        # Forked while the helper and its thread are there.
        child = multiprocessing.get_context("fork").Process(target=record, args=(handler, source, 2))
        child.start()
        record(handler, source, 1)
    child.join(90)
    print("exit code", child.exitcode)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
