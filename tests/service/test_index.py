"""The live index: it notices all changes of files, and ids stay the same."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpudiag.errors import Unreadable
from tb_gpudiag.service.index import log_index as index_module
from tb_gpudiag.service.index.log_index import LogIndex, Snapshot
from tb_gpudiag.service.index.roots import Root
from tb_gpudiag.trace.files.find import Found, Tell, TraceFile
from tests.service.helpers import eventually, hasten, write_trace


class Disk:
    """A fake log directory and a fake clock."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.files: dict[str, tuple[str, float]] = {}  # name -> identity, modification time
        self.index = LogIndex(
            [Root("/log")],
            find=self.find,
            monotonic_s=lambda: self.now_s,
            wall_ns=lambda: int(self.now_s * 1e9),
        )

    def find(self, root: str, _tell: Tell) -> Found:
        return Found(
            [
                TraceFile(f"{root}/{name}", ".", name, "", 1, int(changed_s * 1e9), identity)
                for name, (identity, changed_s) in self.files.items()
            ]
        )

    def scan(self, after_s: float = 0.0) -> Snapshot:
        self.now_s += after_s
        self.index.scan()
        return self.index.snapshot()

    def only(self, after_s: float = 0.0) -> tuple[str, bool]:
        """Return the content of the only file, and whether it is being written."""
        (entry,) = self.scan(after_s).entries.values()
        return entry.content, entry.writing


def test_an_old_file_is_ready_at_once() -> None:
    disk = Disk()
    disk.files["a"] = ("v1", disk.now_s - 100)
    assert disk.only() == ("v1", False)


def test_a_store_without_times_has_complete_files() -> None:
    disk = Disk()
    disk.files["a"] = ("v1", 0)
    assert disk.only() == ("v1", False)


@pytest.mark.parametrize("skew_s", [0, 3600])
def test_a_new_file_is_ready_when_it_has_stopped_changing(skew_s: float) -> None:
    """Also if the clock of the store is ahead of ours."""
    disk = Disk()
    disk.files["a"] = ("v1", disk.now_s + skew_s)
    assert disk.only() == ("", True)
    disk.files["a"] = ("v2", disk.now_s + skew_s + 2)
    assert disk.only(after_s=2) == ("", True)
    assert disk.only(after_s=2) == ("", True)
    assert disk.only(after_s=2) == ("v2", False)


def test_a_file_that_grows_again_keeps_its_old_content_meanwhile() -> None:
    disk = Disk()
    disk.files["a"] = ("v1", disk.now_s - 100)
    disk.scan()
    disk.files["a"] = ("v2", disk.now_s + 2)
    assert disk.only(after_s=2) == ("v1", True)
    disk.files["a"] = ("v3", disk.now_s + 2)
    assert disk.only(after_s=2) == ("v1", True)
    assert disk.only(after_s=4) == ("v3", False)


def test_a_file_that_never_stops_changing_is_read_now_and_then() -> None:
    disk = Disk()
    contents = []
    for turn in range(100):
        disk.files["a"] = (f"v{turn}", disk.now_s + 2)
        contents.append(disk.only(after_s=2)[0])
    assert contents[0] == ""
    assert 3 <= len(set(contents)) <= 5  # 200 seconds


def test_with_a_slow_clock_a_growing_file_keeps_its_content() -> None:
    disk = Disk()
    disk.files["a"] = ("v0", disk.now_s - 100)
    disk.scan()
    contents = set()
    for turn in range(1, 10):
        disk.files["a"] = (f"v{turn}", disk.now_s - 60)
        contents.add(disk.only(after_s=2)[0])
    assert contents == {"v0"}


def test_the_generation_changes_only_when_something_else_does() -> None:
    disk = Disk()
    disk.files["a"] = ("v1", disk.now_s - 100)
    first = disk.scan().generation
    assert disk.scan(after_s=2).generation == first
    disk.files["b"] = ("v1", disk.now_s - 100)
    second = disk.scan(after_s=2).generation
    del disk.files["a"]
    third = disk.scan(after_s=2).generation
    assert len({first, second, third}) == 3


def test_a_file_that_comes_back_counts_as_new() -> None:
    disk = Disk()
    disk.files["a"] = ("v1", disk.now_s - 100)
    disk.scan()
    del disk.files["a"]
    assert disk.scan(after_s=2).entries == {}
    disk.files["a"] = ("v2", disk.now_s - 50)
    assert disk.only(after_s=2) == ("v2", False)


