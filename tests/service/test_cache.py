"""The cache: entries are complete or not there, also with many processes, and its size is limited."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.service import cache as cache_module
from tb_gpudiag.service.cache import Cache, digest_of_code, entry_key
from tb_gpudiag.service.entry import META, REPORT, Arrays, CorruptEntry, Entry, read_entry, write_entry
from tb_gpudiag.service.jobs import worker_environment
from tb_gpudiag.service.settings import MIB
from tests.test_layers import LAYERS


def fill(draft: Path, text: str = "report", numbers: int = 100) -> None:
    arrays: Arrays = {"x": np.arange(numbers), "empty": np.zeros(0, np.int32)}
    write_entry(draft, gzip.compress(text.encode(), mtime=0), arrays, {"sentence": text})


def put(cache: Cache, key: str, text: str = "report", numbers: int = 100) -> Entry:
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
    assert isinstance(arrays["x"], np.memmap)


def test_only_the_user_can_read_the_cache(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        put(Cache(tmp_path / "cache"), "k")
    finally:
        os.umask(previous)
    directories = [path for path in (tmp_path / "cache").rglob("*") if path.is_dir()]
    for directory in [tmp_path / "cache", *directories]:
        assert directory.stat().st_mode & 0o777 == 0o700


def test_a_draft_is_not_found_before_it_is_committed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    fill(cache.drafts()[0])
    assert cache.find("k") is None
    assert list((tmp_path / "cache" / "entries").iterdir()) == []


def test_an_empty_draft_is_not_an_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.commit(cache.drafts()[0], "k") is None
    half = cache.drafts()[0]
    half.mkdir()
    (half / REPORT).write_bytes(b"half")
    assert cache.commit(half, "k") is None
    assert cache.find("k") is None


def test_of_two_equal_entries_the_first_stays(tmp_path: Path) -> None:
    one, other = Cache(tmp_path / "cache"), Cache(tmp_path / "cache")
    first, second = one.drafts()[0], other.drafts()[0]
    fill(first, "first")
    fill(second, "second")
    assert one.commit(first, "k") is not None
    late = other.commit(second, "k")
    assert late is not None
    assert gzip.decompress(late.report_gz()) == b"first"
    assert list((tmp_path / "cache" / "drafts").iterdir()) == []


@pytest.mark.parametrize("damage", ["truncated", "changed", "gone"])
@pytest.mark.parametrize("name", [REPORT, "x.npy"])
def test_damage_is_detected_before_anything_is_served(tmp_path: Path, name: str, damage: str) -> None:
    cache = Cache(tmp_path / "cache")
    entry = put(cache, "k")
    path = entry.directory / name
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[:-1])
    elif damage == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        path.unlink()
    found = cache.find("k")
    assert found is not None
    with pytest.raises(CorruptEntry):
        found.report_gz() if name == REPORT else found.arrays()
    cache.drop(found)
    assert cache.find("k") is None
    put(cache, "k", "again")
    assert (again := cache.find("k")) is not None
    assert gzip.decompress(again.report_gz()) == b"again"


@pytest.mark.parametrize(
    "meta",
    [
        "",
        "{",
        "[]",
        "null",
        '{"files": {}, "summary": {}}',
        '{"files": {"report.json.gz": [1]}, "summary": {}}',
        '{"files": {"report.json.gz": [1, 2], "../../x.npy": [1, 2]}, "summary": {}}',
        '{"files": 3, "summary": 4}',
        "x" * (2 * MIB),
    ],
)
def test_an_entry_with_a_broken_meta_is_replaced(tmp_path: Path, meta: str) -> None:
    cache = Cache(tmp_path / "cache")
    directory = put(cache, "k").directory
    (directory / META).write_text(meta)
    assert cache.find("k") is None
    assert not directory.exists()
    (directory).mkdir()
    (directory / META).write_text(meta)
    assert gzip.decompress(put(cache, "k", "again").report_gz()) == b"again"


def test_an_array_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    """Its checksum may be right: whoever can write the array can write the checksum, too."""
    draft = tmp_path / "draft"
    fill(draft)
    np.save(draft / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    written = read_entry(draft)
    assert written is not None
    entry = Entry(draft, {**written.sizes, "x.npy": _size_and_checksum(draft / "x.npy")}, {})
    with pytest.raises(CorruptEntry):
        entry.arrays()


def _size_and_checksum(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    return len(content), zlib.crc32(content)


def test_the_least_recently_used_goes_first_and_the_last_used_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "USED_EVERY_S", 0.0)
    cache = Cache(tmp_path / "cache", limit_bytes=250_000)
    for number, key in enumerate(["a", "b", "c"]):
        entry = put(cache, key, numbers=12_500)  # 100 kB each
        os.utime(entry.directory / META, (1000 + number, 1000 + number))
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


def test_entries_in_temporary_directories_are_found_trimmed_and_deleted_at_exit(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from tb_gpudiag.service.cache import Cache
        from tests.service.test_cache import put
        cache = Cache(None, limit_bytes=250_000)
        entries = [put(cache, key, numbers=12_500) for key in "abc"]
        cache.find("a")
        cache.trim()
        print("".join(key for key in "abc" if cache.find(key)), entries[0].directory, sep="\\n")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**worker_environment(), "TMPDIR": str(tmp_path), "PYTHONSAFEPATH": ""},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    kept, directory = ended.stdout.split()
    assert kept == "ac"
    assert Path(directory).parent == tmp_path
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
        from tb_gpudiag.service.cache import Cache
        from tests.service.test_cache import fill
        cache = Cache(Path({str(tmp_path / "cache")!r}), limit_bytes=300_000)
        for turn in range(30):
            for key in "abcd":
                draft = cache.drafts()[0]
                fill(draft, "same", numbers=1000)
                entry = cache.commit(draft, key)
                if turn % 7 == 3 and entry is not None:
                    cache.drop(entry)
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
    layers = LAYERS[: LAYERS.index("service")]
    digests = {digest_of_code(tmp_path)}
    for layer in layers:
        folder = tmp_path / layer / "room"
        folder.mkdir(parents=True)
        (folder / "module.py").write_text("a = 1")
        digests.add(digest_of_code(tmp_path))
        (folder / "module.py").write_text("a = 2")
        digests.add(digest_of_code(tmp_path))
    assert len(digests) == 1 + 2 * len(layers)


def test_keys_differ_by_version_of_the_file_and_of_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {entry_key("identity", "run"), entry_key("identity2", "run"), entry_key("identityrun", "")}
    monkeypatch.setattr(cache_module, "SCHEMA", cache_module.SCHEMA + 1)
    keys.add(entry_key("identity", "run"))
    monkeypatch.setattr(cache_module, "__version__", "99")
    keys.add(entry_key("identity", "run"))
    monkeypatch.setattr(cache_module, "_code_digest", lambda: "changed")
    keys.add(entry_key("identity", "run"))
    assert len(keys) == 6
