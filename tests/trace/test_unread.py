"""What is known and not read says what to name instead."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.trace.unread import is_perfetto


def perfetto(packets: int) -> bytes:
    """Return a trace of Perfetto: `packet` is field 1 of Trace, `timestamp` field 8 of TracePacket."""
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", package="gpudiag.test")
    packet = file.message_type.add(name="TracePacket")
    packet.field.add(name="timestamp", number=8, type=4, label=1)
    packet.field.add(name="payload", number=900, type=12, label=1)
    trace = file.message_type.add(name="Trace")
    trace.field.add(name="packet", number=1, type=11, label=3, type_name=".gpudiag.test.TracePacket")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("gpudiag.test.Trace"))()
    for i in range(packets):
        made.packet.add(timestamp=i, payload=b"x" * (i * 150))
    content: bytes = made.SerializeToString()
    return content


UNREAD = {
    "a binary trace of Perfetto": (perfetto(20), "export_chrome_trace to a name ending in .json.gz"),
    "a tree of Triton's proton": (
        b'[{"children":[{"children":[],"frame":{"name":"add","type":"function"},"metrics":{"count":1}}],'
        b'"frame":{"name":"ROOT","type":"function"},"metrics":{"count":0}},{"CUDA":{"0":{"arch":"90"}}}]',
        'data="trace"',
    ),
    "an HTML page": (b"<!DOCTYPE html><html></html>", ".raw.json.gz"),
    "an execution trace": (b'{"schema": "1.1.0", "pid": 1, "nodes": []}', "export_chrome_trace"),
}


@pytest.mark.parametrize("what", UNREAD)
@pytest.mark.parametrize("packed", [False, True])
def test_it_is_named(what: str, packed: bool, tmp_path: Path) -> None:
    content, remedy = UNREAD[what]
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(NotATrace, match=what) as raised:
        read_trace(str(path))
    assert remedy in raised.value.remedy


def test_a_database_of_rocprofv3(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE rocpd_kernel_dispatch_00a1 (id INTEGER, start BIGINT)")
    with pytest.raises(NotATrace, match="a database of rocprofv3") as raised:
        read_trace(str(path))
    assert "--output-format json" in raised.value.remedy


def test_any_number_of_packets() -> None:
    assert all(is_perfetto(perfetto(packets)) for packets in (1, 2, 3, 30))
    assert is_perfetto(perfetto(30)[:700])


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"\nhello world", b'\n{"traceEvents": []}', b"\n\x10" + b"\x00" * 30, b"\x80\x04."]
)
def test_no_packets(text: bytes) -> None:
    assert not is_perfetto(text)
