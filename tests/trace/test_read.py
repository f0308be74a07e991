"""read_trace as callers use it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.read import read_trace
from tests.trace.support import document, rows, span

SMALL_CHUNKS = Limits(chunk_bytes=4096)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "w.1.pt.trace.json"
    file.write_bytes(document(*(span(f"op{i % 7}", i) for i in range(2000))))
    return str(file)


LeftBehind = Callable[[], list[str]]


@pytest.fixture
def left_behind() -> LeftBehind:
    """Names of the threads that have begun since. Other tests of this process may have a server running."""
    before = set(threading.enumerate())
    return lambda: [thread.name for thread in threading.enumerate() if thread not in before]


@pytest.mark.slow
def test_progress_rises_to_one(path: str) -> None:
    reported: list[tuple[float, str]] = []
    read_trace(path, limits=SMALL_CHUNKS, progress=lambda share, stage: reported.append((share, stage)))
    shares = [share for share, _ in reported]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert shares[-1] == 1
    assert len(set(shares)) > 5
    assert all(stage for _, stage in reported)


def test_the_progress_callback_may_stop_the_reading(path: str, left_behind: LeftBehind) -> None:
    class Stop(Exception):
        pass

    def stop(share: float, stage: str) -> None:
        if share > 0.3:
            raise Stop

    with pytest.raises(Stop):
        read_trace(path, limits=SMALL_CHUNKS, progress=stop)
    assert left_behind() == []


def test_no_thread_is_left_behind(path: str, tmp_path: Path, left_behind: LeftBehind) -> None:
    read_trace(path, limits=SMALL_CHUNKS)
    assert left_behind() == []
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"{}" + b" " * 100_000)
    with pytest.raises(NotATrace):
        read_trace(str(bad), limits=SMALL_CHUNKS)
    assert left_behind() == []


@pytest.mark.slow
def test_several_threads_may_read_at_once(path: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        limits = Limits(chunk_bytes=16 << 10)
        traces = list(pool.map(lambda _: read_trace(path, limits=limits), range(8)))
    assert len({str(rows(trace)) for trace in traces}) == 1
    assert traces[0].events_read == 2000


def test_each_name_is_kept_once(path: str) -> None:
    events = read_trace(path, limits=SMALL_CHUNKS).events
    assert sorted(events.names) == [f"op{i}" for i in range(7)]
    assert len(events.threads) == 1
