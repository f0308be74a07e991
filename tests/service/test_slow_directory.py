"""Many files, or slow storage: what a scan asks of the log directory, and what is shown meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.service.index import log_index as index_module
from tb_gpudiag.service.index.log_index import LogIndex
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.trace.files import local_search
from tb_gpudiag.trace.files.find import find_traces
from tests.service.helpers import eventually, hasten, write_trace

RUNS, FILES = 20, 5


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for run in range(RUNS):
        for number in range(FILES):
            write_trace(tmp_path / "log" / f"run{run:02}", f"worker.{number}")
        (tmp_path / "log" / f"run{run:02}" / "events.out.tfevents.1").write_bytes(b"")
    write_trace(tmp_path / "log" / "run00", "other").rename(tmp_path / "log" / "run00" / "any.json")
    return tmp_path / "log"


@dataclass
class Calls:
    """Calls of the operating system that may be slow."""

    count: dict[str, int] = field(default_factory=dict)

    def note(self, name: str) -> None:
        self.count[name] = self.count.get(name, 0) + 1


class CountedEntry:
    """An os.DirEntry whose calls are counted. On Linux, its name and kind come with the list."""

    def __init__(self, entry: os.DirEntry[str], calls: Calls) -> None:
        self._entry, self._calls = entry, calls
        self.name, self.path = entry.name, entry.path

    def is_symlink(self) -> bool:
        return self._entry.is_symlink()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks and self._entry.is_symlink():
            self._calls.note("stat")
        return self._entry.is_dir(follow_symlinks=follow_symlinks)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        self._calls.note("stat of file")
        return self._entry.stat(follow_symlinks=follow_symlinks)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    found = Calls()
    stat, scandir, first_bytes = os.stat, os.scandir, local_search.__dict__["first_bytes"]

    class Listed:
        def __init__(self, path: str) -> None:
            found.note("list")
            self._path = path

        def __enter__(self) -> Iterator[CountedEntry]:
            with scandir(self._path) as entries:
                return iter([CountedEntry(entry, found) for entry in entries])

        def __exit__(self, *_: object) -> None:
            pass

    def counted_stat(*arguments: Any, **options: Any) -> os.stat_result:
        found.note("stat")
        return stat(*arguments, **options)

    def counted_open(*arguments: Any) -> Any:
        found.note("open")
        return first_bytes(*arguments)

    monkeypatch.setattr(os, "scandir", Listed)
    monkeypatch.setattr(os, "stat", counted_stat)
    monkeypatch.setattr(local_search, "first_bytes", counted_open)
    return found


def test_known_files_cost_one_stat_each(log: Path, calls: Calls) -> None:
    first = find_traces(str(log))
    assert len(first.files) == RUNS * FILES
    assert calls.count["open"] == 1  # any.json: its name does not say what it is
    calls.count.clear()
    assert find_traces(str(log)) == first
    assert calls.count["stat of file"] == RUNS * FILES + 1
    assert calls.count["list"] == RUNS + 1
    # The folders, those above them, and the kernel's file systems.
    assert calls.count["stat"] <= RUNS + 1 + 1 + len(log.parents) + 4
    assert "open" not in calls.count


class Gate:
    """Storage that answers only while the gate is open: listing a folder waits for that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._free = 0
        self.waiting = threading.Event()
        scandir = os.scandir

        def listed(path: str) -> Any:
            if "run" in os.path.basename(path):
                if self._free:
                    self._free -= 1
                else:
                    self.waiting.set()
                    self._open.wait()
            return scandir(path)

        monkeypatch.setattr(os, "scandir", listed)

    def open(self) -> None:
        self._open.set()

    def close_after(self, folders: int) -> None:
        self._free = folders
        self.waiting.clear()
        self._open.clear()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate(monkeypatch)
    yield found
    found.open()


@pytest.fixture
def index(log: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogIndex]:
    hasten(monkeypatch)
    monkeypatch.setattr(index_module, "PART_EVERY_S", 0.0)
    found = LogIndex([Root(str(log))])
    yield found
    found.close()


def test_the_first_scan_shows_what_it_has_found_so_far(index: LogIndex, gate: Gate) -> None:
    gate.close_after(3)
    index.start()
    assert index.wait_for_first_scan(60.0)
    gate.waiting.wait()
    part = index.snapshot()
    assert not part.scanned
    runs = [entry.file.run for entry in part.entries.values()]
    assert runs == sorted(["run00", "run01", "run02"] * FILES)
    gate.open()
    whole = eventually(lambda: found if (found := index.snapshot()).scanned else None)
    assert len(whole.entries) == RUNS * FILES
    assert [whole.entries[id_] for id_ in part.entries] == list(part.entries.values())
    assert whole.generation > part.generation


def test_known_traces_are_shown_while_a_scan_hangs(index: LogIndex, gate: Gate, log: Path) -> None:
    gate.open()
    index.start()
    whole = eventually(lambda: found if (found := index.snapshot()).scanned else None)
    write_trace(log / "run99", "worker.1")
    gate.close_after(RUNS // 2)
    index.wake()
    gate.waiting.wait()
    assert index.snapshot() is whole
    gate.open()
    eventually(lambda: len(index.snapshot().entries) == RUNS * FILES + 1)
