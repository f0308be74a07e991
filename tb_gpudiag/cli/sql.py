"""`gpudiag sql PATH QUERY`: run SQL over the tables of traces."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tb_gpudiag.cli.formats import add_options, write, write_file
from tb_gpudiag.cli.inputs import find_files, progress_bar
from tb_gpudiag.cli.output import DEFECT, errors_data, tell, tell_errors
from tb_gpudiag.errors import GpudiagError, UsageError
from tb_gpudiag.report.arrow.sql_query import values
from tb_gpudiag.report.table_files import cell
from tb_gpudiag.report.views.document import Column, Document, Kind, ReportView, Table
from tb_gpudiag.service.processes.child import ChildMessage, error_in
from tb_gpudiag.service.processes.gate import ask_apart
from tb_gpudiag.trace.files.find import TraceFile
from tb_gpudiag.wording.format import one_line
from tb_gpudiag.wording.vocabulary import QUESTIONS

if TYPE_CHECKING:
    from tb_gpudiag.report.diagnosis import Progress


MODULE: Final = "tb_gpudiag.service.querier"

_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def query_apart(
    files: Sequence[TraceFile], query: str, most_rows: int, progress: Progress
) -> tuple[pa.Table, str, list[GpudiagError]]:
    """Run a command's query: (rows, a note or "", what could not be read). Raises GpudiagError."""
    request = {
        "where": files[0].path if len(files) == 1 else "",
        "files": [asdict(file) for file in files],
        "query": query,
        "most_rows": most_rows,
    }
    answer = ask_apart(MODULE, request, progress)
    problems = [error_in(ChildMessage(fields)) for fields in answer.fields["problems"]]
    with pa.ipc.open_stream(answer.content) as reader:
        return reader.read_all(), answer.fields["note"], problems


_ROWS: Final = 1_000
_MOST_ROWS: Final = 10_000_000
_LONGEST_CELL: Final = 200


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 2 if a file was not read, 3 after a bug. Raises GpudiagError."""
    parsed = parser().parse_args(arguments)
    if not 0 < parsed.rows <= _MOST_ROWS:
        raise UsageError(f"--rows takes a number from 1 to {_MOST_ROWS:,}", where=str(parsed.rows))
    if parsed.query is None:
        print("\n\n".join(f"-- {each.question}\n{each.query};" for each in QUESTIONS))
        return 0
    files, errors = find_files([parsed.path], parsed.run)
    if not files:
        return DEFECT if tell_errors(errors) else 2
    # The process runs in another directory.
    there = [replace(f, path=os.path.abspath(f.path)) if os.path.exists(f.path) else f for f in files]
    with progress_bar(1, quiet=parsed.quiet) as show:
        found, note, problems = query_apart(there, parsed.query, parsed.rows, show)
    errors += problems
    if parsed.format == "arrow":
        content = io.BytesIO()
        with pa.ipc.new_file(content, found.schema) as writer:
            writer.write_table(found)
        if parsed.output is not None:
            write_file(Path(parsed.output), content.getvalue())
        elif sys.stdout.isatty():
            raise UsageError("an Arrow file is not for a terminal", remedy="name a file: -o FILE")
        else:
            sys.stdout.buffer.write(content.getvalue())
    else:
        write(
            parsed,
            lambda: _document(parsed.query, found, note),
            lambda: {
                "columns": found.column_names,
                "rows": _rows(found),
                "note": note,
                "errors": errors_data(errors),
            },
            more={"csv": lambda: _csv(found)},
        )
    if note and parsed.format in ("csv", "arrow"):
        tell(f"{note} (--rows {parsed.rows})")
    met_a_bug = tell_errors(errors)
    return DEFECT if met_a_bug else 2 if errors else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag sql",
        description="Run one SELECT over the tables of a trace, or of all traces of a directory: events, "
        "steps, launches, gaps, idle, kernels, copies, collectives, memory, findings and traces.",
        epilog="`SHOW TABLES` and `DESCRIBE idle` list tables and columns. It needs DuckDB: `pip install "
        "'tb-gpudiag[sql]'`. Exit status: 0 success, 2 invalid usage or a file cannot be read, 3 a bug in "
        "gpudiag.",
    )
    made.add_argument("path", metavar="PATH", help="a trace, or a log directory")
    made.add_argument(
        "query", metavar="QUERY", nargs="?", help="one SELECT; without it, ten useful queries are printed"
    )
    made.add_argument("--run", metavar="RUN", help="only this run of the directory")
    made.add_argument(
        "--rows", type=int, metavar="N", default=_ROWS, help=f"at most so many rows (default: {_ROWS:,})"
    )
    add_options(made, ("csv", "arrow"))
    made.add_argument("--quiet", action="store_true", help="do not show progress")
    return made


def _rows(found: pa.Table) -> list[list[object]]:
    columns = [[_plain(value) for value in values(column)] for column in found.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _plain(value: object) -> object:
    """What JSON can hold; anything else as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    return [_plain(each) for each in value] if isinstance(value, list) else str(value)


def _csv(found: pa.Table) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([cell(name) for name in found.column_names])
    writer.writerows([cell(value) for value in row] for row in _rows(found))
    return text.getvalue()


def _document(query: str, found: pa.Table, note: str) -> Document:
    """The rows as the document that text, Markdown and HTML show."""
    columns = tuple(
        Column(one_line(field.name), Kind.NUMBER if any(is_a(field.type) for is_a in _NUMBERS) else Kind.TEXT)
        for field in found.schema
    )
    rows = tuple(tuple(_shown(value) for value in row) for row in _rows(found))
    view = ReportView(
        heading="Query",
        path=one_line(query, 1_000),
        verdict=note or ("" if rows else "No rows."),
        sections=(Table("rows", "Rows", columns, rows),) if rows else (),
    )
    return Document(title="Query", reports=(view,))


def _shown(value: object) -> str:
    if value is None:
        return ""
    short = isinstance(value, float) and abs(value) < 1e6
    return one_line(f"{value:.6g}" if short else str(value), _LONGEST_CELL)
