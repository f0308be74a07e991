"""What programs and commands read stays within the limits, and takes no program with it."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tb_gpudiag
from tb_gpudiag.cli.main import main
from tb_gpudiag.errors import LimitReached
from tb_gpudiag.trace.files.source import Source
from tests.patience import HANGS_S
from tests.report.reports import slow_loader
from tests.service.helpers import children

pytestmark = pytest.mark.slow

NEVER_RETURNS = """
import itertools
from tb_gpudiag.service.processes.memory_limit import AnalysisLimit
from tb_gpudiag.trace.files.source import Source
with AnalysisLimit(1 << 40, 0.01).watched("a file"):
    sum(itertools.repeat(0))
"""


def test_a_program_keeps_its_limits_and_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = slow_loader().write(tmp_path / "a")
    before = resource.getrlimit(resource.RLIMIT_DATA), signal.getsignal(signal.SIGUSR2)
    others, processes = children(), []

    def diagnose() -> None:
        for _ in range(2):
            assert tb_gpudiag.diagnose(path).findings[0].rule == "GD101"
            processes.append(children() - others)
        monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "0.001")
        with pytest.raises(LimitReached, match=r"time limit of 0\.001 s"):
            tb_gpudiag.diagnose(path)
        monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "1000")
        monkeypatch.setenv("GPUDIAG_MEMORY_LIMIT_MB", "1")
        for reads in (tb_gpudiag.diagnose, tb_gpudiag.history):
            with pytest.raises(LimitReached, match="memory limit of 1 MB"):
                reads(path)
        processes.append(set())

    thread = threading.Thread(target=diagnose)  # where no signal arrives
    thread.start()
    thread.join()
    first, second, _ = processes
    assert len(first) == 1
    assert second == first
    assert before == (resource.getrlimit(resource.RLIMIT_DATA), signal.getsignal(signal.SIGUSR2))


def test_code_that_never_returns_to_python_ends_with_its_process() -> None:
    done = subprocess.run([sys.executable, "-c", NEVER_RETURNS], timeout=HANGS_S, check=False)
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize("command", ["annotate", "dispute", "scrub"])
def test_commands_that_copy_have_a_time_limit(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = slow_loader().write(tmp_path / "a"), tmp_path / "out"
    monkeypatch.setenv("GPUDIAG_TIME_LIMIT_S", "1e-9")
    monkeypatch.setattr(Source, "__enter__", lambda _: threading.Event().wait(HANGS_S))
    assert main([command, str(path), "-o", str(out)]) == 2
    assert "stopped at its time limit" in capsys.readouterr().err
    assert not out.exists()
