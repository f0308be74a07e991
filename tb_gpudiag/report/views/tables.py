"""Tables of the document: typed columns and cells, without markup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeVar

from tb_gpudiag.wording.column_titles import COLUMNS
from tb_gpudiag.wording.quantity import Quantity

T = TypeVar("T")


class Kind(Enum):
    """Kind of a column's cells. Decides alignment and font."""

    TEXT = "text"
    CODE = "code"  # a place in the code, an operator
    NUMBER = "number"


@dataclass(frozen=True)
class Column:
    """A column of a Table."""

    title: str
    kind: Kind = Kind.TEXT
    explanation: str = ""


def numbers(id: str) -> Column:
    """Make a column of numbers with the header of wording/column_titles.py."""
    return Column(COLUMNS[id].word, Kind.NUMBER, COLUMNS[id].explanation)


Cell = Quantity | str
"""A value of a table. "" is an empty cell. str() gives what a reader sees."""


ColumnOf = tuple[Column, Callable[[T], Cell]]
"""A column, and what makes its cell of an item."""


@dataclass(frozen=True)
class Table:
    """Rows of cells, one cell per column."""

    kind: ClassVar[str] = "table"
    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __bool__(self) -> bool:
        return bool(self.rows)


def table(id: str, title: str, columns: Iterable[Column], rows: Iterable[tuple[Cell, ...]]) -> Table:
    """Make a table without the columns that are empty in every row."""
    columns, rows = tuple(columns), tuple(rows)
    filled = [i for i in range(len(columns)) if any(str(row[i]) for row in rows)]
    kept = tuple(tuple(row[i] for i in filled) for row in rows)
    return Table(id, title, tuple(columns[i] for i in filled), kept)


def table_of(id: str, title: str, items: Iterable[T], columns: Sequence[ColumnOf[T]]) -> Table:
    """Make a table with a row for each item: each column with what makes its cells."""
    rows = [tuple(cell(item) for _, cell in columns) for item in items]
    return table(id, title, [column for column, _ in columns], rows)
