"""A ClockReport as sections of the document that text, Markdown and HTML show."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Column, Kind, Section, lines, table
from tb_gpudiag.wording.format import count, share, time_us
from tb_gpudiag.wording.kinds import CLOCK_PHASES


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
