"""TensorBoard ends at once in each phase of its work, and works where nobody can write to home or cache."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.helpers import eventually, is_alive
from tests.simulator import simulate
from tests.soak.disturb import children
from tests.test_plugin_process import REPOSITORY, TensorBoard, environment_with_plugin

EXITS_WITHIN_S = 20.0  # tenths of a second, on a machine that does nothing else

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"),
]


@contextmanager
def running(folder: Path, log: Path, **environment: str) -> Iterator[TensorBoard]:
    tensorboard = TensorBoard(folder, f"--logdir={log}", **environment)
    try:
        yield tensorboard
    finally:
        tensorboard.process.kill()
        tensorboard.process.wait()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = simulate("healthy").write(tmp_path / "log" / "run")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return tmp_path / "log"


def test_a_terminated_tensorboard_leaves_nothing(log: Path, tmp_path: Path) -> None:
    """Each phase begins with what the one before has left."""
    for number in range(2_000):
        (log / f"folder_{number}" / "deep").mkdir(parents=True)
    _terminate("listing", log, tmp_path)
    for folder in log.glob("folder_*"):
        shutil.rmtree(folder)
    for phase in ("analyzing", "cutting", "idle"):
        _terminate(phase, log, tmp_path)
    with running(tmp_path, log) as again:
        (trace,) = eventually(again.traces)
        assert again.report(trace["id"])["devices"]


def _terminate(phase: str, log: Path, folder: Path) -> None:
    with running(folder, log) as tensorboard:
        if phase != "listing":
            (trace,) = eventually(tensorboard.traces)
            tensorboard.ask(f"report?id={trace['id']}")
            if phase != "analyzing":
                assert tensorboard.report(trace["id"])["devices"]
            if phase == "cutting":
                tensorboard.ask(f"operators?id={trace['id']}")
            if phase != "idle":
                eventually(lambda: children(tensorboard.process.pid))
        below = children(tensorboard.process.pid)
        tensorboard.process.send_signal(signal.SIGTERM)
        tensorboard.process.wait(EXITS_WITHIN_S)
        eventually(lambda: not any(map(is_alive, below)))
        assert "Traceback" not in tensorboard.log()
    left = [path.name for path in (folder / "cache").rglob("*") if path.is_file()]
    assert [name for name in left if "draft" in name or name.endswith(".tmp")] == []


def test_where_neither_home_nor_cache_can_be_written(log: Path, tmp_path: Path) -> None:
    """A file in place of a folder refuses everyone, the administrator, too."""
    (tmp_path / "home").write_text("")
    nowhere = str(tmp_path / "home" / "cache")
    unwritable = {
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": nowhere,
        "GPUDIAG_CACHE_DIR": nowhere,
    }
    environment = {**environment_with_plugin(tmp_path), **unwritable}
    command = [sys.executable, "-m", "tb_gpudiag", "diagnose", str(log)]
    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "The GPU was busy" in done.stdout
    assert "Traceback" not in done.stderr
    with running(tmp_path, log, **unwritable) as tensorboard:
        (trace,) = eventually(tensorboard.traces)
        assert tensorboard.report(trace["id"])["devices"]
        assert "Traceback" not in tensorboard.log()
