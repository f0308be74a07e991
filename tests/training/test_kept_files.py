"""At most so many recordings stay on disk: those with findings longest, and no file of others is deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.training.recordings_on_disk import KeptFiles


class Disk:
    """A folder with recordings by number."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.kept, self.count = folder, KeptFiles(most), 0

    def record(self, found: bool | None) -> str:
        """Record once. found: None if it is not diagnosed."""
        path = str(self.folder / str(self.count))
        self.count += 1
        self.kept.make_room()
        Path(path).touch()
        self.kept.add(path)
        if found is not None:
            self.kept.settle(path, found=found)
        return path

    def names(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.iterdir())


def test_recordings_with_findings_stay_longest(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 3)
    for found in (True, False, False, True, False):
        disk.record(found)
    assert disk.names() == [0, 3, 4]


def test_what_was_not_diagnosed_is_never_deleted(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 2)
    waiting = disk.record(None)
    disk.record(None)
    disk.record(True)
    disk.record(False)
    assert disk.names() == [0, 1, 3]  # the newest one stays
    disk.kept.settle(waiting, found=False)
    assert disk.names() == [1, 3]


def test_the_oldest_goes_first_among_equals(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 2)
    for _ in range(4):
        disk.record(True)
    assert disk.names() == [2, 3]


def test_a_file_that_is_gone_already_is_forgotten(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 1)
    Path(disk.record(True)).unlink()
    disk.record(False)
    assert disk.names() == [1]


@given(st.integers(1, 4), st.lists(st.booleans(), max_size=12))
def test_never_more_than_asked_for_and_always_the_newest(
    tmp_path_factory: object, most: int, outcomes: list[bool]
) -> None:
    folder = tmp_path_factory.mktemp("disk")  # type: ignore[attr-defined]
    disk = Disk(folder, most)
    for number, found in enumerate(outcomes):
        disk.record(found)
        assert number in disk.names()
        assert len(disk.names()) == min(most, number + 1)


def test_what_cannot_be_deleted_now_is_deleted_later(tmp_path: Path) -> None:
    def refuse(_path: str) -> None:
        raise OSError("Host is down")

    disk = Disk(tmp_path, 2)
    with pytest.MonkeyPatch.context() as away:
        away.setattr(os, "unlink", refuse)
        for _ in range(4):
            disk.record(False)
        assert disk.names() == [0, 1, 2, 3]
    disk.record(False)
    assert disk.names() == [3, 4]


def test_a_recording_that_others_deleted_is_forgotten(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 2)
    os.unlink(disk.record(False))
    for _ in range(2):
        disk.record(False)
    Path(tmp_path / "0").touch()
    disk.record(False)
    assert disk.names() == [0, 2, 3]
