"""The shared cache: bounded by many processes at once, shared with a group, and never trusted to be whole."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from tb_gpudiag.service.caches import shared_cache
from tb_gpudiag.service.caches.cache_entry import Arrays, write_to
from tb_gpudiag.service.caches.shared_cache import SharedCache, owner
from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.with_each import with_each

KEY, OTHER = "a" * 32, "b" * 32
MARK = "c" * 32
ROOM = 1 << 20


def put(cache: SharedCache, key: str = KEY, text: str = "report", numbers: int = 10) -> bool:
    arrays: Arrays = {"x": np.arange(numbers)}

    def write(file: IO[bytes]) -> None:
        write_to(file, gzip.compress(text.encode()), arrays, {"key": key, "trace": MARK, "sentence": text})

    return cache.put(key, write)


def text_of(cache: SharedCache, key: str = KEY, mark: str = MARK) -> str | None:
    found = cache.find(key, mark)
    return gzip.decompress(found[0].report_gz).decode() if found is not None else None


def test_another_process_finds_an_entry_and_who_wrote_it(tmp_path: Path) -> None:
    assert put(SharedCache(tmp_path / "team", ROOM), text="hello")
    other = SharedCache(tmp_path / "team", ROOM)
    assert other.keys() == {KEY}
    found = other.find(KEY, MARK)
    assert found is not None
    entry, who = found
    assert gzip.decompress(entry.report_gz) == b"hello"
    assert entry.arrays["x"].tolist() == list(range(10))
    assert who == owner(os.geteuid())
    assert other.note == ""


@with_each(("key", "mark"), [(OTHER, MARK), (KEY, OTHER), (KEY, "")])
def test_an_entry_is_served_for_its_own_trace_only(tmp_path: Path, key: str, mark: str) -> None:
    cache = SharedCache(tmp_path / "team", ROOM)
    put(cache)
    os.link(tmp_path / "team" / f"{KEY}.gpudiag", tmp_path / "team" / f"{OTHER}.gpudiag")  # forged
    assert text_of(cache, key, mark) is None


@with_each("at", [3, 20, 60, 200, 300, -1])
@with_each("how", ["cut off", "changed", "longer", "empty"])
def test_a_damaged_entry_is_ignored_and_replaced(tmp_path: Path, at: int, how: str) -> None:
    cache = SharedCache(tmp_path / "team", ROOM)
    put(cache)
    path = tmp_path / "team" / f"{KEY}.gpudiag"
    content = path.read_bytes()
    at %= len(content)
    changed = {
        "cut off": content[:at],
        "changed": content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
        "longer": content + b"more",
        "empty": b"",
    }[how]
    path.write_bytes(changed)
    found = text_of(cache)
    # A byte between two parts has no meaning.
    assert found is None or (how == "changed" and found == "report")
    assert put(cache, text="again")
    assert text_of(cache) == "again"


@with_each("what", ["pipe", "folder", "link"])
def test_other_things_with_the_name_of_an_entry_are_ignored(tmp_path: Path, what: str) -> None:
    cache = SharedCache(tmp_path / "team", ROOM)
    put(cache, OTHER)
    path = tmp_path / "team" / f"{KEY}.gpudiag"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "team" / f"{OTHER}.gpudiag")
    assert text_of(cache) is None
    assert text_of(cache, OTHER) == "report"
    put(cache)
    assert text_of(cache) == (None if what == "folder" else "report")


@with_each(("of_directory", "of_entry"), [(0o2775, 0o664), (0o700, 0o600), (0o1777, 0o664)])
def test_entries_have_the_permissions_of_the_directory(
    tmp_path: Path, of_directory: int, of_entry: int
) -> None:
    directory = tmp_path / "team"
    directory.mkdir()
    directory.chmod(of_directory)
    before = os.umask(0o077)
    try:
        put(SharedCache(directory, ROOM))
    finally:
        os.umask(before)
    (entry,) = directory.iterdir()
    assert stat.S_IMODE(entry.stat().st_mode) == of_entry
    assert entry.stat().st_gid == directory.stat().st_gid


def test_a_directory_that_is_made_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        put(SharedCache(tmp_path / "team", ROOM))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "team").stat().st_mode) == 0o750


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = SharedCache(tmp_path / "team", 10_000)
    for number in range(9):
        put(cache, f"{number:032x}", numbers=300)
        os.utime(tmp_path / "team" / f"{number:032x}.gpudiag", (number, number))
    assert cache.keys() == {f"{number:032x}" for number in (6, 7, 8)}
    assert text_of(cache, f"{6:032x}") == "report"  # now the last used
    put(cache, f"{9:032x}", numbers=300)
    assert cache.keys() == {f"{number:032x}" for number in (6, 8, 9)}


def test_an_entry_that_is_too_large_is_not_added(tmp_path: Path) -> None:
    cache = SharedCache(tmp_path / "team", 10_000)
    put(cache, OTHER)
    assert not put(cache, KEY, numbers=10_000)
    assert cache.keys() == {OTHER}
    assert len(list((tmp_path / "team").iterdir())) == 1


def test_only_our_files_are_deleted(tmp_path: Path) -> None:
    cache = SharedCache(tmp_path / "team", 10_000)
    put(cache)
    mine = tmp_path / "team" / "notes.gpudiag"
    mine.write_bytes(bytes(50_000))
    left = tmp_path / "team" / f".{KEY}-{OTHER}.draft"
    new = tmp_path / "team" / f".{OTHER}-{KEY}.draft"
    for draft in (left, new):
        draft.write_bytes(b"half")
    os.utime(left, (1, 1))
    put(cache, OTHER)
    assert cache.keys() == {KEY, OTHER}
    assert [path.exists() for path in (mine, left, new)] == [True, False, True]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_can_still_be_read(tmp_path: Path) -> None:
    put(SharedCache(tmp_path / "team", ROOM))
    (tmp_path / "team").chmod(0o555)
    cache = SharedCache(tmp_path / "team", ROOM)
    assert not put(cache, OTHER)
    assert "Permission denied" in cache.note
    assert text_of(cache) == "report"


def test_a_directory_that_is_not_there_is_noted_once_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = SharedCache(tmp_path / "mount" / "team", ROOM)
    for _ in range(3):
        assert not put(cache)
        assert cache.keys() == set()
        assert text_of(cache) is None
    assert "No such file or directory" in cache.note
    assert len(caplog.records) == 1
    (tmp_path / "mount").mkdir()
    assert put(cache)
    assert cache.note == ""


def test_a_full_disk_leaves_no_draft(tmp_path: Path) -> None:
    cache = SharedCache(tmp_path / "team", ROOM)

    def fails(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    assert not cache.put(KEY, fails)
    assert "No space left" in cache.note
    assert list((tmp_path / "team").iterdir()) == []


def test_an_unknown_user_is_a_number() -> None:
    assert owner(2**31 - 7) == f"user {2**31 - 7}"


WRITES = """
import sys
from pathlib import Path
from tests.service.test_shared_cache import put, text_of
from tb_gpudiag.service.caches.shared_cache import SharedCache

