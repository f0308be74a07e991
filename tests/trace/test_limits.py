"""No input may exhaust the process."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpudiag.errors import TooLarge, Unreadable
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.read import read_trace
from tests.trace.support import document, names, read_bytes, span
from tests.with_each import with_each

MEMBER_BYTES = 8 << 20
MEMBER = gzip.compress(b" " * MEMBER_BYTES)


def bomb(raw_bytes: int) -> bytes:
    """Make a gzip file that unpacks to the start of a trace and then spaces, a thousand times its size."""
    return gzip.compress(b'{"traceEvents": [') + MEMBER * (raw_bytes // MEMBER_BYTES)


def test_a_gzip_bomb_is_refused() -> None:
    with pytest.raises(TooLarge, match="300 times"):
        read_bytes(bomb(160 << 20))


def test_a_small_file_may_have_any_ratio() -> None:
    content = document(span()) + b" " * (1 << 20)
    assert names(read_bytes(gzip.compress(content), limits=Limits(max_gzip_ratio=2))) == ["aten::mm"]


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_too_many_bytes(pack: type) -> None:
    content = document(*(span(ts=i) for i in range(1000)))
    with pytest.raises(TooLarge, match=r"more than [0-9,]+ bytes"):
        read_bytes(pack(content), limits=Limits(max_raw_bytes=len(content) // 2))
    assert read_bytes(pack(content), limits=Limits(max_raw_bytes=len(content))).events_read == 1000


def test_too_many_events() -> None:
    content = document(*(span(ts=i) for i in range(1000)))
    with pytest.raises(TooLarge, match="more than 999 events"):
        read_bytes(content, limits=Limits(max_events=999))
    assert read_bytes(content, limits=Limits(max_events=1000)).events_read == 1000


def test_the_depth_limit_itself_is_allowed() -> None:
    event = span(args={"a": {"b": [1]}})
    assert read_bytes(document(event), limits=Limits(max_depth=4)).events_read == 1


READER = """
import json, os, sys
from tb_gpudiag.errors import TraceError
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.read import read_trace

for line in sys.stdin:
    path, limits = json.loads(line)
    if not os.fork():
        try:
            status = read_trace(path, limits=Limits(**limits)).status
        except TraceError:
            status = 'REFUSED'
        print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], status, flush=True)
        os._exit(0)
    if os.wait()[1]:
        print(-1, 'CRASHED', flush=True)
"""
"""Reads each file in a process of its own, without importing everything again."""


class Reader:
    """Process that reads files."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def peak_bytes(self, path: Path, **limits: int) -> tuple[int, str]:
        """Return the peak of memory of a process that reads a file, and the trace's status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([str(path), limits]), file=self.process.stdin, flush=True)
        kib, status = self.process.stdout.readline().split()
        assert status != "CRASHED"
        return int(kib) * 1024, status


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc to read the peak of memory from")
    started = Reader()
    with started.process:
        yield started


@pytest.mark.slow
def test_raw_text_is_not_kept_in_memory(tmp_path: Path, reader: Reader) -> None:
    peaks = []
    for raw_bytes in (5 * MEMBER_BYTES, 20 * MEMBER_BYTES):
        path = tmp_path / "bomb.pt.trace.json.gz"
        path.write_bytes(bomb(raw_bytes))
        peak, status = reader.peak_bytes(
            path, max_gzip_ratio=2000, chunk_bytes=1 << 20, max_element_bytes=1 << 20
        )
        assert status == "WRITING"
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 2 * MEMBER_BYTES


# Files whose content takes much more memory than text: empty events, values that are no events, and lists and
# dicts of a pickle. Each is repeated up to DENSE_BYTES.
DENSE_BYTES = 2 << 20
DENSE_TRACES = [
    b"{},",
    b'{"ph":"X"},',
    b'{"args":{}},',
    b"[],",
    b"1,",
    b'"\\":",',
    b"{}," + b"null," * 10,
    b'{"ph":"X","a":"aaaaaaaaaaaaaaaaaaaa"},' + b'"aaaaaaaaaa",' * 10,
    b'{"ph":"X","ts":1,"dur":1},',
]
DENSE_PICKLES = [b"}", b"]", b"}K\x01K\x02s", b"}NNNNNNN", b"N", b"K\x01K\x02\x86", b"\x8c\x02ab"]

# Reading takes this much for any file: the libraries, and a few chunks of text that are parsed at once.
ALWAYS_BYTES = 250 << 20
MOST_PER_BYTE = 15


@pytest.mark.slow
@pytest.mark.parametrize("unit", DENSE_TRACES)
def test_memory_is_bounded_by_the_size_of_a_trace(tmp_path: Path, reader: Reader, unit: bytes) -> None:
    path = tmp_path / "dense.1.pt.trace.json"
    path.write_bytes(b'{"traceEvents":[' + unit * (DENSE_BYTES // len(unit)) + b"{}]}")
    assert reader.peak_bytes(path)[0] < ALWAYS_BYTES + MOST_PER_BYTE * DENSE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("unit", DENSE_PICKLES)
def test_memory_is_bounded_by_the_size_of_a_snapshot(tmp_path: Path, reader: Reader, unit: bytes) -> None:
    path = tmp_path / "dense.pickle"
    head = b"\x80\x04}\x94(\x8c\x08segments]("
    path.write_bytes(head + unit * (DENSE_BYTES // len(unit)) + b"eu.")
    assert reader.peak_bytes(path)[0] < ALWAYS_BYTES + MOST_PER_BYTE * DENSE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("unit", [b"{},", b'{"args":{}},', b'{"ph":"X"},'])
def test_text_that_is_cut_into_small_chunks_is_read_as_a_whole(unit: bytes) -> None:
    """Every value is counted once, wherever the chunks begin."""
    count = 5_000
    begin = b'{"traceEvents": ['
    content = begin + unit * count + document(span()).removeprefix(begin)
    values = unit.count(b",") * count
    small = Limits(chunk_bytes=4096, least_event_bytes=64)
    trace = read_bytes(content, limits=small)
    assert names(trace) == ["aten::mm"]
    assert trace.malformed_events == values == read_bytes(content).malformed_events


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "w.1.pt.trace.json"
    os.mkfifo(pipe)
    with pytest.raises(Unreadable, match="not a regular file"):
        read_trace(str(pipe))


@with_each("path", ["missing.json", ".", "memory://missing.json", "nosuch://x.json", "a\0b"])
def test_paths_that_cannot_be_opened(path: str, tmp_path: Path) -> None:
    if "://" not in path:
        path = str(tmp_path / path)
    with pytest.raises(Unreadable) as raised:
        read_trace(path)
    assert raised.value.where == path
    assert raised.value.remedy
