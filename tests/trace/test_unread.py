"""What is known and not read says what to name instead."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest

from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.read import read_trace
from tests.with_each import with_each

UNREAD = {
    "a tree of Triton's proton": (
        b'[{"children":[{"children":[],"frame":{"name":"add","type":"function"},"metrics":{"count":1}}],'
        b'"frame":{"name":"ROOT","type":"function"},"metrics":{"count":0}},{"CUDA":{"0":{"arch":"90"}}}]',
        'data="trace"',
    ),
    "an HTML page": (b"<!DOCTYPE html><html></html>", ".raw.json.gz"),
    "an execution trace": (b'{"schema": "1.1.0", "pid": 1, "nodes": []}', "export_chrome_trace"),
}


@with_each("what", UNREAD)
@with_each("packed", [False, True])
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
