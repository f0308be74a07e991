"""Histories as the document that text, Markdown and HTML show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

import numpy as np

from tb_gpudiag.jobs.history.change_points import LEAST_SIDE
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import (
    Column,
    ColumnOf,
    Document,
    Kind,
    ReportView,
    Section,
    Table,
    lines,
    table,
    table_of,
)
from tb_gpudiag.wording.format import count, share, size_bytes, time_us
from tb_gpudiag.wording.quantity import duration, size
from tb_gpudiag.wording.vocabulary import limiter_word

ROWS_SHOWN: Final = 40
"""Recordings in the table. If there are more, it shows evenly spaced recordings and those at changes."""

_SITES_SHOWN: Final = 5


def history_document(histories: Sequence[pb.History]) -> Document:
    """Build the document of histories."""
    views = tuple(_view(history) for history in histories)
    overview = None
    if len(views) > 1:
        rows = [(view.heading, view.headline, view.verdict) for view in views]
        columns = (Column("Run"), Column("What happened"), Column("Figures"))
        overview = table("overview", count(len(views), "history", "histories"), columns, rows)
    return Document(
        title=f"History of {', '.join(view.heading for view in views[:3])}",
        overview=overview,
        reports=views,
        example=next((rule for history in histories for point in history.points for rule in point.rules), ""),
    )


def _view(history: pb.History) -> ReportView:
    points = history.points
    # A table of the allocation sites of growing memory.
    columns: list[ColumnOf[tuple[str, pb.MemorySite]]] = [
        (Column("Memory of"), lambda row: row[0]),
        (Column("Allocated by", Kind.NAME), lambda row: row[1].operator),
        (Column("Grows by", Kind.NUMBER), lambda row: size(row[1].bytes_per_step, "per step")),
        (Column("At", Kind.CODE), lambda row: row[1].place.function),
    ]
    shown = [(drift.device, site) for drift in history.drifts for site in drift.sites[:_SITES_SHOWN]]
    sections: list[Section] = [
        lines("changes", "Changes", (change.sentence for change in history.changes)),
        lines("drifts", "Growing memory", (drift.sentence for drift in history.drifts)),
        table_of("sites", "Growing allocations of the last recording", shown, columns),
        _points(history),
        lines("notes", "Notes", history.notes),
    ]
    first = points[0]
    rank = f"rank {first.rank}" if first.rank >= 0 else ""
    run = "" if history.run == "." else history.run
    # Describe the last recording in a sentence.
    last = points[-1]
    parts = [f"a step takes {time_us(last.step_us)}"] if last.step_us else []
    if last.busy_share:
        parts.append(f"the GPU is busy {share(last.busy_share)} of the time")
    if last.peak_bytes:
        parts.append(f"memory peaks at {size_bytes(last.peak_bytes)}")
    return ReportView(
        heading=" · ".join(part for part in (run or first.worker, rank) if part),
        path=first.worker,
        about=_about(points),
        headline=_headline(history),
        verdict=f"In the last recording {', '.join(parts)}."
        if parts
        else "The recordings have no steps and no GPU work.",
        sections=tuple(section for section in sections if section),
    )


def _about(points: Sequence[pb.HistoryPoint]) -> str:
    text = count(len(points), "recording")
    first, last = _time(points[0].time_s), _time(points[-1].time_s)
    if not first or not last:
        return text
    long = time_us((points[-1].time_s - points[0].time_s) * 1e6)
    return text + f" · {first} · {long}" * (len(points) > 1)


def _headline(history: pb.History) -> str:
    parts = [count(len(history.changes), "change")] if history.changes else []
    if history.drifts:
        parts.append("memory grows" if parts else "Memory grows")
    if not parts and len(history.points) < 2 * LEAST_SIDE:
        return "Too few recordings to show a change"
    return ", ".join(parts) or "No change"


def _points(history: pb.History) -> Table:
    points = history.points
    changed = {change.point for change in history.changes}
    evenly = np.linspace(0, len(points) - 1, min(len(points), ROWS_SHOWN)).round().astype(int)
    shown = sorted({*evenly.tolist(), *changed})
    columns: list[ColumnOf[tuple[int, pb.HistoryPoint]]] = [
        (Column("#", Kind.NUMBER), lambda row: str(row[0] + 1)),
        (Column("Recorded (UTC)"), lambda row: _time(row[1].time_s) or row[1].span),
        (Column("Step", Kind.NUMBER), lambda row: duration(row[1].step_us * 1e3) if row[1].step_us else ""),
        (Column("GPU busy", Kind.NUMBER), lambda row: share(row[1].busy_share) if row[1].device_name else ""),
        (Column("Floor", Kind.NUMBER), lambda row: size(row[1].floor_bytes) if row[1].floor_bytes else ""),
        (Column("Peak", Kind.NUMBER), lambda row: size(row[1].peak_bytes) if row[1].peak_bytes else ""),
        (
            Column("Bottleneck"),
            lambda row: limiter_word(
                pb.Verdict.Limiter.Name(row[1].limiter), on_gpu=bool(row[1].device_name)
            ),
        ),
        (Column("First finding"), lambda row: row[1].title),
    ]
    title = (
        "Recordings" if len(shown) == len(points) else f"{len(shown)} of {count(len(points), 'recording')}"
    )
    return table_of("points", title, [(number, points[number]) for number in shown], columns)


def _time(seconds: float) -> str:
    """Date and time; "" if they are not known."""
    if seconds <= 0:
        return ""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""
