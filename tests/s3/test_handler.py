"""A handler with an S3 URL writes locally, uploads, and never disturbs the training."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.training import diagnosis_queue, uploads
from tests.report.reports import slow_loader
from tests.s3.server import KEY_ID, SECRET, Store
from tests.service.helpers import children, eventually
from tests.simulator.jobs import DistributedJob, simulate_job
from tests.training.stage import Diagnosed, FakeProfiler, content_of, handler

pytestmark = pytest.mark.slow


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made; also the working directory."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def profiler(tmp_path: Path) -> FakeProfiler:
    return FakeProfiler(content_of(slow_loader(), tmp_path))


def distributed(rank: int, ranks: int) -> Any:
    """Return what a rank of a job has as torch.distributed."""
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: rank,
        get_world_size=lambda: ranks,
    )


def test_a_recording_is_diagnosed_and_uploaded(store: Store, temporary: Path, profiler: FakeProfiler) -> None:
    got = Diagnosed()
    with handler(store.url("run"), worker_name="rank0", use_gzip=True, on_diagnosis=got) as made:
        made(profiler)
        (report,) = got.expect(1)
    (name,) = store.names()
    assert name.startswith("run/rank0.")
    assert name.endswith(".gz")  # other tests upload plain ones
    assert report.trace.path == store.url(name)
    assert [file.path for file in find_traces(store.url()).files] == [store.url(name)]
    assert read_trace(store.url(name)).status == "COMPLETE"
    # torch's handler makes a local folder named "s3:".
    assert os.listdir(temporary) == []


@pytest.mark.usefixtures("diagnosed_in_process")
def test_what_keep_removes_is_removed_there(store: Store, temporary: Path, profiler: FakeProfiler) -> None:
    got = Diagnosed()
    with handler(store.url("run"), keep=2, on_diagnosis=got) as made:
        for count in range(1, 5):
            made(profiler)
            got.expect(count)
        eventually(lambda: len(store.names()) <= 2, "removed")
    assert len(store.names()) == 2
    assert os.listdir(temporary) == []


@pytest.mark.usefixtures("diagnosed_in_process")
def test_an_outage_is_logged_once_and_ends(
    store: Store,
    temporary: Path,
    profiler: FakeProfiler,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "PAUSE_S", 0.01)
    monkeypatch.setattr(uploads, "ATTEMPTS", 2)  # s3fs makes several of each
    caplog.set_level(logging.INFO, "tb_gpudiag.training")
    store.proxy.set("503")
    recorded = uploads.MOST_WAITING + 4
    got = Diagnosed()
    with handler(store.url("run"), on_diagnosis=got) as made:
        for _ in range(recorded):
            made(profiler)
            assert len(list(temporary.rglob("*.json"))) <= uploads.MOST_WAITING + 7
        eventually(lambda: "could not be written" in caplog.text, "logged")
        store.proxy.set("pass")
        made(profiler)
        eventually(lambda: "can be written again" in caplog.text, "works again")
    assert uploads.MOST_WAITING <= len(store.names()) <= recorded
    assert os.listdir(temporary) == []
    assert caplog.text.count("could not be written") == 1
    assert KEY_ID not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.usefixtures("diagnosed_in_process")
def test_what_is_not_uploaded_at_the_end_stays(
    store: Store, temporary: Path, profiler: FakeProfiler, caplog: pytest.LogCaptureFixture
) -> None:
    store.proxy.set("stall")
    got = Diagnosed()
    with handler(store.url("run"), on_diagnosis=got) as made:
        made(profiler)
        eventually(lambda: store.proxy.stalled, "stalled")
        got.expect(1)
        made.close(0.1)
        (left,) = temporary.glob("gpudiag-*/*.json")
        assert left.read_bytes() == profiler.content
        assert left.parent.stat().st_mode & 0o077 == 0
        assert str(left.parent) in caplog.text
    assert store.names() == []


@pytest.mark.usefixtures("diagnosed_in_process")
def test_rank_0_reads_the_others_in_the_store(
    store: Store,
    temporary: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "tb_gpudiag.training")
    monkeypatch.setattr(diagnosis_queue, "LOOK_IN_STORE_EVERY_S", 0.2)
    simulate_job(DistributedJob("ddp", ranks=2), seed=0).write(tmp_path / "job")
    contents = [path.read_bytes() for path in sorted((tmp_path / "job").iterdir())]
    with (
        handler(store.url("run"), worker_name="rank0") as first,
        handler(store.url("run"), worker_name="rank1") as other,
    ):
        for rank, made in enumerate((first, other)):
            monkeypatch.setitem(sys.modules, "torch.distributed", distributed(rank, ranks=2))
            made(FakeProfiler(contents[rank]))
        eventually(lambda: "Job 2 ranks: " in caplog.text, "the job's verdict")
    assert os.listdir(temporary) == []


@pytest.mark.usefixtures("diagnosed_in_process")
def test_a_helper_that_is_killed_is_replaced(
    store: Store, temporary: Path, profiler: FakeProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PAUSE_S", 0.01)
    others = children()
    with handler(store.url("run")) as made:
        store.proxy.set("stall", times=1)
        made(profiler)
        eventually(lambda: store.proxy.stalled, "stalled")
        (helper,) = children() - others
        os.kill(helper, signal.SIGKILL)
        (name,) = eventually(store.names, "uploaded")
    assert store.get(name) == profiler.content
    assert os.listdir(temporary) == []
