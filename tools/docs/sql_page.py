"""The generated parts of docs/sql.md: the columns of every table, and the useful queries."""

from __future__ import annotations

import re

import pyarrow as pa

from tb_gpudiag.report.arrow.described import OF_TRACE, TABLES, ColumnText
from tb_gpudiag.wording.sql_questions import QUESTIONS

_PART = re.compile(r"(<!-- (queries|tables) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def with_parts(page: str) -> str:
    """Return the page with the parts between its marks written anew."""
    made = {"queries": _queries(), "tables": _tables()}
    return _PART.sub(lambda found: found[1] + made[found[2]] + found[3], page)


def _queries() -> str:
    return "\n\n".join(f"**{each.question}**\n\n```sql\n{each.query}\n```" for each in QUESTIONS)


def _tables() -> str:
    parts = ["Every table begins with these columns:", _columns(OF_TRACE)]
    for name, table in TABLES.items():
        parts += [f"### `{name}`", table.text, _columns(table.columns[len(OF_TRACE) :])]
    return "\n\n".join(parts)


def _columns(columns: tuple[ColumnText, ...]) -> str:
    rows = [f"| `{column.name}` | {_kind(column.kind)} | {column.text} |" for column in columns]
    return "\n".join(["| column | type | meaning |", "| --- | --- | --- |", *rows])


def _kind(kind: pa.DataType) -> str:
    return "text" if pa.types.is_dictionary(kind) else str(kind)
