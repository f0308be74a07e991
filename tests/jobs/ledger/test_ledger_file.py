"""A ledger keeps what was appended, whoever else appends and whatever else is in it."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import Unreadable, UsageError
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.ledger import ledger_file
from tb_gpudiag.jobs.ledger.ledger_file import LedgerEntry, append, entries_of, read_ledger
from tests.jobs.compare.sides import finding, trace
from tests.with_each import with_each

ENTRY = LedgerEntry(
    rule="GD101",
    place="",
    base="a",
    candidate="b",
    base_name="before",
    candidate_name="after",
    became="GONE",
    promise="INSIDE",
    low_us=100,
    high_us=300,
    real_us=200,
    real_low_us=180,
    real_high_us=220,
    others_us=0,
    step_us=1000,
    time_s=1.7e9,
)


def line(**changed: Any) -> str:
    return json.dumps({"gpudiag_ledger": 1, **asdict(ENTRY), **changed})


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.jsonl")
    other = replace(ENTRY, rule="GD201", base_name="“<b>\N{SNOWMAN}”")
    append(path, [ENTRY])
    append(path, [other])
    found = read_ledger(path)
    assert (found.entries, found.unreadable, found.cut) == ([ENTRY, other], 0, False)


def test_what_was_fixed_is_entered_and_nothing_else() -> None:
    base = [
        finding("GD101", 1600, saves_us=(150, 250)),
        finding("GD201", 800, saves_us=(10, 20)),
        finding("GD301", 0),
    ]
    candidate = trace([800] * 8, "b", findings=[finding("GD201", 800)])
    (entry,) = entries_of(compare([trace([1000] * 8, "a", findings=base)], [candidate]))
    assert (entry.rule, entry.base, entry.candidate, entry.promise) == ("GD101", "a", "b", "INSIDE")
    assert (entry.low_us, entry.high_us, entry.real_us, entry.step_us) == (150, 250, 200, 1000)


def test_a_pair_that_is_verified_again_counts_once(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger")
    append(path, [ENTRY])
    append(path, [replace(ENTRY, promise="BELOW")])
    assert [entry.promise for entry in read_ledger(path).entries] == ["BELOW"]


BROKEN = [
    "",
    "?",
    "null",
    "[" * 4000,
    '{"gpudiag_ledger": 1}',
    line(gpudiag_ledger=2),
    line(rule="GD999"),
    line(rule=1),
    line(promise="KEPT"),
    line(low_us=400),
    line(high_us=0, low_us=0),
    line(real_us=float("nan")),
    line(real_us=float("inf")),
    line(real_us=10**400),
    line(real_us=True),
    line(real_us="200"),
    line(base="../../x"),
    line(place="x" * 5000),
]


@with_each("broken", BROKEN)
def test_a_broken_line_costs_only_itself(broken: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text(f"{line()}\n{broken}\n{line(rule='GD201')}\n")
    found = read_ledger(str(path))
    assert [entry.rule for entry in found.entries] == ["GD101", "GD201"]
    assert found.unreadable == bool(broken)


def test_bytes_that_are_no_text_are_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"\xff\xfe\0\n" + line().encode())
    assert (len(read_ledger(str(path)).entries), read_ledger(str(path)).unreadable) == (1, 1)


def test_names_are_bounded_and_move_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text(line(base_name="\x1b[2J" + "x" * 3000))
    (entry,) = read_ledger(str(path)).entries
    assert "\x1b" not in entry.base_name
    assert len(entry.base_name) <= 200


def test_a_line_after_a_torn_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text(f"{line()}\n{line()[:80]}")
    append(str(path), [replace(ENTRY, rule="GD201")])
    found = read_ledger(str(path))
    assert ([entry.rule for entry in found.entries], found.unreadable) == (["GD101", "GD201"], 1)


def test_a_ledger_that_is_too_long_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger"
    path.write_text("".join(f"{line(base=str(number))}\n" for number in range(100)))
    monkeypatch.setattr(ledger_file, "MOST_BYTES", 2000)
    found = read_ledger(str(path))
    assert found.cut
    assert 0 < len(found.entries) < 10


def test_nothing_is_added_to_another_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(UsageError, match="not a ledger"):
        append(str(path), [ENTRY])
    assert path.read_text() == '{"traceEvents": []}'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="regular file"):
        read_ledger(str(path))
    with pytest.raises(UsageError, match="regular file"):
        append(str(path), [ENTRY])


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        read_ledger(str(tmp_path / "missing"))
    with pytest.raises(Unreadable):
        append(str(tmp_path / "missing" / "ledger"), [ENTRY])
    for use in (read_ledger, lambda path: append(path, [ENTRY])):
        with pytest.raises(UsageError, match="disk"):
            use("s3://bucket/ledger")


def _write(path: str, writer: int, many: int) -> None:
    for number in range(many):
        append(path, [replace(ENTRY, base=f"{writer}-{number}", place="x" * (number % 150))] * 2)


@pytest.mark.slow
def test_processes_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path, many = str(tmp_path / "ledger"), 200
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, writer, many)) for writer in range(3)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert [one.exitcode for one in writers] == [0] * 3
    found = read_ledger(path)
    assert found.unreadable == 0
    assert len(found.entries) == 3 * many
    assert len(Path(path).read_text().splitlines()) == 6 * many
