"""`gpudiag diagnose PATH…`: diagnose all traces below the paths, and write the reports in one of six
formats."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace

from tb_gpudiag.cli.formats import add_fail_on, add_full, add_options, sort_out
from tb_gpudiag.cli.inputs import find_files
from tb_gpudiag.cli.output import DEFECT, UNUSABLE, tell_errors
from tb_gpudiag.errors import GpudiagError, UsageError


def run(arguments: Sequence[str]) -> int:
    """Return 0 on success, 1 if a --fail-on condition is met, 2 if nothing was read, 3 after a bug.

    Raises UsageError.
    """
    parsed = parser().parse_intermixed_args(arguments)
    conditions, paths = sort_out(parsed.fail_on, parsed.paths)
    if not paths:
        raise UsageError("PATH is missing", remedy="name a trace file, a memory snapshot or a log directory")
    errors: list[GpudiagError] = []
    if parsed.export:
        from tb_gpudiag.cli.exported import export_reports

        paths, errors = export_reports(paths)
    files, problems = find_files(paths, parsed.run)
    errors += problems
    # The log of torch.compile and the capture that the user named, "" for none. Raises UsageError: there
    # is no such file.
    for path, what, remedy in (
        (parsed.torch_trace, "log of torch.compile", "a file dedicated_log_torch_trace_*.log, or its folder"),
        (parsed.capture, "recording of a capture", "the trace of a capture, or the folder of several"),
    ):
        if path and not os.path.exists(path):
            raise UsageError(f"there is no such {what}", where=path, remedy=f"name {remedy}")
    torch_trace, capture = parsed.torch_trace or "", parsed.capture or ""
    if not files and parsed.format != "json":
        return DEFECT if tell_errors(errors) else UNUSABLE
    # Here numpy, Arrow and the rules are imported: who mistyped a path is told so before.
    from tb_gpudiag.cli.diagnosed import diagnose_files

    files = [replace(file, torch_trace=torch_trace, capture=capture) for file in files]
    return diagnose_files(files, errors, parsed, conditions)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gpudiag diagnose",
        description="Show where GPU time and memory went, why the GPU was idle, and what to fix first.",
        epilog="Exit status: 0 success, 1 a --fail-on condition is met, 2 invalid usage or nothing to read, "
        "3 a bug in gpudiag: the report of a file, or a rule in it, is missing.",
    )
    made.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="a trace file, a memory snapshot (.pickle), an export of Nsight Systems (.sqlite), JSON of "
        "rocprofv3, or a log directory",
    )
    add_options(made, ("brief", "github"))
    add_full(made)
    add_fail_on(made)
    made.add_argument("--run", metavar="RUN", help="diagnose only the traces of this run")
    made.add_argument(
        "--torch-trace",
        metavar="LOG",
        help="a log of torch.compile (TORCH_TRACE), or the folder of it, if it is not beside the trace: it "
        "says why functions were compiled again",
    )
    made.add_argument(
        "--capture",
        metavar="TRACE",
        help="the recording of the capture of the CUDA or HIP graphs that the trace replays, or a folder of "
        "such recordings, if it is not the folder capture_traces beside the trace: it gives the kernels in "
        "graphs their operators, shapes and modules",
    )
    made.add_argument(
        "--export",
        action="store_true",
        help="export reports of Nsight Systems (.nsys-rep) with nsys first, next to the report",
    )
    made.add_argument("--quiet", action="store_true", help="do not show progress")
    return made
