"""The helper under fork and spawn, after its parent's end, and over hundreds of recordings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tb_gpudiag.service.processes.process_setup import worker_environment
from tb_gpudiag.training import helper
from tests.patience import HANGS_S
from tests.report.reports import slow_loader
from tests.service.helpers import children, eventually, is_alive
from tests.training.stage import FakeProfiler, content_of, handler

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("forked_job.py")
RECORDINGS = 200
BURST = 8 * helper.MOST_WAITING
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
    said, _ = job(tmp_path, how).communicate(timeout=HANGS_S)
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
    assert process.stdout.readline() == "diagnosed\n"
    (helper,) = children(process.pid)
    process.kill()
    process.communicate()
    eventually(lambda: not is_alive(helper))


ENDS_BY_INTERRUPT = """
import atexit
from tb_gpudiag.training.helper import HelperAnswer

atexit.register(HelperAnswer, True, "what the last diagnosis says")
raise KeyboardInterrupt
"""


def test_an_interrupt_ends_the_program_as_without_a_handler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_BY_INTERRUPT], timeout=HANGS_S, env=worker_environment(), check=False
    )
    assert done.returncode == -signal.SIGINT


def memory_bytes(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hundreds_of_recordings_leave_nothing_behind(tmp_path: Path) -> None:
    """Some are diagnosed, others skipped. Files, threads, processes and memory do not grow."""
    profiler = FakeProfiler(content_of(slow_loader(), tmp_path))
    diagnosed = 0
    others = children()

    def count(_: object) -> None:
        nonlocal diagnosed
        diagnosed += 1

    def state() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(children())

    def helper_bytes() -> int:
        (helper,) = children() - others
        return memory_bytes(helper)

    threads = set(threading.enumerate())
    with handler(tmp_path / "log", on_diagnosis=count, keep=5) as made:
        for number in range(RECORDINGS):
            made(profiler)
            if number % BURST == 0:
                eventually(lambda number=number: diagnosed + made.skipped > number)  # type: ignore[misc]
            if number == 2 * BURST:
                before, memory, helper = state(), memory_bytes("self"), helper_bytes()
        eventually(lambda: diagnosed + made.skipped == RECORDINGS)
        assert state() == before
        assert memory_bytes("self") - memory < 20 * MIB
        assert helper_bytes() - helper < 100 * MIB
        assert RECORDINGS / 2 < made.skipped < RECORDINGS * 9 / 10
    # What was not diagnosed stays in any case.
    assert made.skipped <= len(list((tmp_path / "log").iterdir())) <= made.skipped + 5
    left = set(threading.enumerate()) - threads
    assert not any(thread.name == "gpudiag-training" for thread in left)
