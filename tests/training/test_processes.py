"""The helper under fork and spawn, after its parent's end, and over hundreds of recordings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tb_gpudiag.service.child_process import worker_environment
from tb_gpudiag.training import diagnosis_queue
from tests.report.reports import slow_loader
from tests.service.helpers import eventually, is_alive
from tests.training.stage import Diagnosed, FakeProfiler, content_of, handler

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("forked_job.py")
RECORDINGS = 200
BURST = 8 * diagnosis_queue.MOST_WAITING
MIB = 1 << 20


def job(tmp_path: Path, how: str) -> subprocess.Popen[str]:
    source = slow_loader().write(tmp_path / "made")
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(tmp_path / "log"), str(source), how],
        stdout=subprocess.PIPE,
        text=True,
        env=worker_environment(),
    )


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_each_process_diagnoses_its_own_recordings(tmp_path: Path, how: str) -> None:
    said, _ = job(tmp_path, how).communicate(timeout=110)
    assert "exit code 0" in said
    verdicts = [line for line in said.splitlines() if "data pipeline limits" in line]
    written = sorted((tmp_path / "log").iterdir())
    assert len({path.name.split(".")[0] for path in written}) == 2
    named = [path.name for path in written for line in verdicts if path.name in line]
    # Before the fork, the program does not log yet.
    assert len(named) == len(set(named)) == len(written) - (how == "fork")


def test_the_helper_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    process = job(tmp_path, "hang")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert is_alive(pid)
    process.kill()
    process.communicate()
    eventually(lambda: not is_alive(pid))


def memory_bytes(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hundreds_of_recordings_leave_nothing_behind(tmp_path: Path) -> None:
    """Some are diagnosed, others skipped. Files, threads, processes and memory do not grow."""
    profiler = FakeProfiler(content_of(slow_loader(), tmp_path))
    got = Diagnosed()

    def state() -> tuple[int, int, int]:
        tasks = Path("/proc/self/task").glob("*/children")
        children = sum(len(task.read_text().split()) for task in tasks)
        return len(os.listdir("/proc/self/fd")), threading.active_count(), children

    def last_report_is_there() -> bool:
        got.reports[:-1] = []
        return not made._queue._waiting and not made._queue._busy

    with handler(tmp_path / "log", on_diagnosis=got, keep=5) as made:
        for number in range(RECORDINGS):
            made(profiler)
            if number % BURST == 0:
                eventually(last_report_is_there)
            if number == 2 * BURST:
                before, memory = state(), memory_bytes("self")
                helper = memory_bytes(made._queue._helper.pid or "self")
        eventually(last_report_is_there)
        assert state() == before
        assert memory_bytes("self") - memory < 20 * MIB
        assert memory_bytes(made._queue._helper.pid or "self") - helper < 100 * MIB
        assert RECORDINGS / 2 < made.skipped < RECORDINGS * 9 / 10
    assert len(list((tmp_path / "log").iterdir())) == 5
    assert not any(thread.name == "gpudiag-training" for thread in threading.enumerate())
