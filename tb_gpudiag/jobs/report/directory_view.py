"""The document of a log directory: a table of its runs and jobs, and those in full if they are few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.jobs.report.job_view import job_view
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.compose import any_rule, compose, report_view
from tb_gpudiag.report.views.document import Command, Document
from tb_gpudiag.report.views.sections.run_table import run_table, worst_first
from tb_gpudiag.version import __version__

# More than this fill so many screens that nobody reads them: the table shows which one to look at.
MOST_IN_FULL: Final = 4


def directory_document(
    reports: Sequence[pb.Report], jobs: Sequence[pb.JobReport], rows: Sequence[pb.RunRow]
) -> Document:
    """Build the document of jobs, and of the reports on traces that are a rank of none. rows: of both."""
    if not jobs and len(reports) <= MOST_IN_FULL:
        return compose(reports)
    in_full = len(jobs) + len(reports) <= MOST_IN_FULL
    views = [*map(job_view, jobs), *map(report_view, reports)] if in_full else []
    table = run_table(worst_first(rows)) if len(rows) > 1 else None
    return Document(
        title=f"Diagnosis: {table.title if table else views[0].heading}",
        overview=table,
        reports=tuple(views),
        example=any_rule([*jobs, *reports]),
        generator=f"tb-gpudiag {__version__}",
        more=tuple(_more(jobs, in_full=in_full)),
    )


def _more(jobs: Sequence[pb.JobReport], *, in_full: bool) -> list[Command]:
    whole = Command("gpudiag diagnose PATH --run RUN", "shows one run in full.")
    ranks = Command("gpudiag diagnose TRACE", "shows one rank in full.")
    return [whole] * (not in_full) + [ranks] * bool(jobs)
