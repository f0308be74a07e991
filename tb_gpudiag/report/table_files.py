"""All tables of a report as CSV files in one archive, for spreadsheets and data frames.

Columns are the fields of report.proto, with units in their names. A list inside a row has a file of its own,
whose first columns are the numbers of the rows it belongs to.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.message import Message

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.operators.operator_table import slice_kernels, slice_operators
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.report.slices.slice_table import WantedRows
from tb_gpudiag.report.wire import is_repeated
from tb_gpudiag.vocabulary.patterns import lazy_re

# More rows are not read by anyone, and a trace can have names without end.
MOST_ROWS: Final = 10_000

# Spreadsheets run a text that begins like this as a formula. Names in a trace come from somewhere else.
_FORMULA: Final = lazy_re(r"[=+\-@\t\r]")

_Row = dict[str, Any]


def tables_zip(report: pb.Report, prepared: Prepared) -> bytes:
    """Return the archive: a file for each table that has rows."""
    tables: dict[str, list[_Row]] = {}
    _add(tables, "report", report, {})
    if report.trace.kind == pb.TraceInfo.trace:
        for group in ("operator", "shapes"):
            found = slice_operators(
                prepared, "operator", group, WantedRows("gpu_self", limit=MOST_ROWS), None, None
            )
            _add_all(tables, "operators" if group == "operator" else "operators_by_shapes", found.rows, {})
        kernels = slice_kernels(prepared, "kernel", WantedRows("total", limit=MOST_ROWS), None, None)
        _add_all(tables, "kernels", kernels.rows, {})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in tables.items():
            # The mark at the beginning tells spreadsheets that the text is UTF-8.
            text = io.StringIO(newline="")
            writer = csv.writer(text)
            writer.writerow(rows[0])
            for row in rows:
                writer.writerow(map(cell, row.values()))
            archive.writestr(zipfile.ZipInfo(f"{name}.csv"), text.getvalue().encode("utf-8-sig", "replace"))
    return content.getvalue()


def _add_all(tables: dict[str, list[_Row]], name: str, messages: Iterable[Message], above: _Row) -> None:
    for number, message in enumerate(messages, 1):
        _add(tables, name, message, above, number)


def _add(tables: dict[str, list[_Row]], name: str, message: Message, above: _Row, number: int = 0) -> None:
    """Add a row for the message, and the rows of the lists in it. number: of its row, 0 for the report."""
    row = {**above, **dict(_fields(message))}
    if row:
        tables.setdefault(name, []).append(row)
    inside = {**above, name: number} if number else above
    prefix = f"{name}_" if number else ""
    for path, messages in _lists(message):
        _add_all(tables, f"{prefix}{path}", messages, inside)


def _fields(message: Message, prefix: str = "", outer: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a message and of the single messages in it. outer: the type that this one is in."""
    kind = message.DESCRIPTOR.full_name
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_message(field):
            if not is_repeated(field) and kind != outer:  # a caller's caller is not shown
                yield from _fields(value, f"{prefix}{field.name}_", kind)
        elif is_repeated(field):
            yield prefix + field.name, " ".join(str(_word(field, item)) for item in value)
        else:
            yield prefix + field.name, _word(field, value)


def _lists(message: Message, prefix: str = "") -> Iterator[tuple[str, Iterable[Message]]]:
    """The lists of messages in a message and in the single messages in it."""
    for field in message.DESCRIPTOR.fields:
        if not _is_message(field):
            continue
        value = getattr(message, field.name)
        if is_repeated(field):
            yield prefix + field.name, value
        elif message.HasField(field.name):
            yield from _lists(value, f"{prefix}{field.name}_")


def _is_message(field: Any) -> bool:
    return field.message_type is not None


def _word(field: Any, value: Any) -> Any:
    return field.enum_type.values_by_number[value].name if field.enum_type is not None else value


def cell(value: Any) -> Any:
    """Return a value as a cell of a CSV file: text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
