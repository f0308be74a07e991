"""Rank 0 finds the files that the other ranks wrote at the same time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_gpudiag.training import recordings_on_disk
from tb_gpudiag.training.recordings_on_disk import RankFiles, WrittenRecording, worker_and_time
from tests.with_each import with_each

S = 10**9
NOW = 1_700_000_000 * S


def name(worker: str, at_s: float) -> str:
    return f"{worker}.{NOW + int(at_s * S)}.pt.trace.json"


def looking(folder: Path, world_size: int = 2, at_s: float = 0, before_s: float | None = None) -> RankFiles:
    recording = WrittenRecording(str(folder / name("a", at_s)), NOW + int(at_s * S), 1, 0, world_size)
    Path(recording.path).touch()
    found = RankFiles.of(recording, NOW + int(before_s * S) if before_s is not None else 0)
    assert found is not None
    return found


def test_only_rank_0_of_several_looks() -> None:
    for rank, world_size in ((0, 1), (1, 2), (0, recordings_on_disk.MOST_RANKS + 1)):
        assert RankFiles.of(WrittenRecording("a", NOW, 1, rank, world_size), 0) is None


def test_files_of_the_same_time_belong_together(tmp_path: Path) -> None:
    ranks = looking(tmp_path, at_s=60, before_s=50)
    (tmp_path / name("b", 50.5)).touch()  # of the recording before
    (tmp_path / ("." + name("b", 60.4) + ".writing")).touch()
    (tmp_path / "other.json").touch()
    assert not ranks.are_there(os.listdir(tmp_path))
    (tmp_path / name("b", 64)).touch()
    (tmp_path / name("b", 70)).touch()  # of the recording after
    assert ranks.are_there(os.listdir(tmp_path))
    assert [Path(path).name for path in ranks.paths] == [name("a", 60), name("b", 64)]


def test_files_of_a_job_before_are_left_out(tmp_path: Path) -> None:
    (tmp_path / name("b", -3600)).touch()
    assert not looking(tmp_path).are_there(os.listdir(tmp_path))


def test_it_stops_looking_and_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = looking(tmp_path, world_size=3)
    assert not ranks.are_there(os.listdir(tmp_path))
    assert not ranks.is_late()
    monkeypatch.setattr(recordings_on_disk, "WAIT_S", 0.0)
    assert ranks.is_late()
    assert "1 of 3 ranks" in ranks.what_is_missing()


@with_each(
    ("file", "expected"),
    [
        ("w.12.pt.trace.json", ("w", 12)),
        ("w.x.12.pt.trace.json.gz", ("w.x", 12)),
        (".w.12.pt.trace.json", None),
        ("w.pt.trace.json", None),
        ("w.12.pickle", None),
    ],
)
def test_names_of_recordings(file: str, expected: tuple[str, int] | None) -> None:
    assert worker_and_time(file) == expected
