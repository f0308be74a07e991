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


_OF_COLLECTIVE: Final = ("kind", "parallelism", "unit", "name", "group", "annotation", "why")
_COUNTS: Final = ("calls", "collectives", "index", "bytes")
_TIMES: Final = ("us", "exposed_us", "skew_us", "transfer_us", "why_us")


def collective_row(one: Mapping[str, Any]) -> AnswerRow:
    """Return a collective of a trace or a job, or those of one unit: what there is to say of it."""
    row = {key: one[key] for key in _OF_COLLECTIVE if key in one}
    row |= {key: int(one[key]) for key in _COUNTS if key in one}
    row |= {key: rounded(one[key]) for key in _TIMES if key in one}
    ranks = {key: one[key] for key in ("last_rank", "last_in") if key in one}  # of which 0 is one
    return {**short(row), **ranks, **({"place": place_text(one["place"])} if "place" in one else {})}


def hanging_row(row: Mapping[str, Any]) -> AnswerRow:
    """Return where ranks of a job that hangs are."""
    return {
        **{key: one_line(row[key], LONGEST_NAME) for key in ("state", "operation", "group")},
        "sequence": row["sequence"],
        "ranks": row["ranks_text"],
        "waits_for": row["waits_for_text"],
        "place": place_text(row["place"]) if "place" in row else "",
    }


def hotspot_row(hotspot: Mapping[str, Any]) -> AnswerRow:
    """Return what launches kernels, and what that costs."""
    return short(
        {
            "kind": hotspot["kind"],
            "name": hotspot["key"],
            "launches": hotspot["launches"],
            **{key: rounded(hotspot[key]) for key in ("host_us", "kernel_us", "idle_us")},
            "empty_queue_share": round(hotspot["empty_queue_share"], 3),
        }
    )


def site_row(device: str, what: str, site: Mapping[str, Any]) -> AnswerRow:
    """Return a place that allocates. what: why it is listed."""
    return short(
        {
            "device": device,
            "what": what,
            "bytes": int(site["bytes"]),
            "bytes_per_step": int(site.get("bytes_per_step", 0)),
            "kind": site.get("kind", ""),
            "operator": site["operator"],
            "place": place_text(site.get("place", {})),
        }
    )


def clock_row(row: Mapping[str, Any]) -> AnswerRow:
    """Return what the step clock of a rank says."""
    return {
        **{key: int(row[key]) for key in ("rank", "steps", "last_step")},
        **{key: rounded(row[key]) for key in ("step_us", "now_us")},
        "phases_us": {phase["name"]: rounded(phase["us"]) for phase in row["phases"]},
        **short({"drift": row["drift"]}),
    }


def recording_row(row: Mapping[str, Any]) -> AnswerRow:
    """Return a recording that a step clock has made."""
    return {
        **{key: int(row[key]) for key in ("rank", "step")},
        **short({key: row[key] for key in ("why", "worker", "span")}),
    }


def device_row(device: Mapping[str, Any]) -> AnswerRow:
    """Return the step window of a device and its idle time."""
    window = device["window_us"]
    return {
        "device": device["id"],
        "name": one_line(device["name"], LONGEST_NAME),
        "window_us": rounded(window),
        "idle_us": rounded(device["window_idle_us"]),
        "idle_by_cause_us": largest_causes(device["window_idle_by_cause"]),
    }


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