folder, me = Path(sys.argv[1]), int(sys.argv[2])
cache = SharedCache(folder, 60_000)
for number in range(30):
    key = f"{(number * 7 + me * 3) % 40:032x}"
    assert put(cache, key, "same", numbers=300)
    found = text_of(cache, f"{number % 40:032x}")
    assert found in (None, "same"), found
    assert not cache.note, cache.note
"""


@pytest.mark.slow
def test_many_processes_keep_the_bound_without_waiting_for_one_another(tmp_path: Path) -> None:
    environment = worker_environment()
    root = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, environment["PYTHONPATH"]])
    team = tmp_path / "team"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITES), str(team), str(number)], env=environment
        )
        for number in range(3)
    ]
    sizes = []
    while any(process.poll() is None for process in processes):
        sizes.append(sum(_size(path) for path in team.glob("*.gpudiag")))
        time.sleep(0.005)  # the others need the processor
    assert [process.returncode for process in processes] == [0] * 3
    sizes.append(sum(_size(path) for path in team.iterdir()))
    # Each may add an entry of 2.8 kB between another one's look at the sizes and its own.
    assert max(sizes) <= 60_000 + 3 * 3_000
    assert sizes[-1] > 30_000
    assert not list(team.glob(".*"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_use_by_others_is_noted_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SharedCache(tmp_path / "team", ROOM)
    put(cache)
    path = tmp_path / "team" / f"{KEY}.gpudiag"
    before = path.stat().st_mtime_ns
    text_of(cache)
    assert path.stat().st_mtime_ns == before
    monkeypatch.setattr(shared_cache, "_USED_EVERY_S", -1.0)
    text_of(cache)
    assert path.stat().st_mtime_ns > before
