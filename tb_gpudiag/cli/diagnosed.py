"""What `gpudiag diagnose` has found in files: their reports, and what is written of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tb_gpudiag.arrays import NONE
from tb_gpudiag.cli.formats import FailOn, has_interactive_html, is_met, write
from tb_gpudiag.cli.inputs import Show, progress_bar
from tb_gpudiag.cli.output import DEFECT, UNUSABLE, errors_data, report_bug, tell, tell_errors
from tb_gpudiag.digest.digest import About, Digest
from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.jobs.ranks.members import slim
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.report.source_lines import add_source_lines
from tb_gpudiag.report.views.document import Document
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.service.analyses.diagnoses import (
    DIAGNOSIS,
    REPORT,
    Diagnosis,
    ResultKind,
    databases_apart,
    obtain,
)
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.index.run_rows import job_row, run_row
from tb_gpudiag.service.processes.gate import limit_here
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.trace.files.find import TraceFile


@dataclass
class DiagnosedFiles:
    """Reports of the files that were read, and errors of those that were not.

    Each report has a digest, without what jobs do not need, and a row of the table of runs.
    """

    reports: list[pb.Report] = field(default_factory=list)
    digests: list[Digest] = field(default_factory=list)
    rows: list[pb.RunRow] = field(default_factory=list)
    jobs: list[pb.JobReport] = field(default_factory=list)
    errors: list[GpudiagError] = field(default_factory=list)
    interactive: bool = False  # make an interactive page of the only file
    content: Callable[[], Mapping[str, object] | None] = lambda: None
    """What the interactive page of a single trace needs; None without one."""

    def findings(self) -> Iterator[pb.Finding]:
        yield from (finding for report in self.reports for finding in report.findings)
        yield from (finding for job in self.jobs for finding in job.findings)

    def has_crashed_rule(self) -> bool:
        crashed = [rule.defect for report in self.reports for rule in report.unchecked]
        return any([*crashed, *(rule.defect for job in self.jobs for rule in job.unchecked)])

    def document(self) -> Document:
        """Return what text, Markdown and HTML show."""
        from tb_gpudiag.jobs.report.job_view import Diagnosed, directory_document

        abouts = [digest.about for digest in self.digests]
        ids = [about.id for about in abouts]
        row_of = dict(zip(ids, self.rows, strict=True))
        in_jobs = {rank.id for job in self.jobs for rank in job.ranks}
        found = [Diagnosed(job_row(job, [row_of[rank.id] for rank in job.ranks]), job) for job in self.jobs]
        # A snapshot of a rank, and the pages that torch draws of it, are one recording.
        of_ranks = {_recording(about) for about in abouts if about.id in in_jobs}
        singles = zip(abouts, self.rows, self.reports, strict=True)
        found += [Diagnosed(row, report) for at, row, report in singles if _recording(at) not in of_ranks]
        return directory_document(found)


def _recording(about: About) -> tuple[object, ...]:
    snapshot = about.kind == "snapshot" and about.rank != NONE
    times = about.origin_ns, about.recording_ns
    return (about.run, about.rank, *times, *about.memory) if snapshot else (about.id,)


def diagnose_files(
    files: list[TraceFile], errors: list[GpudiagError], parsed: argparse.Namespace, conditions: list[FailOn]
) -> int:
    """Diagnose the files, write what was found, and return the exit status of `gpudiag diagnose`.

    errors: of what could not be found.
    """
    result = DiagnosedFiles(errors=errors)
    result.interactive = parsed.format == "html" and len(files) == 1 and has_interactive_html()
    # Diagnose the files, and keep what other commands and the tab need of them.
    limit, shared = limit_here(), SharedCache.of_user(settings_from())
    with progress_bar(len(files), quiet=parsed.quiet) as show:
        for number, file in enumerate(files):
            try:
                with limit.watched(file.path):
                    progress = partial(_show_within, show, number)
                    _diagnose_file(file, result, shared, progress)
            except GpudiagError as error:
                result.errors.append(error)
            except Exception as error:  # a bug must not cost the user the reports of the other files
                result.errors.append(limit.reached(error, file.path) or report_bug(error, file.path))
    if shared is not None and not shared.is_own and shared.note:
        tell(shared.note)
    if len(result.digests) > 1:
        from tb_gpudiag.jobs.report.job_report import build_jobs  # much code, which one trace does not need

        try:
            result.jobs = list(build_jobs(result.digests).reports)
        except Exception as error:  # nor the reports of all files
            result.errors.append(limit.reached(error, "") or report_bug(error))
    met_a_bug = tell_errors(result.errors) or result.has_crashed_rule()
    if result.reports or parsed.format == "json":  # programs expect a document, even if nothing could be read
        write(
            parsed,
            result.document,
            lambda: _data(result),
            result.content,
            {"brief": lambda: _brief(result), "github": lambda: _annotations(result)},
            on_one_screen=not parsed.full,
        )
    if met_a_bug:
        return DEFECT
    if not result.reports:
        return UNUSABLE
    return 1 if is_met(result.findings(), conditions) else 0


def _diagnose_file(
    file: TraceFile, result: DiagnosedFiles, shared: SharedCache | None, progress: Progress
) -> None:
    # A team's store gets what the page shows, too.
    is_whole = result.interactive or (shared is not None and not shared.is_own)
    kind: ResultKind[Diagnosis] = DIAGNOSIS if is_whole else REPORT
    found = obtain(file, databases_apart(kind), shared, progress)
    if found.origin:
        tell(f"{os.path.basename(file.path)}: result of {found.origin}")
    if result.interactive:
        from tb_gpudiag.report.slices.embedded import embedded  # the whole page, which no other format shows

        result.content = partial(embedded, found.report, found.arrays, file.size_bytes, file.modified_ns)
    add_source_lines(found.report)
    result.reports.append(found.report)
    result.rows.append(run_row(found.digest))
    result.digests.append(slim(found.digest))


def _show_within(show: Show, number: int, share: float, stage: str) -> None:
    show(number + share, stage)


def _brief(result: DiagnosedFiles) -> str:
    from tb_gpudiag.report.views.brief import brief_text

    return brief_text(result.document())


def _annotations(result: DiagnosedFiles) -> str:
    from tb_gpudiag.cli.annotations import github_annotations

    return github_annotations(result.findings())


def _data(result: DiagnosedFiles) -> dict[str, object]:
    document: dict[str, object] = {
        "reports": [to_dict(report) for report in result.reports],
        "jobs": [to_dict(job) for job in result.jobs],
    }
    if result.errors:
        document["errors"] = errors_data(result.errors)
    return document
