"""`--export`: have `nsys` export the reports of Nsight Systems among the paths."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from tb_gpudiag.cli.output import tell
from tb_gpudiag.errors import GpudiagError, Unreadable, UsageError
from tb_gpudiag.trace.files.file_names import exported_path, is_report
from tb_gpudiag.trace.files.find import find_traces

# The end of what nsys prints says what went wrong.
_SHOWN = 300


def export_reports(paths: Sequence[str]) -> tuple[list[str], list[GpudiagError]]:
    """Export each report that has no export yet, next to it. Return the paths to read, and what went
    wrong. Raises UsageError: nsys is not on the PATH."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise UsageError(
            "nsys is not on the PATH, and only nsys can export its reports",
            where="--export",
            remedy="install Nsight Systems, or export where it is: nsys export --type sqlite REPORT.nsys-rep",
        )
    errors: list[GpudiagError] = []
    for report in _reports(paths):
        target = exported_path(report)
        if not os.path.exists(target):
            try:
                _export(nsys, report, target)
            except GpudiagError as error:
                errors.append(error)
    failed = {error.where for error in errors}
    return [exported_path(p) if is_report(p) else p for p in paths if p not in failed], errors


def _reports(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if is_report(path):
            yield path
        elif os.path.isdir(path):
            yield from (problem.where for problem in find_traces(path).problems if is_report(problem.where))


def _export(nsys: str, report: str, target: str) -> None:
    """Run nsys. It writes to a name that no scan of the log directory takes for an export."""
    temporary = f"{target}.{os.getpid()}.tmp"
    tell(f"exporting {report}")
    command = [
        nsys,
        "export",
        "--type",
        "sqlite",
        "--output",
        os.path.abspath(temporary),
        os.path.abspath(report),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        if done.returncode or not os.path.exists(temporary):
            said = " ".join((done.stderr or done.stdout).split())[-_SHOWN:]
            raise Unreadable(
                f"nsys could not export it: {said or f'exit status {done.returncode}'}",
                where=report,
                remedy="use a version of nsys as new as the one that recorded it",
            )
        os.replace(temporary, target)
    except OSError as error:
        raise Unreadable(f"nsys could not export it: {error.strerror or error}", where=report) from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
