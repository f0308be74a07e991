"""The document that every format shows: typed sections and values, without markup.

Sections are built from Reports in sections/ and rendered by text.py, markdown.py and html.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import ClassVar, NamedTuple, TypeVar

from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.version import __version__
from tb_gpudiag.wording.format import column_us, in_sentence, share
from tb_gpudiag.wording.quantity import Quantity, Unit
from tb_gpudiag.wording.vocabulary import COLUMNS

T = TypeVar("T")

WINDOW = "step window"  # label of an account's last row

WHOLE = share(1.0)

_OTHER = "other"

# Shares below it are shown as "< 0.1%".
_LEAST_SHOWN = 0.001


class Kind(Enum):
    """Kind of a column's cells. Decides alignment and font."""

    TEXT = "text"
    CODE = "code"  # a place in the code
    NAME = "name"  # a kernel, an operator: a terminal shows its ends rather than a second line
    SENTENCE = "sentence"  # a title: a terminal shows how it begins
    NUMBER = "number"


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = Kind.TEXT
    explanation: str = ""


def numbers(id: str) -> Column:
    """Make a column of numbers with the header of wording/terms.md."""
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

    def without_last(self) -> Table:
        """Return the same table without its last column."""
        return Table(self.id, self.title, self.columns[:-1], tuple(row[:-1] for row in self.rows))


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


_EVERYWHERE = pb.TableColumn.everywhere


def tables(messages: Iterable[pb.Table], *ids: str) -> list[Table]:
    """Return those of a Report's tables that it has, in this order."""
    found = {each.id: each for each in messages}
    return [_table_from(found[id]) for id in ids if id in found]


def _table_from(message: pb.Table) -> Table:
    """Make the table of its first rows and of the columns that are not for the page only."""
    columns = [column for column in message.columns if column.shown == _EVERYWHERE]
    cells = [_cells(column)[: message.first] for column in columns]
    headers = [
        Column(column.title, Kind(pb.TableColumn.Kind.Name(column.kind)), column.explanation)
        for column in columns
    ]
    return table(message.id, message.title, headers, zip(*cells, strict=True))


def _cells(column: pb.TableColumn) -> list[Cell]:
    if not column.unit:
        return list(column.texts)
    unit = Unit(column.unit)
    return [Quantity(number, unit) if number >= 0 else "" for number in column.numbers]


@dataclass(frozen=True)
class Item:
    """A line of a list, with a label or without."""

    text: str
    label: str = ""


@dataclass(frozen=True)
class Lines:
    """A list of sentences, and code to copy or ""."""

    kind: ClassVar[str] = "lines"
    id: str
    title: str
    items: tuple[Item, ...]
    code: str = ""

    def __bool__(self) -> bool:
        return bool(self.items)


class Part(NamedTuple):
    """A part of an account: computing, copying, communicating, or an idle cause."""

    id: str
    label: str
    us: float


class AccountRow(NamedTuple):
    """A part in words. `fraction`, of the step window, is the length of its bar."""

    id: str
    label: str
    time: str
    share: str
    fraction: float


@dataclass(frozen=True)
class Account:
    """Where a device's step window went. The printed times add up to the printed total."""

    kind: ClassVar[str] = "account"
    id: str
    title: str
    parts: tuple[Part, ...]
    window_us: float

    @property
    def rows(self) -> tuple[AccountRow, ...]:
        """All parts, in their order."""
        return self._rows(self.parts)

    @property
    def total(self) -> str:
        """The step window."""
        return column_us([part.us for part in self.parts], self.window_us)[1]

    def largest(self, most: int) -> tuple[AccountRow, ...]:
        """The largest parts, in their order, and the others as one. Below 0.1%, a part is one of these."""
        shown = sorted(self.parts, key=lambda part: -part.us)[: most - 1]
        shown = [part for part in shown if part.us >= _LEAST_SHOWN * self.window_us]
        others = [part for part in self.parts if part not in shown]
        if len(others) < 2:
            return self.rows
        other = Part(_OTHER, _OTHER, sum(part.us for part in others))
        return self._rows([*(part for part in self.parts if part in shown), other])

    def _rows(self, parts: Sequence[Part]) -> tuple[AccountRow, ...]:
        times, _ = column_us([part.us for part in parts], self.window_us)
        return tuple(
            AccountRow(part.id, part.label, time, share(part.us, self.window_us), part.us / self.window_us)
            for part, time in zip(parts, times, strict=True)
        )


@dataclass(frozen=True)
class CodePlace:
    """A place in the code, and how much of the finding's cost is there. `short` starts in the user's code."""

    place: str
    short: str
    cost: str
    preposition: str


@dataclass(frozen=True)
class FindingCard:
    """A finding. `facts` are its cost or saving and its evidence; `number` counts from 1."""

    number: int
    severity: str
    rule: str
    name: str
    title: str
    summary: str
    facts: tuple[Item, ...]
    places: tuple[CodePlace, ...]
    fix: str
    code: str
    url: str

    @property
    def gain(self) -> str:
        """`saves about 2 ms per step`: the cost, saving or leak; "" for a finding about the recording."""
        first = [fact for fact in self.facts[:1] if fact.label in ("costs", "leaked", "saves")]
        return "".join(f"{fact.label} {fact.text}" for fact in first)


@dataclass(frozen=True)
class Findings:
    """All findings of a report, most important first. `none` is shown where there are none."""

    kind: ClassVar[str] = "findings"
    id: str
    title: str
    cards: tuple[FindingCard, ...]
    none: str


Section = Table | Lines | Account | Findings


@dataclass(frozen=True)
class ReportView:
    """One report: its trace, its verdict, and its sections in reading order. No section is empty.
    headline: the verdict in a few words, before its sentence. where: the user's code to look at first. leak:
    what leaks beside that. figures: sentences below the verdict, about engine steps and about the MFU."""

    heading: str
    path: str
    verdict: str
    sections: tuple[Section, ...]
    about: str = ""
    headline: str = ""
    where: str = ""
    leak: str = ""
    figures: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """`Bottleneck: Data loading; look first in load (train.py:7). `: what the verdict begins with."""
        said = [self.headline, f"look first {self.where}" * bool(self.where), in_sentence(self.leak)]
        return f"{'; '.join(filter(None, said))}. " if self.headline else ""


class Command(NamedTuple):
    """A command line, and what it does."""

    line: str
    does: str


@dataclass(frozen=True)
class Document:
    """Everything that one output shows. `overview` compares several reports; `example` is a rule's id for
    `gpudiag explain`, or ""; `more` are other commands to go on with."""

    title: str
    reports: tuple[ReportView, ...]
    overview: Table | None = None
    example: str = ""
    generator: str = f"gpudiag {__version__}"
    more: tuple[Command, ...] = ()

    @property
    def commands(self) -> list[Command]:
        explain = Command(f"gpudiag explain {self.example}", "explains a rule.")
        return [*self.more, *([explain] if self.example else [])]


def lines(id: str, title: str, sentences: Iterable[str]) -> Lines:
    """Make a list of sentences without labels."""
    return Lines(id, title, tuple(Item(sentence) for sentence in sentences))
