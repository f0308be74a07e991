"""A HangReport as the document that text, Markdown and HTML show."""

from __future__ import annotations

from typing import Final

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Column, Document, Kind, ReportView, lines, table
from tb_gpudiag.version import __version__
from tb_gpudiag.vocabulary.frames import Frame, LineKind
from tb_gpudiag.wording.rank_numbers import numbers_text

_STATES: Final = {
    "ENDED": "after",
    "WAITS": "waiting in",
    "RUNS": "running",
    "NO_DUMP": "no dump",
}
_COLUMNS: Final = (
    Column("Ranks"),
    Column("Are"),
    Column("Operation"),
    Column("Group"),
    Column("Called at", Kind.CODE),
    Column("Not called by ranks"),
)


def hang_document(found: pb.HangReport, path: str) -> Document:
    """Build the document about the dumps at a path."""
    rows = [
        (
            numbers_text(row.ranks),
            _STATES[pb.HangingRanks.State.Name(row.state)],
            f"{row.operation} {row.sequence:,}" if row.sequence else row.operation,
            row.group,
            str(Frame(row.place.file, row.place.line, row.place.function, LineKind.RUNNING)),
            numbers_text(row.waits_for) if row.waits_for else "",
        )
        for row in found.ranks
    ]
    sections = (
        lines("fix", "What to do", [found.advice]),
        table("ranks", "Where the ranks are", _COLUMNS, rows),
        lines("notes", "Notes", found.notes),
    )
    view = ReportView(
        heading="Hanging job",
        path=path,
        about="",
        limiter="",
        verdict=found.sentence,
        sections=tuple(section for section in sections if section),
    )
    return Document("Hanging job", None, (view,), "", f"gpudiag {__version__}")
