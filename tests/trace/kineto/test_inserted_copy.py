from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.errors import TraceError
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.kineto.changed_copy import copy_with_events
from tests.trace.support import document, read_bytes, span
from tests.with_each import with_each

NEW = [b'{"ph":"M","name":"first"}', b'{"ph":"M","name":"second"}']
ADDED = [json.loads(event) for event in NEW]

EVENTS = [span(f'a "quoted" {{name}} [{i}], ', ts=i, args={"stack": [{"ph": "x"}, 1]}) for i in range(12)]


def _copy(content: bytes, folder: Path, *, mend: bool, chunk_bytes: int = 1 << 20) -> bytes:
    path = folder / "trace.json"
    path.write_bytes(content)
    out = io.BytesIO()
    copy_with_events(str(path), NEW, out.write, mend=mend, limits=Limits(chunk_bytes=chunk_bytes))
    return out.getvalue()


@with_each("chunk_bytes", [7, 100, 1 << 20])
@with_each("mend", [False, True])
@with_each(
    "content",
    [
        document(*EVENTS, schemaVersion=1),
        document(*EVENTS)[:-1] + b', "after": {"a": [1]}}',
        b'\xef\xbb\xbf {"other": "x", "traceEvents" :\n [ \n ] , "more": 1}',
        document(*EVENTS, big=list(range(500))),
    ],
)
def test_everything_else_stays(content: bytes, mend: bool, chunk_bytes: int, tmp_path: Path) -> None:
    before = json.loads(content.decode("utf-8-sig"))
    after = json.loads(_copy(content, tmp_path, mend=mend, chunk_bytes=chunk_bytes).decode("utf-8-sig"))
    assert after == {**before, "traceEvents": ADDED + before["traceEvents"]}


def test_every_byte_stays(tmp_path: Path) -> None:
    content = document(*EVENTS, schemaVersion=1).replace(b", ", b" ,\r\n ")
    at = content.index(b"[") + 1
    copied = _copy(content, tmp_path, mend=False, chunk_bytes=50)
    assert copied == content[:at] + b"\n" + b",\n".join(NEW) + b",\n" + content[at:]


@pytest.mark.parametrize("mend", [False, True])
def test_a_bare_list(mend: bool, tmp_path: Path) -> None:
    assert json.loads(_copy(json.dumps(EVENTS).encode(), tmp_path, mend=mend)) == ADDED + EVENTS


@pytest.mark.slow
@given(data=st.data())
def test_a_file_cut_off_anywhere_is_closed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = document(*EVENTS[:6], schemaVersion=1)[:-1] + b', "after": 1}'
    begin = content.index(b"[") + 1
    cut = data.draw(st.integers(begin, len(content)))
    chunk_bytes = data.draw(st.sampled_from([16, 200, 1 << 20]))
    copied = _copy(content[:cut], tmp_path_factory.getbasetemp(), mend=True, chunk_bytes=chunk_bytes)
    found = json.loads(copied)["traceEvents"]
    assert found[:2] == ADDED
    # As many events as the reader reads.
    assert len(found) - 2 == read_bytes(content[:cut]).events_read
    assert found[2:] == EVENTS[: len(found) - 2]


@pytest.mark.parametrize("chunk_bytes", [64, 1 << 20])
def test_a_broken_event_is_left_out_and_repairs_are_kept(chunk_bytes: int, tmp_path: Path) -> None:
    texts = [json.dumps(event) for event in EVENTS[:5]]
    texts[1] = texts[1].replace('"ts"', 'ts"')
    texts[3] = texts[3].replace("a ", "C:\\Users ")
    found = json.loads(_copy(document(*texts), tmp_path, mend=True, chunk_bytes=chunk_bytes))["traceEvents"]
    assert [event.get("ts") for event in found[2:]] == [0, 2, 3, 4]
    assert found[4]["name"].startswith("C:\\Users ")


@with_each("content", [b"", b"no json", b'{"a": 1}', b'{"a": '])
def test_what_is_not_a_trace_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        _copy(content, tmp_path, mend=True)
    assert os.listdir(tmp_path) == ["trace.json"]
