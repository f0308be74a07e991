"""Dumps are read without unpickling, and whatever else a file is gets a clear error."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from tb_gpudiag.errors import NotATrace, NothingToRead, TooLarge, TraceError, Unsafe, UsageError
from tb_gpudiag.trace.flight_recorder import read_dump as reader
from tb_gpudiag.trace.flight_recorder.plain_pickle import plain_data
from tb_gpudiag.trace.flight_recorder.read_dump import Progress, read_dump, read_dumps
from tests.some_values import slow
from tests.trace.flight_recorder.dumps import WORLD, entry, write
from tests.trace.hostile_values import hostile_values
from tests.with_each import with_each


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dump_is_read(as_json: bool, tmp_path: Path) -> None:
    entries = [
        entry("all_reduce", 1),
        entry("_all_gather_base", 2, state="started"),
        entry("send 0->1", 0, state="scheduled"),
    ]
    dump = read_dump(str(write(tmp_path, 3, entries, {WORLD: (0, 1, 3)}, as_json=as_json)), 3)
    reduce, gather, send = dump.operations
    assert dump.groups[WORLD].ranks == (0, 1, 3)
    assert (reduce.signature.kind, reduce.signature.elements) == ("all_reduce", 1_000)
    assert [o.progress for o in dump.operations] == [Progress.DONE, Progress.BEGUN, Progress.CALLED]
    assert gather.is_collective
    assert (send.sends_to, send.receives_from) == (1, -1)
    assert str(reduce.frame) == "/job/train.py:10 in step"


def test_a_dump_of_a_rank_that_called_nothing(tmp_path: Path) -> None:
    """torch writes it as JSON without a list of entries."""
    path = write(tmp_path, 0, [], {WORLD: (0, 1)}, as_json=True)
    document = json.loads(path.read_text())
    del document["entries"]
    path.write_text(json.dumps(document))
    assert read_dump(str(path), 0).operations == []


def test_a_folder_has_a_dump_for_each_rank_and_other_files(tmp_path: Path) -> None:
    for rank in (1, 0):
        write(tmp_path, rank, [entry("all_reduce", 1)], {WORLD: (0, 1)})
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "epoch_1").write_bytes(b"\x80\x02weights")
    dumps, errors = read_dumps([str(tmp_path)])
    assert [dump.rank for dump in dumps] == [0, 1]
    assert not errors


def test_two_dumps_of_a_rank_are_not_mixed(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / name, 0, [], {WORLD: (0,)})) for name in ("first", "second")]
    with pytest.raises(UsageError, match="two dumps of rank 0"):
        read_dumps(paths)


def test_without_a_dump_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead, match="TORCH_FR_DUMP_TEMP_FILE"):
        read_dumps([str(tmp_path)])


class Runs:
    """What an attack pickles."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("it_ran",)


def test_a_pickle_that_builds_objects_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"version": "2.10", "pg_config": {}, "entries": Runs()}, protocol=2))
    with pytest.raises(Unsafe):
        read_dump(str(path), 0)
    assert not (tmp_path / "it_ran").exists()


@with_each("protocol", [2, 3, 4, 5])
def test_plain_data_is_the_same_as_unpickled(protocol: int) -> None:
    data = {
        "numbers": [0, 255, 65_536, -1, 1 << 62, 1.5, None, True, False],
        "texts": ["", "ä" * 300, "line\n"],
        "nested": [{"a": [{}, []]}] * 3,
    }
    assert plain_data(pickle.dumps(data, protocol=protocol), "") == data
    assert plain_data(pickle.dumps(("a", ("b",)), protocol=protocol), "") == ["a", ["b"]]


@with_each(
    "content",
    [
        b"",
        b"\x80\x02}",
        b"\x80\x02e.",
        b"\x80\x02h\x05.",
        b"\x80\x02]}K\x01K\x02s.",
        b"\x80\x02X\xff\xff\xff\xffa.",
        b"\x80\x02}(K\x01u.",
    ],
)
def test_a_damaged_pickle_is_an_error(content: bytes) -> None:
    with pytest.raises(NotATrace):
        plain_data(content, "")


@with_each(
    "content",
    [
        b"[]",
        b"{",
        b"{}",
        b'{"entries": 1, "pg_config": {}}',
        b'{"entries": [{}], "pg_config": {}}',
        b"[" * 99_999,
        b'{"pg_config": {}, "entries": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_other_files_are_no_dumps(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace_0.json"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        read_dump(str(path), 0)


@pytest.mark.parametrize(
    "field", ["frames", "process_group", *slow(*sorted(set(entry("", 0)) - {"record_id"}))]
)
def test_a_field_of_an_operation_that_is_something_else(field: str, tmp_path: Path) -> None:
    """It is named, or nothing needs it. The other rank's dump is read."""
    for what, value in hostile_values().items():
        folder = tmp_path / what
        bad = str(write(folder, 0, [entry("all_reduce", 1), entry("all_reduce", 2) | {field: value}], {}))
        write(folder, 1, [entry("all_reduce", 1)], {WORLD: (0, 1)})
        dumps, errors = read_dumps([str(folder)])
        assert dumps[-1].rank == 1
        assert len(dumps) + len(errors) == 2
        for error in errors:
            assert error.where == bad
            assert error.what.startswith(f"entries[1].{field} ")
            assert len(error.what) < 200


@with_each("field, value", [(f, v) for f in ("line", "filename", "name") for v in hostile_values().values()])
def test_a_field_of_a_frame_that_is_something_else(field: str, value: object, tmp_path: Path) -> None:
    one = entry("all_reduce", 1)
    one["frames"] = [{"name": "step", "filename": "/job/train.py", "line": 3} | {field: value}]
    path = str(write(tmp_path, 0, [one], {}))
    if isinstance(value, str) and field != "line":
        assert read_dump(path, 0).operations
    else:
        with pytest.raises(NotATrace, match=rf"entries\[0\].frames.{field} is no"):
            read_dump(path, 0)


@with_each("ranks", [*hostile_values().values(), "[0, 1", "[0, 99999999999]", "[[0]]"])
def test_members_that_are_no_list_of_ranks(ranks: object, tmp_path: Path) -> None:
    path = tmp_path / "trace_0"
    document = {"version": "2.10", "pg_config": {WORLD: {"ranks": ranks}}, "entries": []}
    path.write_bytes(pickle.dumps(document, protocol=2))
    with pytest.raises(NotATrace, match=r"pg_config\.ranks is no"):
        read_dump(str(path), 0)


def test_what_operations_share_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a small file takes for ever: operations times frames."""
    asked: list[str] = []
    monkeypatch.setattr(reader, "place_frame", lambda name, kind: asked.append(name))
    plumbing = [{"name": f"call_{n}", "filename": "/x/torch/nn.py", "line": 1} for n in range(100)]
    entries = [{**entry("all_reduce", n), "frames": plumbing} for n in range(100)]
    assert len(read_dump(str(write(tmp_path, 0, entries, {})), 0).operations) == 100
    assert len(asked) == 100


def test_a_pickle_of_more_than_any_dump_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tb_gpudiag.trace.flight_recorder.plain_pickle.MOST_INSTRUCTIONS", 100)
    with pytest.raises(TooLarge, match="more values than any dump"):
        plain_data(pickle.dumps(list(range(1_000, 2_000)), protocol=2), "")


def test_a_deep_pickle_is_read_without_recursion() -> None:
    content = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    found = plain_data(content, "")
    for _ in range(99_999):
        (found,) = found
    assert found == []
