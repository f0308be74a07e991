"""A profiler that writes a given trace, and a handler with a helper that is not in the background."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.training import helper
from tb_gpudiag.training.diagnosis_handler import DiagnosisHandler
from tests.builder import TraceBuilder
from tests.patience import HANGS_S


class FakeProfiler:
    """Exports the same bytes again and again, as torch.profiler does: compressed if the name says so."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.step_num = 0

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(gzip.compress(self.content) if path.endswith(".gz") else self.content)


def content_of(trace: TraceBuilder, folder: Path) -> bytes:
    return trace.write(folder / "made").read_bytes()


class Diagnosed:
    """Reports that a handler passes on. `expect` waits for them."""

    def __init__(self) -> None:
        self.reports: list[pb.Report] = []
        self.threads: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self, report: pb.Report) -> None:
        with self._changed:
            self.reports.append(report)
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def expect(self, count: int) -> list[pb.Report]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.reports) >= count, HANGS_S), len(self.reports)
            return list(self.reports)


@contextmanager
def handler(folder: str | Path, **options: Any) -> Iterator[DiagnosisHandler]:
    """Handler whose helper runs at normal priority: the lowest one would stall tests on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helper, "NICE", 0)
        made = DiagnosisHandler(folder, **options)
        try:
            yield made
        finally:
            made.close(HANGS_S)