def test_a_directory_that_cannot_be_listed_does_not_hide_the_others() -> None:
    def find(root: str, _tell: Tell) -> Found:
        if root == "/refused":
            raise Unreadable("permission denied", where=root)
        if root == "/broken":
            raise RuntimeError("a driver's own error")
        return Found(
            [TraceFile(f"{root}/a", ".", "a", "", 1, 0, "v1")], [Unreadable("one folder", where="/f")]
        )

    index = LogIndex([Root("/refused", "x"), Root("/broken", "y"), Root("/log", "z")], find=find)
    index.scan()
    snapshot = index.snapshot()
    assert [entry.file.run for entry in snapshot.entries.values()] == ["z"]
    assert [problem.where for problem in snapshot.problems] == ["/refused", "/broken", "/f"]


def test_ids_are_opaque_and_the_same_after_a_restart_or_a_move(tmp_path: Path) -> None:
    write_trace(tmp_path / "one" / "run", "w.1")
    write_trace(tmp_path / "one" / "run", "w.2")
    write_trace(tmp_path / "two" / "run", "w.1")

    def ids(root: Path) -> list[str]:
        index = LogIndex([Root(str(root))])
        index.scan()
        return list(index.snapshot().entries)

    first = ids(tmp_path / "one")
    assert ids(tmp_path / "one") == first
    assert ids(tmp_path / "two") == first[:1]
    assert len(set(first)) == 2
    assert all(re.fullmatch("[0-9a-f]{20}", id_) for id_ in first)


def test_two_directories_with_the_same_files_have_different_ids(tmp_path: Path) -> None:
    write_trace(tmp_path / "one", "w.1")
    write_trace(tmp_path / "two", "w.1")
    index = LogIndex([Root(str(tmp_path / "one"), "a"), Root(str(tmp_path / "two"), "b")])
    index.scan()
    assert [entry.file.run for entry in index.snapshot().entries.values()] == ["a", "b"]


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogIndex]:
    hasten(monkeypatch)
    index = LogIndex([Root(str(tmp_path))])
    index.start()
    assert index.wait_for_first_scan(60)
    yield index
    index.close()


def test_changes_of_files_are_noticed_while_it_runs(live: LogIndex, tmp_path: Path) -> None:
    def seen() -> dict[str, tuple[bool, bool]]:
        """Return by run/span if there is a version to read, and if the file is being written."""
        return {
            f"{entry.file.run}/{entry.file.span}": (bool(entry.content), entry.writing)
            for entry in live.snapshot().entries.values()
        }

    def content() -> str:
        return next(entry.content for entry in live.snapshot().entries.values() if entry.file.span == "1")

    assert seen() == {}
    path = write_trace(tmp_path / "run", "w.1")
    eventually(lambda: seen() == {"run/1": (True, False)}, "a new run")
    write_trace(tmp_path / "run", "w.2")
    eventually(
        lambda: seen() == {"run/1": (True, False), "run/2": (True, False)}, "a new span of a known run"
    )
    before = content()
    with open(path, "a", encoding="utf-8") as file:
        file.write("more")
    eventually(lambda: seen()["run/1"] == (True, True), "growing")
    assert content() == before
    eventually(lambda: seen()["run/1"] == (True, False), "settled")
    assert content() != before
    grown = content()
    repaired = write_trace(tmp_path / "elsewhere", "x", "repaired")
    os.replace(repaired, path)
    eventually(lambda: content() != grown, "repaired")
    path.unlink()
    eventually(lambda: seen() == {"run/2": (True, False)}, "deleted")


def test_scans_slow_down_until_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[float] = []

    def find(root: str, _tell: Tell) -> Found:
        scans.append(time.monotonic())
        return Found()

    monkeypatch.setattr(index_module, "SCAN_EVERY_S", 0.01)
    monkeypatch.setattr(index_module, "SCAN_EVERY_IDLE_S", 3600.0)
    monkeypatch.setattr(index_module, "ASKED_RECENTLY_S", 0.2)
    index = LogIndex([Root("/log")], find=find)
    index.start()
    eventually(lambda: len(scans) > 5)
    eventually(lambda: time.monotonic() - scans[-1] > 0.5, "the scans pause")
    paused = len(scans)
    index.snapshot()
    eventually(lambda: len(scans) > paused)
    index.close()
