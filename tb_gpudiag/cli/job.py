"""`gpudiag job PATH…`: the ranks of a job together. Who waits for whom, why, and what limits all of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tb_gpudiag.cli.formats import add_fail_on, add_full, add_options, is_met, sort_out, write
from tb_gpudiag.cli.inputs import add_engine_options, find_files
from tb_gpudiag.cli.output import DEFECT, errors_data, tell, tell_errors
from tb_gpudiag.digest.digest_files import find_digests
from tb_gpudiag.errors import GpudiagError, NothingToRead, ProcessFailed, UsageError
from tb_gpudiag.jobs.report.job_view import JobReports, job_document
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.service.caches.kept_jobs import JobMarks, find_job, job_marks, keep_job
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.trace.files.source import is_remote


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 1 if a --fail-on condition is met, 2 if there is no job, 3 after a bug, or if a
    process or a cluster failed: a job without some of its ranks is not judged.

    Raises UsageError and NothingToRead.
    """
    parsed = parser().parse_intermixed_args(arguments)
    conditions, paths = sort_out(parsed.fail_on, parsed.paths)
    if not paths:
        raise UsageError("PATH is missing", remedy="name the traces or digests of a job, or their directory")
    jobs, errors = _read_jobs(paths, parsed)
    met_a_bug = tell_errors(errors) or any(rule.defect for job in jobs.reports for rule in job.unchecked)
    if not jobs.reports:
        for note in jobs.notes:
            tell(note)
        tell("No two ranks of one job were found.")
    if jobs.reports or parsed.format == "json":
        write(
            parsed,
            lambda: job_document(jobs.reports),
            lambda: _data(jobs, errors),
            on_one_screen=not parsed.full,
        )
    if met_a_bug or any(isinstance(error, ProcessFailed) for error in errors):
        return DEFECT
    if not jobs.reports:
        return 2
    return 1 if is_met((f for report in jobs.reports for f in report.findings), conditions) else 0


def _read_jobs(paths: Sequence[str], parsed: argparse.Namespace) -> tuple[JobReports, list[GpudiagError]]:
    """Return the jobs below the paths, as they are kept or judged now, and what went wrong."""
    cache = SharedCache.of_user(settings_from())
    marks = _marks(paths, parsed) if cache is not None else None
    kept = find_job(marks, cache) if marks is not None and cache is not None else None
    if kept is not None:
        return kept, []
    from tb_gpudiag.cli.digest import read_digests
    from tb_gpudiag.jobs.ranks.members import slim
    from tb_gpudiag.jobs.report.job_report import build_jobs

    digests, errors = read_digests(paths, parsed, parsed.run, keep=slim)
    jobs = build_jobs(digests, errors)
    is_final = not errors and all(digest.about.status != "WRITING" for digest in digests)
    if marks is not None and cache is not None and is_final and _marks(paths, parsed) == marks:
        keep_job(marks, jobs, cache)
    return jobs, errors


def _marks(paths: Sequence[str], parsed: argparse.Namespace) -> JobMarks | None:
    """Return what tells these jobs from others; None if not all of their ranks are traces on a local disk."""
    if parsed.dask is not None or any(is_remote(path) or find_digests(path) for path in paths):
        return None
    try:
        files, errors = find_files(paths, parsed.run)
    except NothingToRead:
        return None
    return None if errors else job_marks(files)


def _data(jobs: JobReports, errors: Sequence[GpudiagError]) -> dict[str, object]:
    document: dict[str, object] = {"jobs": [to_dict(report) for report in jobs.reports]}
    if jobs.notes:
        document["notes"] = jobs.notes
    if errors:
        document["errors"] = errors_data(errors)
    return document


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag job",
        description="Show the ranks of a job together: which rank the others wait for and why, how fast "
        "collectives transfer, and what limits the job.",
        epilog="Exit status: 0 success, 1 a --fail-on condition is met, 2 invalid usage or no two ranks of "
        "one job, 3 a bug in gpudiag, or ranks are missing because a process or the cluster failed.",
    )
    made.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="a directory with a trace or a digest per rank, or these files",
    )
    add_options(made)
    add_full(made)
    add_fail_on(made)
    made.add_argument("--run", metavar="RUN", help="only the ranks of this run")
    add_engine_options(made)
    return made
