"""The cache: entries are complete or not there, also with many processes, and its size is limited."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.errors import CorruptEntry
from tb_gpudiag.service.caches import cache as cache_module
from tb_gpudiag.service.caches.cache import Cache, digest_of_code, entry_key
from tb_gpudiag.service.caches.cache_entry import HEAD, Arrays, CacheEntry, write_entry
from tb_gpudiag.service.processes.process_setup import worker_environment
from tests.with_each import with_each


def fill(draft: Path, text: str = "report", numbers: int = 100) -> None:
    arrays: Arrays = {"x": np.arange(numbers), "empty": np.zeros(0, np.int32)}
    write_entry(draft, gzip.compress(text.encode(), mtime=0), arrays, {"sentence": text})


def put(cache: Cache, key: str, text: str = "report", numbers: int = 100) -> CacheEntry:
    draft = cache.drafts()[0]
    fill(draft, text, numbers)
    entry = cache.commit(draft, key)
    assert entry is not None
    return entry


def test_an_entry_is_found_by_another_cache_of_the_same_directory(tmp_path: Path) -> None:
    put(Cache(tmp_path / "cache"), "k", "hello")
    entry = Cache(tmp_path / "cache").find("k")
    assert entry is not None
    assert gzip.decompress(entry.report_gz()) == b"hello"
    assert entry.summary == {"sentence": "hello"}
    arrays = entry.arrays()
    assert arrays["x"].tolist() == list(range(100))
    assert arrays["empty"].shape == (0,)
    assert not arrays["x"].flags.writeable


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_an_open_timeline_keeps_one_file_open_until_it_is_dropped(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    entries = [put(cache, key) for key in "abcdefgh"]
    before = len(os.listdir("/proc/self/fd"))
    opened = [entry.arrays() for entry in entries]
    assert len(os.listdir("/proc/self/fd")) <= before + len(entries)
    assert all(arrays["x"].sum() == 99 * 50 for arrays in opened)
    del opened
    assert len(os.listdir("/proc/self/fd")) == before


def test_only_the_user_can_read_the_cache(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        put(Cache(tmp_path / "cache"), "k")
    finally:
        os.umask(previous)
    for path in [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


def test_a_draft_is_not_found_before_it_is_committed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    fill(cache.drafts()[0])
    assert cache.find("k") is None
    assert list((tmp_path / "cache" / "entries").iterdir()) == []


def test_an_empty_draft_is_not_an_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.commit(cache.drafts()[0], "k") is None
    half = cache.drafts()[0]
    half.write_bytes(b"half")
    assert cache.commit(half, "k") is None
    assert cache.find("k") is None
    assert list((tmp_path / "cache" / "drafts").iterdir()) == []


def test_of_two_equal_entries_one_stays(tmp_path: Path) -> None:
    one, other = Cache(tmp_path / "cache"), Cache(tmp_path / "cache")
    first, second = one.drafts()[0], other.drafts()[0]
    fill(first, "first")
    fill(second, "second")
    assert one.commit(first, "k") is not None
    late = other.commit(second, "k")
    assert late is not None
    assert gzip.decompress(late.report_gz()) == b"second"
    assert list((tmp_path / "cache" / "drafts").iterdir()) == []


def sections(entry: CacheEntry) -> dict[str, int]:
    """Return an offset inside each part of the entry."""
    return {
        "head": 3,
        "header": HEAD.size + 5,
        "report": entry.report.offset + 5,
        "array": entry.columns["x"].section.offset + 5,
    }


def damage(entry: CacheEntry, part: str, how: str) -> None:
    """Change the file as a bad disk does, or somebody else."""
    place, content = sections(entry)[part], entry.path.read_bytes()
    if how == "cut off":
        os.truncate(entry.path, place)
    elif how == "changed":
        entry.path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    elif how == "longer":
        entry.path.write_bytes(content + b"more")
    else:
        entry.path.unlink()


def read_all(entry: CacheEntry) -> None:
    entry.report_gz()
    entry.arrays()


@with_each("how", ["cut off", "changed", "longer", "gone"])
@with_each("part", ["head", "header", "report", "array"])
def test_damage_is_detected_before_anything_is_served(tmp_path: Path, part: str, how: str) -> None:
    cache = Cache(tmp_path / "cache")
    damage(put(cache, "k"), part, how)
    found = cache.find("k")
    if found is not None:
        with pytest.raises(CorruptEntry):
            read_all(found)
        cache.drop(found.path)
    assert cache.find("k") is None
    put(cache, "k", "again")
    assert (again := cache.find("k")) is not None
    assert gzip.decompress(again.report_gz()) == b"again"


@with_each("how", ["cut off", "changed", "gone"])
def test_damage_after_an_entry_was_found_is_detected(tmp_path: Path, how: str) -> None:
    entry = put(Cache(tmp_path / "cache"), "k")
    damage(entry, "report", how)
    with pytest.raises((CorruptEntry, FileNotFoundError)):
        entry.report_gz()
    if how != "gone":
        damage(entry, "array", how)
    with pytest.raises((CorruptEntry, FileNotFoundError)):
        entry.arrays()


HEADERS: list[object] = [
    None,
    [],
    {},
    {"summary": {}, "report": [0, 1, 2], "columns": 3},
    {"summary": 3, "report": [0, 1, 2], "columns": {}},
    {"summary": {}, "report": [0, 1], "columns": {}},
    {"summary": {}, "report": [-5, 1, 2], "columns": {}},
    {"summary": {}, "report": [0, 1 << 60, 2], "columns": {}},
    {"summary": {}, "report": [0, 1, 2], "columns": {"x": [0, 8, 0, "|O", [1]]}},
    {"summary": {}, "report": [0, 1, 2], "columns": {"x": [0, 8, 0, "<i8", [2]]}},
    {"summary": {}, "report": [0, 1, 2], "columns": {"x": [1 << 50, 8, 0, "<i8", [1]]}},
    {"summary": {}, "report": [0, 1, 2], "columns": {"x": [0, 8, 0, "<i8", [-1, -1]]}},
    {"summary": {}, "report": [0, 1, 2], "columns": {"x": [0, 8, 0, "<f8,<f8", []]}},
    {"summary": {}, "report": [0, 1, 2], "columns": {"x": [0, 0, 0, "<i8", [0, 10**30]]}},
    {"summary": {}, "report": [0, 1, 2], "columns": {"x": [0, 8, 0, "<i8", [1] * 70]}},
    {"summary": {}, "report": [0, float("inf"), 2], "columns": {}},
    {"summary": {}, "report": [0, 30, 2], "columns": {n: [0, 32, 0, "<i8", [4]] for n in "abc"}},
]


@with_each("header", HEADERS)
def test_an_entry_with_a_wrong_header_is_replaced(tmp_path: Path, header: object) -> None:
    """Its checksum may be right: whoever can write the header can write the checksum, too."""
    cache = Cache(tmp_path / "cache")
    path = put(cache, "k").path
    text = json.dumps(header).encode()
    size = HEAD.size + len(text) + 100
    path.write_bytes(HEAD.pack(b"gpudiag2", len(text), zlib.crc32(text), size) + text + bytes(100))
    assert cache.find("k") is None
    assert not path.exists()
    assert gzip.decompress(put(cache, "k", "again").report_gz()) == b"again"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "more").write_text("more")


def _link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _shared(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0o666)


@with_each("make", [_pipe, _folder, _link, _shared])
def test_what_is_not_a_file_of_this_user_is_not_opened_and_is_replaced(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    cache = Cache(tmp_path / "cache")
    path = put(cache, "k").path
    path.unlink()
    make(path)
    assert cache.find("k") is None
    assert gzip.decompress(put(cache, "k", "again").report_gz()) == b"again"
    path.unlink()
    make(path)
    cache.trim()
    assert gzip.decompress(put(cache, "k", "again").report_gz()) == b"again"


@pytest.mark.parametrize("part", ["", "entries", "drafts"])
def test_a_directory_that_others_can_write_to_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    put(Cache(tmp_path / "cache"), "k")
    (tmp_path / "cache" / part).chmod(0o777)
    cache = Cache(tmp_path / "cache")
    assert cache.find("k") is None
    assert cache.keys() == set()
    (draft,) = cache.drafts()
    assert tmp_path / "cache" not in draft.parents
    assert "other users can write to" in cache.note
    assert "GPUDIAG_CACHE_DIR" in cache.note
    assert len(caplog.records) == 1


def test_a_pipe_in_place_of_the_cache_hurts_nobody(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "cache" / "entries")
    cache = Cache(tmp_path / "cache")
    assert cache.find("k") is None
    assert len(cache.drafts()) == 1


def test_files_of_others_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    put(cache, "k")
    entries = tmp_path / "cache" / "entries"
    (entries / "mine").mkdir()
    os.utime(entries / "mine", (1000, 1000))
    cache.trim()
    assert {path.name for path in entries.iterdir()} == {"k.gpudiag", "mine"}


def test_the_least_recently_used_goes_first_and_the_last_used_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "USED_EVERY_S", 0.0)
    cache = Cache(tmp_path / "cache", limit_bytes=250_000)
    for number, key in enumerate(["a", "b", "c"]):
        entry = put(cache, key, numbers=12_500)  # 100 kB each
        os.utime(entry.path, (1000 + number, 1000 + number))
    assert cache.find("a") is not None  # used just now
    cache.trim()
    assert [key for key in "abc" if cache.find(key)] == ["a", "c"]
    assert cache.size_bytes() <= 250_000
    small = Cache(tmp_path / "cache", limit_bytes=1)
    small.trim()
    assert len(list((tmp_path / "cache" / "entries").iterdir())) == 1


def test_drafts_of_dead_processes_are_deleted_and_recent_ones_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    old, new = cache.drafts()[0], cache.drafts()[0]
    fill(old)
    fill(new)
    os.utime(old, (1000, 1000))
    cache.trim()
    assert not old.exists()
    assert new.exists()


def test_a_directory_that_cannot_be_created_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache")
    assert cache.find("k") is None
    assert len(cache.drafts()) == 1
    cache.drafts()
    assert "GPUDIAG_CACHE_DIR" in cache.note
    assert len(caplog.records) == 1


@pytest.mark.slow
def test_entries_in_a_temporary_directory_are_found_trimmed_and_deleted_at_exit(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from tb_gpudiag.service.caches import cache as cache_module
        from tests.service.test_cache import put
        cache_module.USED_EVERY_S = 0
        cache = cache_module.Cache(None, limit_bytes=250_000)
        entries = [put(cache, key, numbers=12_500) for key in "abc"]
        cache.find("a")
        cache.trim()
        print("".join(key for key in "abc" if cache.find(key)), entries[0].path, sep="\\n")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**worker_environment(), "TMPDIR": str(tmp_path), "PYTHONSAFEPATH": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    kept, path = ended.stdout.split()
    assert kept == "ac"
    assert Path(path).parents[2] == tmp_path
    assert list(tmp_path.iterdir()) == []


def is_whole(cache: Cache, key: str) -> bool:
    """Read and check the entry; return False if it is not there or is deleted meanwhile."""
    entry = cache.find(key)
    if entry is None:
        return False
    try:
        assert gzip.decompress(entry.report_gz()) == b"same"
        assert entry.arrays()["x"].sum() == 999 * 500
    except FileNotFoundError:
        return False
    except CorruptEntry as error:  # deleted, too; any other cause means half an entry
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return False
    return True


@pytest.mark.slow
def test_many_processes_at_once_leave_whole_entries(tmp_path: Path) -> None:
    """All write, drop and trim the same keys while this one reads."""
    script = f"""
        from pathlib import Path
        from tb_gpudiag.service.caches.cache import Cache
        from tests.service.test_cache import fill
        cache = Cache(Path({str(tmp_path / "cache")!r}), limit_bytes=300_000)
        for turn in range(8):
            for key in "abcd":
                draft = cache.drafts()[0]
                fill(draft, "same", numbers=1000)
                entry = cache.commit(draft, key)
                if turn % 4 == 3 and entry is not None:
                    cache.drop(entry.path)
            cache.trim()
    """
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**worker_environment(), "PYTHONSAFEPATH": ""},
            cwd=Path(__file__).parents[2],
        )
        for _ in range(3)
    ]
    cache = Cache(tmp_path / "cache", limit_bytes=300_000)
    read = 0
    while any(writer.poll() is None for writer in writers):
        read += sum(is_whole(cache, key) for key in "abcd")
    assert read > 0
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert list((tmp_path / "cache" / "drafts").iterdir()) == []


def test_a_change_in_any_layer_of_the_analysis_changes_the_keys(tmp_path: Path) -> None:
    from tests.test_layers import LAYERS  # imports all rules, which processes of other tests here need not

    layers = LAYERS[: LAYERS.index("service")]
    digests = {digest_of_code(tmp_path)}
    for layer in layers:
        folder = tmp_path / layer / "room"
        folder.mkdir(parents=True)
        (folder / "module.py").write_text("a = 1")
        digests.add(digest_of_code(tmp_path))
        (folder / "module.py").write_text("a = 2")
        digests.add(digest_of_code(tmp_path))
        (folder / "page.md").write_text("words, or the code of a fix")
        digests.add(digest_of_code(tmp_path))
    assert len(digests) == 1 + 3 * len(layers)


def test_keys_differ_by_version_of_the_file_and_of_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {entry_key("identity", "run"), entry_key("identity2", "run"), entry_key("identityrun", "")}
    monkeypatch.setattr(cache_module, "SCHEMA", cache_module.SCHEMA + 1)
    keys.add(entry_key("identity", "run"))
    monkeypatch.setattr(cache_module, "__version__", "99")
    keys.add(entry_key("identity", "run"))
    monkeypatch.setattr(cache_module, "_code_digest", lambda: "changed")
    keys.add(entry_key("identity", "run"))
    assert len(keys) == 6
