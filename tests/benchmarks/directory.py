"""Measure a cold directory of recordings: on the page, compared with `gpudiag diagnose`, by turns.

    python -m tests.benchmarks.directory [RECORDINGS]

Both run at usual priority, so that what else the machine does slows them alike. On a page nobody waits for a
whole directory, so its processes let other programs go first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.benchmarks.traces import small_trace
from tests.conftest import SHARED_TRACES
from tests.service.helpers import children, eventually
from tests.test_plugin_process import REPOSITORY, TensorBoard, environment_with_plugin, path_with_patch

RECORDINGS = 64
TURNS = 2

# As the page does it: frontend/src/views/runs/useAnalyses.ts.
AT_ONCE = 8
ASK_EVERY_S = 0.8
ASK_AGAIN_S = 20.0

_UNDER_WAY = ("queued", "running")
_THEN_S = 1_700_000_000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USUAL_PRIORITY = "from tb_gpudiag.service.processes import process_setup\nprocess_setup.NICE = 0\n"


@dataclass(frozen=True)
class Taken:
    """What all recordings took. of_server: the part of TensorBoard's own process."""

    seconds: float
    cpu_seconds: float
    of_server: float = 0.0
    left: int = 0  # recordings without a diagnosis


def make_directory(folder: Path, recordings: int) -> Path:
    """Write a log directory: recordings of the demo and shared ones, jobs of several ranks among them."""
    log = folder / "log"
    recorded = REPOSITORY / "demo" / "recorded"
    found = [(path, path.relative_to(root)) for root in (recorded, SHARED_TRACES) for path in _traces(root)]
    for path, name in found[:recordings]:
        (log / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, log / name)
        os.utime(log / name, (_THEN_S, _THEN_S))
    for number in range(len(found), recordings):
        (log / f"built{number}").mkdir(parents=True)
        os.utime(small_trace(log / f"built{number}"), (_THEN_S, _THEN_S))
    return log


def _traces(root: Path) -> list[Path]:
    return sorted(
        path for path in root.rglob("*") if ".pt.trace.json" in path.name or path.suffix == ".pickle"
    )


def of_command(log: Path, folder: Path) -> Taken:
    """Diagnose the directory with the command."""
    environment = environment_with_plugin(folder)
    command = [sys.executable, "-m", "tb_gpudiag", "diagnose", str(log), "--format", "json", "--quiet"]
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Taken(time.perf_counter() - began, cpu_s)


def of_page(log: Path, folder: Path, recordings: int) -> Taken:
    """Diagnose the directory as an open page does."""
    python_path = path_with_patch(folder, _USUAL_PRIORITY)
    tensorboard = TensorBoard(folder, f"--logdir={log}", "--load_fast=false", PYTHONPATH=python_path)
    try:
        eventually(lambda: tensorboard.ask("status")["traces"] == recordings)
        eventually(lambda: all(trace["content"] for trace in tensorboard.traces()))
        pid = tensorboard.process.pid
        before, own_before, began = _cpu_s(pid), _own_s(pid), time.perf_counter()
        _Page(tensorboard).analyze()
        seconds = time.perf_counter() - began
        left = sum(trace["state"] != "ready" for trace in tensorboard.traces())
        return Taken(seconds, _cpu_s(pid) - before, _own_s(pid) - own_before, left)
    finally:
        tensorboard.process.kill()
        tensorboard.process.wait()


class _Page:
    """Asks until every run is analyzed, as the page does: for some runs ahead, and for one job at a time."""

    def __init__(self, tensorboard: TensorBoard) -> None:
        self._tensorboard = tensorboard
        self._asked_s: dict[str, float] = {}
        self._job = ""

    def analyze(self) -> None:
        while self._left():
            self._ask_again()
            time.sleep(ASK_EVERY_S)

    def _left(self) -> bool:
        """Ask for what has its turn. Return whether anything is left."""
        rows = self._tensorboard.ask("runs")["rows"]
        pending = sum(row["state"] in _UNDER_WAY for row in rows)
        new = [row["trace_id"] for row in rows if row["state"] == "new"]
        jobs = [row["trace_id"] for row in rows if row["state"] == "ranks"]
        for trace in [one for one in new if one not in self._asked_s][: max(0, AT_ONCE - pending)]:
            self._ask(trace)
        self._job = self._job or next(iter(jobs), "")
        if self._job and self._tensorboard.ask(f"job?id={self._job}&ahead=1")["state"] not in _UNDER_WAY:
            self._job = ""
        return bool(pending or new or jobs)

    def _ask_again(self) -> None:
        """The server drops what nobody asks for."""
        for trace, asked_s in [*self._asked_s.items()]:
            if time.monotonic() - asked_s > ASK_AGAIN_S:
                self._ask(trace)

    def _ask(self, trace: str) -> None:
        self._asked_s[trace] = time.monotonic()
        self._tensorboard.ask(f"report?id={trace}&ahead=1")


def _cpu_s(pid: int) -> float:
    """Return the time of a process and of all that it has started."""
    below = sum(_cpu_s(child) for child in children(pid))
    return below + sum(_stat(pid)) / _TICKS_PER_S


def _own_s(pid: int) -> float:
    return sum(_stat(pid)[:2]) / _TICKS_PER_S


def _stat(pid: int) -> list[int]:
    """Return the time of a process, and of its children that have ended: user, system, user, system."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has just ended
        return [0, 0, 0, 0]
    return [int(field) for field in fields[11:15]]


def rows(folder: Path, recordings: int) -> Iterator[tuple[str, Taken]]:
    """Measure both by turns."""
    log = make_directory(folder, recordings)
    names: Any = count()
    for _ in range(TURNS):
        for name, measure in (("command", of_command), ("page", of_page)):
            own = folder / f"own{next(names)}"
            own.mkdir()
            yield name, measure(log, own, *([recordings] if name == "page" else []))


def line(name: str, taken: Taken) -> str:
    server = f"{taken.of_server:8.2f} s of them TensorBoard's, {taken.left} left" if taken.of_server else ""
    return f"{name:10}{taken.cpu_seconds:8.2f} s CPU {taken.seconds:8.2f} s{server}"


def main() -> None:
    recordings = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS
    with tempfile.TemporaryDirectory() as folder:
        for name, taken in rows(Path(folder), recordings):
            print(line(name, taken), flush=True)


if __name__ == "__main__":
    main()
