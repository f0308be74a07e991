"""The compiled reader of snapshots finds what Python's unpickler finds, or leaves the file to it."""

from __future__ import annotations

import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.trace.memory import snapshot_tables
from tb_gpudiag.trace.memory.snapshot_tables import read_tables
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.conftest import SHARED_TRACES
from tests.trace.support import LONG_AGO_S, both_ways, same_trace
from tests.with_each import with_each

pytestmark = pytest.mark.skipif(not snapshot_tables.available(), reason="not compiled")

REAL = sorted((SHARED_TRACES.parent / "snapshots").glob("*.pickle"))
FRAME = {"filename": "train.py", "line": 3, "name": "step"}
ODD: list[Any] = [
    None,
    True,
    -1,
    2**60,
    2**61,
    2**63,
    2**70,
    1.5,
    "alloc",
    (1, 2),
    (0, 2**31 - 1),
    [],
    {},
    [FRAME],
]


def document() -> dict[str, Any]:
    snapshot = SnapshotBuilder()
    snapshot.segment(40 << 20, at=0)
    kept = [snapshot.allocate(1 << 20, at=i + 1, stack=["train.py(3): step", "a.py(1): f"]) for i in range(9)]
    for i, address in enumerate(kept[:5]):
        snapshot.free(address, at=20 + i)
    snapshot.out_of_memory(1 << 40, at=40, device_free=5 << 20)
    found: dict[str, Any] = snapshot.document()
    return found


def same_both_ways(data: bytes, folder: Path) -> None:
    path = folder / "x.pickle"
    path.write_bytes(data)
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    same_trace(*both_ways(lambda: read_trace(str(path))))


@pytest.mark.real
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_snapshots_are_read_into_tables(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    assert read_tables(data) is not None
    same_both_ways(data, tmp_path)


@with_each("protocol", [2, 3, 4, 5])
def test_all_protocols_are_read_into_tables(protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps(document(), protocol)
    assert read_tables(data) is not None
    same_both_ways(data, tmp_path)


def test_plain_values_survive() -> None:
    value = {
        "odd": ODD,
        "texts": ["", "ä" * 300, "\u2028"],
        "long": list(range(5_000)),
        "same": [FRAME, FRAME],
    }
    tables = read_tables(pickle.dumps(value))
    assert tables is not None
    found = {key: tables.plain(number) for key, number in (tables.parts() or {}).items()}
    assert found == value
    assert found["same"][0] is found["same"][1]


@pytest.mark.slow
@with_each("text_first", [False, True])
def test_the_parts_of_a_file_may_be_of_any_density(text_first: bool) -> None:
    entries = [{"a": i, "b": [i, {}], "c": []} for i in range(20_000)]
    parts = [("text", "x" * 500_000), ("entries", entries)]
    value = dict(parts if text_first else parts[::-1])
    tables = read_tables(pickle.dumps(value))
    assert tables is not None
    assert {key: tables.plain(number) for key, number in (tables.parts() or {}).items()} == value


def test_a_frame_may_be_twice_in_a_stack() -> None:
    entries = [{"frames": [FRAME, {"filename": "b.py", "line": 1, "name": "g"}, FRAME]}]
    tables = read_tables(pickle.dumps({"device_traces": [entries]}))
    assert tables is not None
    assert tables.plain((tables.parts() or {})["device_traces"]) == [entries]


def cyclic() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@with_each(
    "data",
    [
        pickle.dumps(cyclic()),
        pickle.dumps(nested(40)),
        pickle.dumps({1: 2}),
        pickle.dumps({"a": {i: i for i in range(10)}}),
        pickle.dumps({str(i): i for i in range(2_000)}),
        pickle.dumps([1, 2])[:-1],
        pickle.dumps(2**200),
        pickle.dumps(sys.exit),
        b"\x80\x04\x8c\x02\xff\xfe.",  # no UTF-8
        b"\x80\x04}(\x8c\x01aK\x01\x8c\x01aK\x02u.",  # a key twice
        b"\x80\x04h\x00.",  # nothing is remembered
        b"\x80\x04K\x01u.",
        b"\x80\x04(K\x01e.",
        b"\x80\x04](K\x01K\x02.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff].",
        b"\x80\x04X\xff\xff\xff\xff",
        b"\x80\x02r\xff\xff\xff\x7f.",
    ],
)
def test_anything_else_is_left_to_the_unpickler(data: bytes) -> None:
    assert read_tables(data) is None


@pytest.mark.slow
def test_mutations_are_read_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    for _ in range(300):
        found = pickle.loads(pickle.dumps(document()))
        entries = found["device_traces"][0]
        for _ in range(chance.randrange(1, 5)):
            entry = chance.choice(entries)
            entry[chance.choice([*entry, "device_free", "new"])] = chance.choice(ODD)
        data = bytearray(pickle.dumps(found, chance.choice((2, 4))))
        if chance.random() < 0.5:
            data[chance.randrange(2, len(data))] = chance.randrange(256)
        same_both_ways(bytes(data), tmp_path)
