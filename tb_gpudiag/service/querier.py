"""Runs SQL over the tables of traces, in a process of its own: see cli/sql.py and processes/.

A query cannot always be interrupted, and a function in it may take any memory: this process can be ended.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from tb_gpudiag.errors import LimitReached
from tb_gpudiag.report.arrow.sql_query import MOST_S, checked, run_sql, too_long
from tb_gpudiag.report.arrow.trace_tables import Tables
from tb_gpudiag.service.processes.child import ChildMessage, MessageKind, of_error
from tb_gpudiag.service.processes.serving import Reply
from tb_gpudiag.trace.files.find import TraceFile

# DuckDB interrupts a query between two batches of rows. This is for one function that takes longer.
_MORE_S: Final = 5.0

# An answer is to be read. A message between processes has at most 1 GiB.
_MOST_BYTES: Final = 256 << 20


def answer(request: dict[str, Any], reply: Reply) -> ChildMessage:
    """Run the query. The answer is an Arrow stream."""
    reply.bound_memory(request["memory_limit_bytes"])
    query = checked(request["query"])
    tables = Tables([TraceFile(**file) for file in request["files"]])
    tables.load(query.tables, reply.progress)
    with _ended_in_any_case(reply):
        found = run_sql(query, tables.made, request["most_rows"])
    if found.table.nbytes > _MOST_BYTES:
        raise LimitReached(
            f"The answer has more than {_MOST_BYTES >> 20} MB.", remedy="Select fewer rows or columns."
        )
    problems = [of_error(problem).fields for problem in tables.problems]
    return ChildMessage({"note": found.note, "problems": problems}, _stream(found.table))


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
