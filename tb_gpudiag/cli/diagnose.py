"""`gpudiag diagnose PATH…`: diagnose all traces below the paths. Write text, JSON, Markdown or HTML."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from tb_gpudiag.cli.conditions import add_fail_on, is_met, sort_out
from tb_gpudiag.cli.formats import add_options, write
from tb_gpudiag.cli.inputs import Show, find_files, progress_bar
from tb_gpudiag.cli.output import DEFECT, report_bug, tell
from tb_gpudiag.cli.source_lines import add_source_lines
from tb_gpudiag.errors import (
    Defect,
    GpudiagError,
    UsageError,
    is_out_of_memory,
)
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.diagnosis import diagnose_file
from tb_gpudiag.report.views.compose import compose
from tb_gpudiag.report.wire import to_dict
from tb_gpudiag.service.guarded_memory import MemoryLimit
from tb_gpudiag.trace.find import TraceFile


@dataclass
class Result:
    """Reports of the files that were read, and errors of those that were not."""

    reports: list[pb.Report] = field(default_factory=list)
    errors: list[GpudiagError] = field(default_factory=list)


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 1 if a --fail-on condition is met, 2 if nothing was read, 3 after a bug.

    Raises UsageError.
    """
    parsed = _parser().parse_intermixed_args(arguments)
    conditions, paths = sort_out(parsed.fail_on, parsed.paths)
    if not paths:
        raise UsageError("PATH is missing", remedy="name a trace file, a memory snapshot or a log directory")
    result = Result()
    files, result.errors = find_files(paths, parsed.run)
    _diagnose(files, result, quiet=parsed.quiet)
    for error in result.errors:
        tell(str(error))
    if result.reports or parsed.format == "json":
        write(parsed, lambda: compose(result.reports), lambda: _data(result))
    if _met_a_bug(result):
        return DEFECT
    if not result.reports:
        return 2
    return 1 if is_met((f for report in result.reports for f in report.findings), conditions) else 0


def _met_a_bug(result: Result) -> bool:
    crashed = (rule for report in result.reports for rule in report.unchecked if rule.defect)
    return any(isinstance(error, Defect) for error in result.errors) or any(crashed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpudiag diagnose",
        description="Show where GPU time and memory went, why the GPU was idle, and what to fix first.",
        epilog="Exit status: 0 success, 1 a --fail-on condition is met, 2 invalid usage or nothing to read, "
        "3 a bug in gpudiag: the report of a file, or a rule in it, is missing.",
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="a trace file, a memory snapshot (.pickle), or a log directory",
    )
    add_options(parser)
    add_fail_on(parser)
    parser.add_argument("--run", metavar="RUN", help="diagnose only the traces of this run")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    return parser


def _diagnose(files: list[TraceFile], result: Result, *, quiet: bool) -> None:
    memory = MemoryLimit()
    with progress_bar(len(files), quiet=quiet) as show:
        for number, file in enumerate(files):
            try:
                with memory.watched():
                    report = diagnose_file(file, partial(_show_within, show, number))
                add_source_lines(report)
                result.reports.append(report)
            except GpudiagError as error:
                result.errors.append(error)
            except Exception as error:  # a bug must not cost the user the reports of the other files
                out = is_out_of_memory(error)
                result.errors.append(memory.error(file.path) if out else report_bug(error, file.path))


def _show_within(show: Show, number: int, share: float, stage: str) -> None:
    show(number + share, stage)


def _data(result: Result) -> dict[str, object]:
    document: dict[str, object] = {"reports": [to_dict(report) for report in result.reports]}
    if result.errors:
        document["errors"] = [{"what": e.what, "where": e.where, "remedy": e.remedy} for e in result.errors]
    return document
