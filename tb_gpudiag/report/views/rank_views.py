"""A HangReport and a ClockReport as sections of the document that text, Markdown and HTML show."""

from __future__ import annotations

from typing import Final

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Column, Document, Kind, ReportView, Section, lines, table
from tb_gpudiag.vocabulary.frames import Frame, LineKind
from tb_gpudiag.wording.format import count, share, time_us
from tb_gpudiag.wording.vocabulary import CLOCK_PHASES, HANG_STATES

_COLUMNS: Final = (
    Column("Ranks"),
    Column("Are"),
    Column("Operation"),
    Column("Group"),
    Column("Called at", Kind.CODE),
    Column("Not called by ranks"),
)


def hang_document(found: pb.HangReport, path: str) -> Document:
    view = ReportView("Hanging job", path, found.sentence, hang_sections(found))
    return Document("Hanging job", (view,))


def hang_sections(found: pb.HangReport) -> tuple[Section, ...]:
    """Build what there is to say of the dumps, beside the sentence."""
    rows = [
        (
            row.ranks_text,
            HANG_STATES[pb.HangingRanks.State.Name(row.state)].noun,
            f"{row.operation} {row.sequence:,}" if row.sequence else row.operation,
            row.group,
            str(Frame(row.place.file, row.place.line, row.place.function, LineKind.RUNNING)),
            row.waits_for_text,
        )
        for row in found.ranks
    ]
    sections = (
        lines("fix", "What to do", [found.advice]),
        table("ranks", "Where the ranks are", _COLUMNS, rows),
        lines("notes", "Notes", found.notes),
    )
    return tuple(section for section in sections if section)


def clock_sections(found: pb.ClockReport) -> list[Section]:
    """Build what there is to say of the clocks, beside the sentence."""
    names = [phase.name for phase in next((rank.phases for rank in found.ranks if rank.phases), ())]
    rows = [
        (
            str(rank.rank),
            count(int(rank.steps)),
            time_us(rank.step_us),
            *(f"{time_us(phase.us)} ({share(phase.share)})" for phase in rank.phases),
            *[""] * (len(names) - len(rank.phases)),
            rank.drift,
        )
        for rank in found.ranks
    ]
    columns = (
        Column("Rank"),
        Column("Steps", Kind.NUMBER),
        Column("Step", Kind.NUMBER, "Median over all steps."),
        *(Column(CLOCK_PHASES[name].word, Kind.NUMBER, CLOCK_PHASES[name].explanation) for name in names),
        Column("Drift"),
    )
    made = [
        f"Rank {one.rank} from step {int(one.step):,}: {one.why} ({one.worker})" for one in found.recordings
    ]
    return [
        table("ranks", "Steps by rank: medians, and shares of the steps", columns, rows),
        lines("recordings", "Recordings", made),
        lines("notes", "Notes", found.notes),
    ]
