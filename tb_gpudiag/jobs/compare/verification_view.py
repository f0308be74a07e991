"""A Verification as the document that text, Markdown and HTML show."""

from __future__ import annotations

from typing import Final

from tb_gpudiag.jobs.compare.comparison_view import parts, promises
from tb_gpudiag.jobs.compare.promise import promised_range
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Column, Document, Kind, ReportView, Section, Table, lines, table
from tb_gpudiag.wording.format import one_line, time_us

_BECAME: Final = {"UNKNOWN": "cannot tell", "GONE": "gone", "LESS": "mostly gone", "KEPT": "there"}


def verification_document(found: pb.Verification) -> Document:
    sections: list[Section] = [
        _findings(found),
        promises(found.findings),
        parts(found.causes, found.mean_step_us),
        lines("new", "New findings", found.new_findings),
        lines("past", "What past fixes of this rule gave", _past(found)),
        lines("how", "How to tell", found.how_to_tell),
        lines("notes", "Notes", found.notes),
    ]
    view = ReportView(
        heading="Verification",
        path=f"before: {found.base}",
        about=f"after: {found.candidate}",
        verdict=f"{found.sentence} {found.step}",
        sections=tuple(section for section in sections if section),
    )
    return Document(
        title=f"Verification of {found.rule}: {found.base} and {found.candidate}",
        reports=(view,),
        example=found.rule,
    )


def _past(found: pb.Verification) -> list[str]:
    if not found.past_high_us:
        return [found.past.sentence] if found.HasField("past") else []
    here = promised_range(found.past_low_us, found.past_high_us)
    return [found.past.sentence, f"Of this finding, that is {here} per step."]


def _findings(found: pb.Verification) -> Table:
    rows = [
        (
            one_line(f"{row.rule} {row.name}"),
            _BECAME[pb.Verified.Became.Name(row.became)],
            time_us(row.cost_us) if row.cost_us else "",
            time_us(row.left_us) if row.left_us else "",
        )
        for row in found.findings
    ]
    columns = (
        Column("Finding"),
        Column("Is"),
        Column("Cost before", Kind.NUMBER),
        Column("Cost after", Kind.NUMBER),
    )
    return table("verified", "Findings before the fix, cost per step", columns, rows)
