"""Only plain data is unpickled, whatever the file contains."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.errors import NotATrace, TooLarge, TraceError, Unsafe
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.memory.snapshot_pickle import load_plain
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.with_each import with_each

PLAIN = {
    "segments": [
        {"address": 0x7F0000000000, "blocks": [], "segment_pool_id": (0, 1), "is_expandable": False}
    ],
    "device_traces": [[{"action": "alloc", "size": 1 << 40, "line": 300, "big": 70_000, "none": None}], []],
    "settings": {
        "ratio": 0.5,
        "on": True,
        "negative": -5,
        "large": 2**63,
        "below": -(2**62),
        "pair": (2**31 - 1, -1),
    },
    "texts": ["", "ä" * 40, "x" * 255, "y" * 256, "z" * 100_000, "\u2028", "x" * 16, "x" * 31, "x" * 128],
}


class Calls:
    """Pickles as a function call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class Plain:
    """An object of a class."""


def write(data: bytes, folder: Path) -> str:
    path = folder / "dump_snapshot.pickle"
    path.write_bytes(data)
    return str(path)


def load(data: bytes) -> Any:
    return load_plain(data, Limits(), "x.pickle")


@with_each("protocol", [2, 3, 4, 5])
def test_plain_data_survives_a_round_trip(protocol: int) -> None:
    assert load(pickle.dumps(PLAIN, protocol)) == PLAIN


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [2, 4])
def test_many_shared_and_many_different_objects_survive(protocol: int) -> None:
    shared = {"filename": "a.py", "line": 3, "name": "f"}
    value = [
        [dict(shared), shared, f"text {i}", {"n": i}] for i in range(70_000)
    ]  # more memo entries than two bytes count
    assert load(pickle.dumps(value, protocol)) == value


def by_lines(function: str, argument: str) -> bytes:
    """Make a call in the oldest form, with the name in lines."""
    return (
        b"\x80\x02c"
        + function.replace(".", "\n").encode()
        + b"\nX"
        + struct.pack("<I", len(argument))
        + (argument.encode() + b"\x85R.")
    )


