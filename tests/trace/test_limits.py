"""No input may exhaust the process."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tb_gpudiag.errors import TooLarge, Unreadable
from tb_gpudiag.trace.limits import Limits
from tb_gpudiag.trace.read import read_trace
from tests.trace.support import document, names, read_bytes, span

MEMBER_BYTES = 16 << 20
MEMBER = gzip.compress(b" " * MEMBER_BYTES)


def bomb(raw_bytes: int) -> bytes:
    """Make a gzip file that unpacks to the start of a trace and then spaces, a thousand times its size."""
    return gzip.compress(b'{"traceEvents": [') + MEMBER * (raw_bytes // MEMBER_BYTES)


def test_a_gzip_bomb_is_refused() -> None:
    with pytest.raises(TooLarge, match="300 times"):
        read_bytes(bomb(160 << 20))


@pytest.mark.slow
def test_raw_text_is_not_kept_in_memory(tmp_path: Path) -> None:
    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc to read the peak of memory from")
    path = tmp_path / "bomb.pt.trace.json.gz"
    path.write_bytes(bomb(256 << 20))
    program = (
        "import sys\n"
        "from tb_gpudiag.trace.read import Limits, read_trace\n"
        "trace = read_trace(sys.argv[1], limits=Limits(max_gzip_ratio=2000))\n"
        "assert trace.status != 'COMPLETE'\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < 300 << 20


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


# Files whose content takes much more memory than text: empty events, values that are no events, and lists and
# dicts of a pickle. Each is repeated up to DENSE_BYTES.
DENSE_BYTES = 4 << 20
DENSE_TRACES = [
    b"{},",
    b'{"ph":"X"},',
    b'{"args":{}},',
    b"[],",
    b"1,",
    b"null,",
    b'"\\":",',
    b'":",',
    b"{}," + b"null," * 10,
    b'{"ph":"X","a":"aaaaaaaaaaaaaaaaaaaa"},' + b'"aaaaaaaaaa",' * 10,
    b'{"ph":"X","ts":1,"dur":1},',
]
DENSE_PICKLES = [b"}", b"]", b"}K\x01K\x02s", b"}NNNNNNN", b"N", b"K\x01K\x02\x86", b"\x8c\x02ab"]

# Reading takes this much for any file: the libraries, and a few chunks of text that are parsed at once.
ALWAYS_BYTES = 400 << 20
MOST_PER_BYTE = 15


READER = """
import os, sys
from tb_gpudiag.errors import TraceError
from tb_gpudiag.trace.read import read_trace

for line in sys.stdin:
    if not os.fork():
        try:
            read_trace(line.strip())
        except TraceError:
            pass
        print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0], flush=True)
        os._exit(0)
    if os.wait()[1]:
        print(-1, flush=True)
"""
"""Reads each file in a process of its own, without importing everything again."""


@pytest.fixture(scope="module")
def peak_bytes() -> Iterator[Callable[[Path], int]]:
    """Return the peak of memory of a process that reads a file."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc to read the peak of memory from")
    with subprocess.Popen(
        [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None

        def peak(path: Path) -> int:
            print(path, file=reader.stdin, flush=True)
            assert reader.stdout is not None
            kib = int(reader.stdout.readline())
            assert kib > 0, "the process crashed"
            return kib * 1024

        yield peak
        reader.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize("unit", DENSE_TRACES)
def test_memory_is_bounded_by_the_size_of_a_trace(
    tmp_path: Path, peak_bytes: Callable[[Path], int], unit: bytes
) -> None:
    path = tmp_path / "dense.1.pt.trace.json"
    path.write_bytes(b'{"traceEvents":[' + unit * (DENSE_BYTES // len(unit)) + b"{}]}")
    assert peak_bytes(path) < ALWAYS_BYTES + MOST_PER_BYTE * DENSE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("unit", DENSE_PICKLES)
def test_memory_is_bounded_by_the_size_of_a_snapshot(
    tmp_path: Path, peak_bytes: Callable[[Path], int], unit: bytes
) -> None:
    path = tmp_path / "dense.pickle"
    head = b"\x80\x04}\x94(\x8c\x08segments]("
    path.write_bytes(head + unit * (DENSE_BYTES // len(unit)) + b"eu.")
    assert peak_bytes(path) < ALWAYS_BYTES + MOST_PER_BYTE * DENSE_BYTES


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


@pytest.mark.parametrize("path", ["missing.json", ".", "memory://missing.json", "nosuch://x.json", "a\0b"])
def test_paths_that_cannot_be_opened(path: str, tmp_path: Path) -> None:
    if "://" not in path:
        path = str(tmp_path / path)
    with pytest.raises(Unreadable) as raised:
        read_trace(path)
    assert raised.value.where == path
    assert raised.value.remedy
