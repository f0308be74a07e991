"""Servers and a log directory for the plugin's tests. TensorBoard's header checks must find no problem."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builder import TraceBuilder
from tests.plugin.server import Server
from tests.service.helpers import hasten
from tests.service.in_process import analyses_in_process


@pytest.fixture(autouse=True)
def no_complaint(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """TensorBoard checks the headers of every response, and logs warnings."""
    with caplog.at_level(logging.WARNING, "tensorboard"):
        yield
    assert [record.getMessage() for record in caplog.records if record.name == "tensorboard"] == []


@pytest.fixture
def serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None
) -> Iterator[Callable[..., Server]]:
    hasten(monkeypatch)
    monkeypatch.setenv("GPUDIAG_CACHE_DIR", str(tmp_path / "cache"))
    servers = []

    def make(**flags: Any) -> Server:
        servers.append(Server(**({"logdir": str(tmp_path / "log")} | flags)))
        return servers[-1]

    yield make
    for server in servers:
        for plugin in server.plugins:
            plugin.close()


def write_log(folder: Path) -> Path:
    """Write a log directory with one small trace."""
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=500)
    main.frame("train.py(12): <b>train</b>", at=1, us=480)
    main.op("aten::mm", at=10, us=20).launch("gemm", at=15, us=5, runs_at=30, runs_us=100)
    main.alloc(1024, at=12)
    main.alloc(64, at=14, device=None)
    main.op("aten::add", at=300, us=20).launch("add", at=305, us=5, runs_at=315, runs_us=50)
    trace.write(folder / "run")
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with one small trace."""
    return write_log(tmp_path / "log")


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose only trace is diagnosed, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("diagnosed")
    with pytest.MonkeyPatch.context() as patch, analyses_in_process():
        hasten(patch)
        patch.setenv("GPUDIAG_CACHE_DIR", str(folder / "cache"))
        server = Server(logdir=str(write_log(folder / "log")))
        server.ready(f"report?id={server.only_id()}")
    yield server
    for plugin in server.plugins:
        plugin.close()
