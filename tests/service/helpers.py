"""Helpers for the tests of the service."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tb_gpudiag.service.analyses import analysis_queue
from tb_gpudiag.service.index import log_index
from tb_gpudiag.trace.files.find import TraceFile
from tests.patience import HANGS_S

if TYPE_CHECKING:
    from tb_gpudiag.service.service import Service

FAKE_WORKER = "tests.service.fake_worker"

T = TypeVar("T")


def eventually(question: Callable[[], T | None], what: str = "", within_s: float = HANGS_S) -> T:
    """Call the function until its result is true, and return that. Fail after the deadline.

    A question to a server costs milliseconds on both sides, so the pauses grow with the time that has passed.
    """
    begin_s = time.monotonic()
    while True:
        answer = question()
        if answer:
            return answer
        waited_s = time.monotonic() - begin_s
        if waited_s > within_s:
            pytest.fail(f"never: {what or question}")
        time.sleep(min(max(0.02, waited_s / 10), 0.1))


def is_alive(pid: int) -> bool:
    """Return whether the process runs. A zombie does not, once its other threads have ended."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]
        return state.split()[0] != "Z" or len(os.listdir(process / "task")) > 1
    except OSError:
        return False


def children(pid: int | str = "self") -> set[int]:
    """Return the process ids of a process's children: of all that its threads have started."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            found |= {int(child) for child in task.read_text().split()}
    return found


def report_text(service: Service, id_: str) -> str:
    """Wait for the ReportState of this trace, as JSON, until all of its analysis is done."""

    def ask() -> str | None:
        found = service.report(id_)
        text = gzip.decompress(found).decode() if isinstance(found, bytes) else ""
        return text if text and json.loads(text)["state"] != "running" else None

    return eventually(ask)


def trace_file(path: Path, **more: str) -> TraceFile:
    status = path.stat()
    given: dict[str, Any] = {
        "run": "run",
        "worker": "w",
        "span": "1",
        "identity": f"{status.st_mtime_ns}",
        **more,
    }
    return TraceFile(path=str(path), size_bytes=status.st_size, modified_ns=status.st_mtime_ns, **given)


def write_trace(folder: Path, name: str, text: str = "fine", *, age_s: float = 3600.0) -> Path:
    """Write a "trace" for the fake worker that looks old."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pt.trace.json"
    path.write_text(text, encoding="utf-8")
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals of scans and checks."""
    monkeypatch.setattr(log_index, "SCAN_EVERY_S", 0.05)
    monkeypatch.setattr(log_index, "SCAN_EVERY_IDLE_S", 0.05)
    monkeypatch.setattr(log_index, "SHARE_OF_TIME", 1.0)
    monkeypatch.setattr(log_index, "SETTLED_AFTER_S", 0.3)
    monkeypatch.setattr(analysis_queue, "TICK_S", 0.02)
