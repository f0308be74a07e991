"""Results come back in a few files of a certain size, each as soon as it is there."""

from __future__ import annotations

import random
import tarfile
from pathlib import Path

import pytest

from tests.truth.gpu import packing
from tests.truth.gpu.packing import MACHINE, Parts, unpack


def result(root: Path, name: str, sizes: dict[str, int]) -> Path:
    for path, size in sizes.items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (root / name / path).write_bytes(random.Random(name + path).randbytes(size))
    return root / name


def names_in(out: Path) -> list[str]:
    names = []
    for path in out.glob("part*.tar"):
        with tarfile.open(path) as part:
            names += part.getnames()
    return names


def test_what_is_packed_comes_back_from_parts_of_a_certain_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PART_BYTES", 60_000)
    work, out, found = (tmp_path / name for name in ("work", "out", "found"))
    out.mkdir()
    (out / MACHINE).write_text("{}")
    found.mkdir()
    parts = Parts(out)
    jobs = [result(work, f"job{number}", {"a/plain": 20_000, "times": 100}) for number in range(5)]
    for number, job in enumerate(jobs):
        assert parts.add(job) == ""
        # What is there can be read at once, whatever comes later.
        assert f"job{number}/times" in names_in(out)
    assert len(list(out.glob("part*.tar"))) > 1
    assert all(part.stat().st_size <= 60_000 for part in out.glob("part*.tar"))
    unpack(out, found)
    for job in jobs:
        assert (found / job.name / "a/plain").read_bytes() == (job / "a/plain").read_bytes()
    assert (found / MACHINE).exists()


def test_without_room_the_recordings_with_stacks_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "PART_BYTES", 50_000)
    monkeypatch.setattr(packing, "MOST_PARTS", 1)
    (tmp_path / "out").mkdir()
    parts = Parts(tmp_path / "out")
    job = result(tmp_path, "job", {"a/stacks/trace": 20_000, "b/plain/trace": 20_000, "times.json": 10})
    assert parts.add(job) == "; no room for a/stacks/trace"
    assert sorted(names_in(tmp_path / "out")) == ["job/b/plain/trace", "job/times.json"]