@with_each("protocol", [2, 3, 4, 5])
def test_a_pickle_that_would_run_a_command_is_refused_and_nothing_runs(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "was here"
    document = {"segments": [], "device_traces": [Calls(os.system, f"touch '{mark}'")]}
    with pytest.raises(Unsafe, match=r"(posix|nt)\.system.*was not read"):
        read_trace(write(pickle.dumps(document, protocol), tmp_path))
    assert not mark.exists()


@with_each(
    "value",
    [
        Calls(eval, "1"),
        Calls(getattr, 1, "real"),
        Plain(),
        Plain,
        print,
        OrderedDict(a=1),
        object(),
        1j,
        range(3),
    ],
)
def test_objects_are_refused(value: Any, tmp_path: Path) -> None:
    for protocol in (2, 4):
        with pytest.raises(Unsafe):
            read_trace(write(pickle.dumps([value], protocol), tmp_path))


@with_each(
    "instructions",
    [
        by_lines("os.system", "true")[2:],
        b"(X\x04\x00\x00\x00trueios\nsystem\n.",  # INST
        b"(cos\nsystem\nX\x04\x00\x00\x00trueo.",  # OBJ
        b"\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x04true\x85R.",
        b"\x82\x01.",  # EXT1, EXT2, EXT4
        b"\x83\x01\x00.",
        b"\x84\x01\x00\x00\x00.",
        b"}}b.",  # BUILD
        b"K\x01K\x02\x86K\x01K\x02\x86R.",  # REDUCE
        b"K\x01K\x01K\x02\x86\x81.",  # NEWOBJ
        b"K\x01K\x01K\x02\x86}\x92.",  # NEWOBJ_EX
        b"X\x01\x00\x00\x00aQ.",  # BINPERSID
        b"Pa\n.",
    ],
)
def test_instructions_that_build_objects_are_refused(instructions: bytes, tmp_path: Path) -> None:
    with pytest.raises(Unsafe, match="builds objects"):
        read_trace(write(b"\x80\x04" + instructions, tmp_path))


def test_the_error_names_the_function_that_would_be_called(tmp_path: Path) -> None:
    with pytest.raises(Unsafe, match=r"\(os\.system\)") as raised:
        read_trace(write(by_lines("os.system", "true"), tmp_path))
    assert raised.value.where.endswith("dump_snapshot.pickle")
    assert "pickle.load" in raised.value.remedy


def test_an_extension_that_is_cached_in_this_process_is_refused(tmp_path: Path) -> None:
    import copyreg

    copyreg.add_extension("os", "system", 77)
    try:
        pickle.loads(b"\x80\x02\x82\x4d.")  # it is in the cache now
        with pytest.raises(Unsafe):
            read_trace(write(b"\x80\x02\x82\x4d.", tmp_path))
    finally:
        copyreg.remove_extension("os", "system", 77)


@with_each(
    "data",
    [
        b"\x80\x04}" + b")" + b"\x85" * 2_000_000 + b"Ns.",  # a key nested so deep that hashing it overflows
        b"\x80\x04}" + b"(t" * 1_000_000 + b"Ns.",
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of two billion entries
        b"\x80\x04\x8b\x00\x00\x00\x7f.",  # a number of two gigabytes
        b"\x80\x04\x8e\x00\x00\x00\x00\x00\x01\x00\x00.",  # bytes of a terabyte
        b"\x80\x05\x96\x00\x00\x00\x00\x00\x01\x00\x00.",
        b"\x80\x04}\x8a\x05\x00\x00\x00\x00\x01K\x01\x86Ns.",  # keys that could all have the same hash
        b"\x80\x04\x8d\x00\x00\x00\x00\x00\x01\x00\x00.",
    ],
)
def test_pickles_that_would_exhaust_the_machine_are_refused_at_once(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(NotATrace):
        read_trace(write(data, tmp_path))


def test_a_memo_has_no_more_entries_than_fit_the_file() -> None:
    """The unpickler would allocate 16 bytes per entry at once."""
    with pytest.raises(NotATrace):
        load(b"\x80\x02}r\xff\xff\x01\x00.")


def test_an_instruction_across_the_end_of_a_frame_hides_nothing() -> None:
    """When reading in pieces, the unpickler forgets the rest of a frame.

    Here, it would lose two bytes of a text's length, and run the text as instructions that nobody checked.
    """
    text = "\0\0]." + "n" * 96
    frame = b"]" + b"\x94" * 20_000 + b"X" + struct.pack("<H", len(text))
    data = b"\x80\x04\x95" + struct.pack("<Q", len(frame)) + frame + b"\0\0" + text.encode() + b"."
    assert load(data) == text


def test_a_text_longer_than_the_file_is_cut_off(tmp_path: Path) -> None:
    with pytest.raises(NotATrace, match="ends in the middle"):
        read_trace(write(b"\x80\x04X\xff\xff\xff\xffabc.", tmp_path))


@pytest.mark.slow
def test_deep_lists_are_harmless(tmp_path: Path) -> None:
    depth = 1_000_000
    with pytest.raises(NotATrace):
        read_trace(
            write(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b".", tmp_path),
            limits=Limits(least_bytes_per_container=1),
        )


def test_a_structure_that_contains_itself_is_harmless(tmp_path: Path) -> None:
    document = SnapshotBuilder().document()
    document["device_traces"] = [[document]]
    document["segments"] = [document]
    document["external_annotations"] = [document]
    assert read_trace(write(pickle.dumps(document), tmp_path)).malformed_events == 2


def test_the_number_of_lists_and_dicts_is_limited() -> None:
    data = pickle.dumps([[] for _ in range(1_000)])
    with pytest.raises(TooLarge, match="lists and dicts"):
        load_plain(data, Limits(max_snapshot_entries=999), "x")


def test_the_size_of_the_file_is_limited(tmp_path: Path) -> None:
    path = write(pickle.dumps(["x" * 10_000]), tmp_path)
    with pytest.raises(TooLarge, match="bytes"):
        read_trace(path, limits=Limits(max_snapshot_bytes=9_000))


@with_each("value", [{1, 2}, frozenset({1}), b"bytes", bytearray(b"b"), ((1, 2), (3, 4)), (1, 2, 3)])
def test_instructions_that_no_snapshot_has_are_refused(value: Any) -> None:
    with pytest.raises(TraceError):
        load(pickle.dumps([value], 5))


def test_a_snapshot_cut_anywhere_is_refused(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(1 << 21)
    snapshot.allocate(1_000, at=1, stack=["train.py(3): main"])
    data = pickle.dumps(snapshot.document())
    for size in range(3, len(data)):
        with pytest.raises(NotATrace, match="ends in the middle"):
            load(data[:size])


@with_each("first", range(0, 300, 50))
def test_any_bytes_give_plain_data_or_an_error_of_ours(first: int) -> None:
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        data = bytearray(pickle.dumps(PLAIN, chance.choice([2, 4])))
        for _ in range(chance.randint(1, 12)):
            data[chance.randrange(2, len(data))] = chance.randrange(256)
        with contextlib.suppress(TraceError):  # any other error fails the test
            load(bytes(data))


@with_each(
    "data", [b"\x80\x04.", b"\x80\x04u.", b"\x80\x04}K\x01K\x02a.", b"\x80\x04h\x05.", b"\x80\x02]]NNs."]
)
def test_instructions_in_a_wrong_order_are_a_damaged_pickle(data: bytes) -> None:
    with pytest.raises(NotATrace, match="damaged"):
        load(data)
