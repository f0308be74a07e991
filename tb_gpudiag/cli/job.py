"""`gpudiag job PATH…`: the ranks of a job together. Who waits for whom, why, and what limits all of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tb_gpudiag.cli.conditions import add_fail_on, is_met, sort_out
from tb_gpudiag.cli.formats import add_options, write
from tb_gpudiag.cli.inputs import add_engine_options, read_digests
from tb_gpudiag.cli.output import DEFECT, errors_data, tell, tell_errors
from tb_gpudiag.errors import GpudiagError, ProcessFailed, UsageError
from tb_gpudiag.jobs.ranks.members import slim
from tb_gpudiag.jobs.report.job_report import JobReports, build_jobs
from tb_gpudiag.jobs.report.job_view import job_document
from tb_gpudiag.report.wire import to_dict


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 1 if a --fail-on condition is met, 2 if there is no job, 3 after a bug, or if a
    process or a cluster failed: a job without some of its ranks is not judged.

    Raises UsageError and NothingToRead.
    """
    parsed = parser().parse_intermixed_args(arguments)
    conditions, paths = sort_out(parsed.fail_on, parsed.paths)
    if not paths:
        raise UsageError("PATH is missing", remedy="name the traces or digests of a job, or their directory")
    digests, errors = read_digests(paths, parsed, parsed.run, keep=slim)
    jobs = build_jobs(digests, errors)
    met_a_bug = tell_errors(errors) or any(rule.defect for job in jobs.reports for rule in job.unchecked)
    if not jobs.reports:
        for note in jobs.notes:
            tell(note)
        tell("No two ranks of one job were found.")
    if jobs.reports or parsed.format == "json":
        write(parsed, lambda: job_document(jobs.reports), lambda: _data(jobs, errors))
    if met_a_bug or any(isinstance(error, ProcessFailed) for error in errors):
        return DEFECT
    if not jobs.reports:
        return 2
    return 1 if is_met((f for report in jobs.reports for f in report.findings), conditions) else 0


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
    add_fail_on(made)
    made.add_argument("--run", metavar="RUN", help="only the ranks of this run")
    add_engine_options(made)
    return made
