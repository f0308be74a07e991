"""Files that look like exports and are not, or not whole: a clear error, soon, and nothing of theirs runs."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.errors import NotATrace, TooLarge, TraceError, Unreadable
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.nsys import nsys_calls, nsys_database
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import Category
from tests.builder.nsys import Export


def small() -> Export:
    return Export().call("cudaLaunchKernel_v7000", 100, 200, 5).kernel("gemm", 300, 900, 5)


def many(path: Path, rows: int = 20_000) -> Path:
    export = small()
    for i in range(rows):
        export.kernel(f"kernel {i % 100}", 1000 + i, 1001 + i, i + 6)
    return export.write(path)


def change(path: Path, *statements: str) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return path


def test_another_program_s_database(tmp_path: Path) -> None:
    path = change(tmp_path / "notes.sqlite", "CREATE TABLE notes (id INTEGER, text TEXT)")
    with pytest.raises(NotATrace, match="no activity of GPUs") as raised:
        read_trace(str(path))
    assert "nsys" in raised.value.remedy


def test_no_database_behind_the_header(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(b"SQLite format 3\x00" + bytes(5000))
    with pytest.raises(TraceError, match=r"SQLite database|damaged") as raised:
        read_trace(str(path))
    assert raised.value.where == str(path)


@pytest.mark.slow
def test_cut_off(tmp_path: Path) -> None:
    path = many(tmp_path / "report.sqlite")
    content = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(Unreadable, match="damaged or cut off") as raised:
            read_trace(str(path))
        assert "nsys export" in raised.value.remedy


@pytest.mark.slow
def test_damaged_anywhere(tmp_path: Path) -> None:
    """Random damage ends in an error of ours or in a trace, never in anything else."""
    content = many(tmp_path / "whole.sqlite", 300).read_bytes()
    random = np.random.default_rng(3)
    path = tmp_path / "report.sqlite"
    read = 0
    for _ in range(60):
        damaged = np.frombuffer(content, np.uint8).copy()
        at = random.integers(16, len(damaged), 40)
        damaged[at] = random.integers(0, 256, 40)
        path.write_bytes(damaged.tobytes())
        with contextlib.suppress(TraceError):
            read_trace(str(path))
            read += 1
    assert read < 60


def test_still_being_written(tmp_path: Path) -> None:
    path = small().write(tmp_path / "report.sqlite")
    (tmp_path / "report.sqlite-journal").write_bytes(b"x")
    with pytest.raises(Unreadable, match="still being written"):
        read_trace(str(path))


def test_views_are_not_read(tmp_path: Path) -> None:
    path = change(
        small().write(tmp_path / "report.sqlite"),
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO hidden",
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM hidden",
    )
    assert not len(read_trace(str(path)).events.where(Category.KERNEL))


def test_rows_that_are_in_a_log_beside_the_file(tmp_path: Path) -> None:
    path = small().write(tmp_path / "report.sqlite")
    (tmp_path / "report.sqlite-wal").write_bytes(b"x")
    with pytest.raises(Unreadable, match="still being written"):
        read_trace(str(path))


@pytest.mark.parametrize("written", ["AS (", "as\t(", "AS/**/(", "GENERATED ALWAYS AS --\n(", "STORED"])
def test_columns_that_run_compute_are_refused(written: str, tmp_path: Path) -> None:
    path = small().write(tmp_path / "report.sqlite")
    code = "1 + 0 * length(hex(zeroblob(100000000)))"
    computed = f"AS (start + {code}) STORED" if written == "STORED" else f"{written}{code})"
    try:
        change(
            path,
            f'CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, "end" INTEGER, deviceId {computed})',
        )
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no generated columns")
    with pytest.raises(NotATrace, match="computes columns"):
        read_trace(str(path))


def test_values_of_other_types(tmp_path: Path) -> None:
    export = small()
    export.kernel(
        "odd", 1000, 1001, 6, deviceId="GPU", streamId="x" * 1000, gridX=-3, registersPerThread=1e300
    )
    export.kernel("no time", 0, 1001, 6)
    export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][-1] = {
        **export.tables["CUPTI_ACTIVITY_KIND_KERNEL"][-1],
        "start": None,
    }
    export.kernel("far", 2**62, 2**63 - 1, 6)
    export.call("cudaLaunchKernel", 900, 100, 7)
    trace = read_trace(str(export.write(tmp_path / "report.sqlite")))
    assert trace.malformed_events == 3
    assert (trace.events.duration_ns >= 0).all()


def test_more_events_than_the_limit(tmp_path: Path) -> None:
    path = many(tmp_path / "report.sqlite", 200)
    with pytest.raises(TooLarge, match="more than 100 events"):
        read_trace(str(path), limits=Limits(max_events=100))


@pytest.mark.slow
def test_reading_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_database, "_LEAST_S", -1e6)
    path = many(tmp_path / "report.sqlite", 40_000)
    with pytest.raises(TooLarge, match="too long"):
        read_trace(str(path))


def test_long_names_are_cut(tmp_path: Path) -> None:
    trace = read_trace(str(small().kernel("n" * 100_000, 1000, 1001, 6).write(tmp_path / "report.sqlite")))
    assert max(map(len, trace.events.names)) == 8_192


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = change(small().write(tmp_path / "report.sqlite"), "UPDATE StringIds SET value = x'ff00fe'")
    assert len(read_trace(str(path)).events) == 2


@pytest.mark.parametrize("name", ["report.nsys-rep", "report.qdrep"])
def test_a_report_that_is_not_exported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"NVIDIA Tegra Profiler Report 2024@6@2@225")
    with pytest.raises(NotATrace, match="only nsys can read") as raised:
        read_trace(str(tmp_path / name))
    assert "nsys export --type sqlite" in raised.value.remedy


def test_nothing_is_written(tmp_path: Path) -> None:
    path = small().write(tmp_path / "report.sqlite")
    before = path.read_bytes()
    read_trace(str(path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.sqlite"]


def test_stacks_of_long_names_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stack has all frames of the one before it: texts of all of them would have gigabytes."""
    monkeypatch.setattr(nsys_calls, "_MOST_CHARACTERS", 200_000)
    export = small()
    for number in range(1, 6):
        for depth in range(128):
            symbol = export.string(f"py::{'a' * 3_000}{number}_{depth % 9}:/train.py")
            export.add("CUDA_CALLCHAINS", id=number, symbol=symbol, stackDepth=depth)
        export.call("cudaFree_v3020", 1000 * number, 1000 * number + 9, 0, 1, callchainId=number)
    texts = read_trace(str(export.write(tmp_path / "report.sqlite"))).events.call_stacks
    assert sorted({len(text) > 50_000 for text in texts if text}) == [True]
    assert max(map(len, texts)) <= 1 << 16
    assert sum(map(len, texts)) <= 200_000


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["own", "other"])
def test_overflow_chains_that_overlap(tmp_path: Path, loop: str) -> None:
    """Names of 2 MB claim to have 130, in chains of pages that lead into themselves, or all into one."""
    path = small().write(tmp_path / "report.sqlite")
    length, claimed = 2_200_000, 130_000_000
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for number, letter in enumerate("xyz"):
            row = (1_000 + number, letter * length)
            connection.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", row)
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 1000, demangledName = 1001")
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content, claims = _replaced(content, 2 * length + 13, 2 * claimed + 13)
    assert claims == 3
    for header in range(1, 30):
        content, claims = _replaced(content, length + header, claimed + header)
        if claims:
            break
    assert claims == 3
    pages = range(0, len(content), page_bytes)
    chains = []
    for byte in (b"x", b"y", b"z"):
        full = byte * (page_bytes - 4)
        chains.append([at for at in pages if content[at + 4 : at + page_bytes] == full])
        assert len(chains[-1]) > 400
    for chain in chains:
        target = chain[0] if loop == "own" else chains[0][0]
        content[chain[-1] : chain[-1] + 4] = (target // page_bytes + 1).to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(Unreadable, match="damaged"):
        read_trace(str(path))


def _replaced(content: bytearray, number: int, other: int) -> tuple[bytearray, int]:
    """Replace a number by another that takes as many bytes, and return how often it was there."""
    old, new = _varint(number), _varint(other)
    assert len(old) == len(new)
    return content.replace(old, new), content.count(old)


def _varint(number: int) -> bytes:
    """A number of SQLite: seven bits in each byte, the first ones first."""
    parts = [number & 127]
    while number := number >> 7:
        parts.append(number & 127 | 128)
    return bytes(reversed(parts))
