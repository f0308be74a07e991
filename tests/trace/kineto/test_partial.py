"""Files that end in the middle are read up to the last whole event, and the status says so."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.errors import EmptyFile, NotATrace
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.read import WRITING_GRACE_S, read_trace
from tests.trace.support import LONG_AGO_S, document, names, read_bytes, span
from tests.with_each import with_each

EVENTS = [
    span("plain", 0),
    span('quotes " and } , { "ph": "X"', 1),
    span(
        "nested", 2, args={"Input Dims": [[1, 2], []], "occupancy": {"a": [{"x": "1"}, {"y": "2"}], "b": "]"}}
    ),
    span("back\\slash\\", 3),
    span("café", 4, args={"Call stack": "a.py(1): f;b.py(2): ]}"}),
    span("last", 5),
]
NAMES = [str(event["name"]) for event in EVENTS]
WHOLE = document(*EVENTS, schemaVersion=1)[:-1] + b', "traceName": "x", "record_shapes": 1}'
INDENTED = json.dumps(json.loads(WHOLE), indent=2).encode()


def ends(content: bytes) -> list[int]:
    """Return the end position of each event."""
    decoder = json.JSONDecoder()
    text = content.decode()
    at = text.index("[", text.index("traceEvents")) + 1
    found = []
    for _ in EVENTS:
        at = text.index("{", at)
        at = decoder.raw_decode(text, at)[1]
        found.append(len(text[:at].encode()))
    return found


@pytest.mark.slow
@given(st.data())
def test_cut_off_anywhere(data: st.DataObject) -> None:
    content = data.draw(st.sampled_from([WHOLE, INDENTED]))
    cut = data.draw(st.integers(0, len(content) - 1))
    limits = Limits(chunk_bytes=data.draw(st.sampled_from([1 << 22, 100, 9])))
    begin = content.index(b"[", content.index(b"traceEvents"))
    if cut <= begin:
        with pytest.raises(NotATrace if cut else EmptyFile):
            read_bytes(content[:cut], limits=limits)
        return
    trace = read_bytes(content[:cut], limits=limits)
    assert names(trace) == NAMES[: sum(end <= cut for end in ends(content))]
    assert trace.status == "PARTIAL"
    assert trace.malformed_events == 0


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(1, 10_000))
def test_gzip_cut_off_anywhere(cut: int) -> None:
    packed = gzip.compress(WHOLE, mtime=0)
    cut = 2 + cut % (len(packed) - 2)
    readable = zlib.decompressobj(31).decompress(packed[:cut])
    begin = WHOLE.index(b"[") + 1
    if len(readable) < begin:
        with pytest.raises((NotATrace, EmptyFile)):
            read_bytes(packed[:cut])
        return
    trace = read_bytes(packed[:cut])
    assert names(trace) == NAMES[: sum(end <= len(readable) for end in ends(WHOLE))]
    assert trace.status == ("COMPLETE" if readable == WHOLE else "PARTIAL")


def test_a_recent_file_that_ends_in_the_middle_is_being_written() -> None:
    assert read_bytes(WHOLE[:300], age_s=0).status == "WRITING"
    assert read_bytes(gzip.compress(WHOLE)[:-30], age_s=0).status == "WRITING"
    assert read_bytes(WHOLE, age_s=0).status == "COMPLETE"


@pytest.mark.parametrize(
    ("age_s", "status"), [(WRITING_GRACE_S / 2, "WRITING"), (WRITING_GRACE_S * 2, "PARTIAL")]
)
def test_a_file_counts_as_being_written_during_the_grace_period(
    age_s: float, status: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.1.pt.trace.json"
    path.write_bytes(WHOLE[:300])
    modified = os.stat(path).st_mtime - age_s
    os.utime(path, (modified, modified))
    assert read_trace(str(path)).status == status


@pytest.mark.slow
def test_damaged_gzip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    events = [span(f"name{i}", i, args={"x": i * i * 7919 % 1_000_003}) for i in range(20_000)]
    packed = bytearray(gzip.compress(document(*events)))
    middle = len(packed) // 2
    packed[middle : middle + 500] = b"\xff" * 500
    path = tmp_path / "w.1.pt.trace.json.gz"
    path.write_bytes(packed)
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    trace = read_trace(str(path))
    assert trace.status == "PARTIAL"
    assert 1000 < len(trace.events) < 20_000
    assert names(trace)[:1000] == [f"name{i}" for i in range(1000)]
    assert any("damaged" in note for note in trace.notes)


def test_gzip_is_recognized_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    for name, content in (("a.pt.trace.json", gzip.compress(WHOLE)), ("b.pt.trace.json.gz", WHOLE)):
        (tmp_path / name).write_bytes(content)
        assert names(read_trace(str(tmp_path / name))) == NAMES


@with_each("tail", [b"", b"\x00" * 512, b"garbage"])
@with_each("cut", [1, 150, 700])
def test_gzip_of_several_members(cut: int, tail: bytes) -> None:
    trace = read_bytes(gzip.compress(WHOLE[:cut]) + gzip.compress(b"") + gzip.compress(WHOLE[cut:]) + tail)
    assert (names(trace), trace.status) == (NAMES, "COMPLETE")


def test_empty_gzip_is_empty() -> None:
    for content in (gzip.compress(b""), gzip.compress(WHOLE)[:12]):
        with pytest.raises((EmptyFile, NotATrace)):
            read_bytes(content)
