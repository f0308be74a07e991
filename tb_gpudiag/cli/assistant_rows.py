"""Rows of an assistant's answers: short, rounded, and no more than fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tb_gpudiag.report.wire import dump
from tb_gpudiag.wording.format import NAME_LIMIT, one_line

ANSWER_BYTES: Final = 4_000
"""Most bytes of an answer. It counts the rows that do not fit, and says where the next answer continues."""

LONGEST_NAME: Final = 120

AnswerRow = dict[str, Any]
AnswerData = dict[str, Any]
Gap = tuple[int, int]
"""Device and number."""


def longest_gaps(lanes: Sequence[Mapping[str, Any]], device: int | None) -> tuple[list[Gap], int]:
    """Return (device, number) of the gaps in the timeline, longest first, and how many segments are merged.

    Segments that are too short for the timeline have no gap number, so they count for no gap.
    """
    length: Counter[Gap] = Counter()
    merged = 0
    for lane in lanes:
        if lane["kind"] != "gaps" or device not in (None, lane["device"]):
            continue
        boxes = zip(lane["box_duration_us"], lane["box_count"], lane["box_gap"], strict=True)
        for duration, count, gap in boxes:
            if count > 1:
                merged += count
            else:
                length[lane["device"], gap] += duration
    return [gap for gap, _ in length.most_common()], merged


def fitted(answer: Mapping[str, Any], key: str, rows: Sequence[AnswerRow], first: int = 0) -> AnswerData:
    """Add as many rows as fit, beginning with row `first`, and where the next answer continues."""
    first = max(0, first)
    size = len(dump(answer).encode()) + 280  # where the next one continues, and what every answer begins with
    taken: list[AnswerRow] = []
    for row in rows[first:]:
        size += len(dump(row).encode()) + 1
        if size > ANSWER_BYTES:
            break
        taken.append(row)
    end = first + len(taken)
    more = {"next_first": end, "of": len(rows)} if end < len(rows) else {}
    return {**answer, key: taken, **more}


def short(row: AnswerRow) -> AnswerRow:
    """Leave out empty values, and shorten strings: names in traces can have thousands of characters."""
    shown = {
        key: one_line(value, NAME_LIMIT if key in ("title", "verdict") else LONGEST_NAME)
        if isinstance(value, str)
        else value
        for key, value in row.items()
    }
    return {key: value for key, value in shown.items() if value not in ("", 0, None)} | {
        key: row[key] for key in ("finding", "gap") if key in row
    }


_OF_COLLECTIVE: Final = (
    "kind parallelism unit name group annotation why calls collectives index bytes us exposed_us skew_us "
    "transfer_us why_us"
)


def row_of(source: Mapping[str, Any], fields: str) -> AnswerRow:
    """Return the fields of a message that it has. fields: `name us=total_us` calls the second one `us`.

    Texts are shortened, µs and shares rounded, and all other numbers whole.
    """
    named = (field.rpartition("=") for field in fields.split())
    return {shown or field: _shown(source[field], field) for shown, _, field in named if field in source}


def _shown(value: Any, field: str) -> Any:
    if isinstance(value, str):
        return one_line(value, NAME_LIMIT if field == "title" else LONGEST_NAME)
    if field.endswith("us"):
        return rounded(value)
    return round(value, 3) if field.endswith("share") else int(value)


def table_rows(report: Mapping[str, Any], id: str) -> list[AnswerRow]:
    """Return the rows of one of the report's tables, without what is not known. Times are in µs."""
    rows = []
    for table in report["tables"]:
        for at in range(len(table["rows"])) if table["id"] == id else ():
            cells = (_cell(column, at) for column in table["columns"])
            rows.append({name: value for name, value in cells if value not in ("", None)})
    return rows


def _cell(column: Mapping[str, Any], at: int) -> tuple[str, Any]:
    unit, name = column["unit"], column["id"]
    if not unit:
        return name, one_line(column["texts"][at], LONGEST_NAME)
    value = column["numbers"][at]
    if value < 0:
        return name, None
    if unit == "ns":
        return f"{name}_us", rounded(value / 1000)
    return name, int(value) if unit in ("count", "bytes") else round(value, 3)


def collective_row(one: Mapping[str, Any]) -> AnswerRow:
    """Return a collective of a job, or those of one unit: what there is to say of it."""
    ranks = row_of(one, "last_rank last_in")  # of which 0 is one
    place = {"place": place_text(one["place"])} if "place" in one else {}
    return {**short(row_of(one, _OF_COLLECTIVE)), **ranks, **place}


def site_row(device: str, what: str, site: Mapping[str, Any]) -> AnswerRow:
    """Return a place that allocates. what: why it is listed."""
    row = row_of(site, "bytes bytes_per_step kind operator")
    return short({"device": device, "what": what, **row, "place": place_text(site.get("place", {}))})


def held_row(one: Mapping[str, Any]) -> AnswerRow:
    """Return what of the memory at the peaks of two sides differs at a place."""
    was = {"base_line": one["base_place"]["line"]} if "base_place" in one else {}
    row = row_of(one, "device kind operator=allocator base_bytes candidate_bytes")
    return {**row, "place": place_text(one["place"]), **was}


def largest_causes(causes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the µs of the largest causes, most first."""
    largest = sorted(causes, key=lambda one: -float(one["us"]))[:6]
    return {one["cause"]: rounded(one["us"]) for one in largest}


def place_text(place: Mapping[str, Any]) -> str:
    """Return `file:line in function operator`, as far as it is known."""
    if not place:
        return ""
    where = f"{place['file']}:{place['line']}" if place.get("file") else ""
    parts = (where, f"in {place['function']}" if place.get("function") else "", place.get("operator", ""))
    return one_line(" ".join(part for part in parts if part), LONGEST_NAME)


def rounded(number: float) -> float:
    """Round µs to what matters."""
    return round(number, 1)
