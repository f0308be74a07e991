"""Values of the wire: µs from ns, places, time ranges and tables; and messages that repeat what an object
has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from tb_gpudiag.facts.core.intervals import ShownRanges
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.answer import Place, place_at
from tb_gpudiag.wording.format import NAME_LIMIT, one_line
from tb_gpudiag.wording.quantity import Unit
from tb_gpudiag.wording.vocabulary import Term, report_tables

UINT32_MAX = 2**32 - 1

M = TypeVar("M", bound=Message)


def us(nanoseconds: float | np.integer[Any]) -> float:
    """Convert nanoseconds to the wire's microseconds."""
    return round(float(nanoseconds)) / 1_000


def message_of(kind: type[M], source: object, /, **given: Any) -> M:
    """Make a message of an object. Fields that are not given are its attributes of the same name; `_us` is
    made of `_ns`. Texts are made safe to show, and counts cut to what fits. Raises AttributeError for a field
    that the object lacks."""
    for name, is_count in _fields(kind.DESCRIPTOR):
        if name in given:
            continue
        if name.endswith("_us"):
            given[name] = us(getattr(source, f"{name[:-3]}_ns"))
            continue
        value = getattr(source, name)
        if isinstance(value, str):
            value = one_line(value)
        elif is_count:
            value = min(max(int(value), 0), UINT32_MAX)
        given[name] = value
    return kind(**given)


@cache
def _fields(kind: Descriptor) -> list[tuple[str, bool]]:
    """Return the names of a message's fields, and which of them are counts."""
    return [(field.name, field.cpp_type == field.CPPTYPE_UINT32) for field in kind.fields]


def place(where: Place) -> pb.Place:
    """A rule's place, bounded and safe to show."""
    return message_of(
        pb.Place,
        where,
        line_kind=where.line_kind.name,
        caller=place(place_at(where.caller)) if where.caller is not None else None,
        us=us(where.time_ns),
        candidates=[],
    )


def time_ranges(ranges: ShownRanges) -> list[pb.TimeRange]:
    """Where to look on the timeline."""
    return [
        pb.TimeRange(start_us=us(start), end_us=us(end), device=int(device))
        for start, end, device in zip(*ranges, strict=True)
    ]


NOT_KNOWN: Final = -1.0
"""On the wire, for a figure that is None."""

# Several reasons of a name's length.
_SENTENCE_LIMIT: Final = 3 * NAME_LIMIT

Cell = str | Term | float | None | tuple[float, str]
"""A text, one with an explanation, a figure in the column's unit, or one with a tooltip."""


def table_message(
    id: str,
    rows: Iterable[Sequence[Cell]],
    *,
    first: int,
    ranges: Iterable[ShownRanges] = (),
    title: str = "",
    hidden: Collection[str] = (),
) -> pb.Table:
    """Make a table of its rows. first: rows of the text. ranges: where each row is on the timeline. hidden:
    columns that say nothing here."""
    words, cells = report_tables()[id], list(zip(*rows, strict=True))
    made = pb.Table(id=id, title=title or words.title, about=words.about)
    if not cells:
        return made
    for column, own in zip(words.columns, cells, strict=True):
        shown = "data" if column.id in hidden else column.shown or "everywhere"
        kind = column.kind if column.kind in pb.TableColumn.Kind.keys() else "number"  # noqa: SIM118
        unit = "" if kind == column.kind else column.kind
        texts = [_text(cell, kind) for cell in own] if not unit else []
        numbers = [_number(cell, unit) for cell in own] if unit else []
        tips = [_tip(cell) for cell in own]
        made.columns.add(
            id=column.id,
            title=column.title,
            explanation=column.explanation,
            kind=kind,
            unit=unit,
            shown=shown,
            texts=texts,
            numbers=numbers,
            tips=tips if any(tips) else [],
        )
    places = list(map(time_ranges, ranges)) or [[] for _ in cells[0]]
    made.rows.extend(pb.TableRow(ranges=place) for place in places)
    made.first = min(first, len(places))
    return made


def _text(cell: Cell, kind: str) -> str:
    text = cell.word if isinstance(cell, Term) else cell
    assert isinstance(text, str), cell
    return one_line(text, _SENTENCE_LIMIT if kind == "text" else NAME_LIMIT)


def _number(cell: Cell, unit: str) -> float:
    """Times are whole nanoseconds."""
    figure = cell[0] if isinstance(cell, tuple) else cell
    assert not isinstance(figure, str | Term), cell
    if figure is None:
        return NOT_KNOWN
    return float(round(float(figure))) if unit == Unit.NS.value else float(figure)


def _tip(cell: Cell) -> str:
    if isinstance(cell, Term):
        return cell.explanation
    return cell[1] if isinstance(cell, tuple) else ""
