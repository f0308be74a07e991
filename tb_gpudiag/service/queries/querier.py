"""Runs SQL over the tables of traces, in a process of its own: see queries.py and processes/.

A query cannot always be interrupted, and a function in it may take any memory: this process can be ended. It
keeps the tables that it made last.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from tb_gpudiag.errors import LimitReached
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.arrow.sql_query import MOST_S, SqlAnswer, checked, run_sql, too_long
from tb_gpudiag.report.arrow.trace_tables import Tables
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.service.processes.child_messages import ChildMessage, MessageKind, of_error
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.trace.files.find import TraceFile

# DuckDB interrupts a query between two batches of rows. This is for one function that takes longer.
_MORE_S: Final = 5.0

# An answer is to be read. A message between processes has at most 1 GiB.
_MOST_BYTES: Final = 256 << 20

_LONGEST_CELL: Final = 2_000
_GZIP_LEVEL: Final = 1

_kept: list[Tables] = []


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Run the query. For a page, the answer is a SqlState as gzipped JSON, else an Arrow stream."""
    reply.bound_memory(request["memory_limit_bytes"])
    query = checked(request["query"])
    tables = _tables([TraceFile(**file) for file in request["files"]])
    tables.load(query.tables, reply.progress)
    with _ended_in_any_case(reply):
        found = run_sql(query, tables.made, request["most_rows"])
    if found.table.nbytes > _MOST_BYTES:
        raise LimitReached(
            f"The answer has more than {_MOST_BYTES >> 20} MB.", remedy="Select fewer rows or columns."
        )
    if request["page"]:
        text = to_json(_state(found)).encode("utf-8", "replace")
        return ChildMessage(content=gzip.compress(text, _GZIP_LEVEL, mtime=0))
    problems = [of_error(problem).fields for problem in tables.problems]
    return ChildMessage({"note": found.note, "problems": problems}, _stream(found.table))


def _tables(files: list[TraceFile]) -> Tables:
    if not _kept or _kept[0].files != files:
        _kept.clear()  # before the next ones are read
        _kept.append(Tables(files))
    return _kept[0]


@contextlib.contextmanager
def _ended_in_any_case(reply: Reply) -> Iterator[None]:
    def end() -> None:
        reply.send(replace(of_error(too_long(MOST_S)), kind=MessageKind.LAST_ERROR))
        os._exit(1)

    timer = threading.Timer(MOST_S + _MORE_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _stream(table: pa.Table) -> bytes:
    content = io.BytesIO()
    with pa.ipc.new_stream(content, table.schema) as writer:
        writer.write_table(table)
    return content.getvalue()


def _state(found: SqlAnswer) -> pb.SqlState:
    """All cells as text: a page shows them as they are, and JavaScript would round large numbers."""
    columns = [
        pb.SqlColumn(
            name=column_name[:_LONGEST_CELL],
            number=_is_number(found.table.schema.field(at).type),
            cells=[_cell(value) for value in found.table.column(at).to_pylist()],
        )
        for at, column_name in enumerate(found.table.column_names)
    ]
    return pb.SqlState(
        state="ready", progress=1.0, columns=columns, rows=found.table.num_rows, note=found.note
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.10g}"
    text = str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"
