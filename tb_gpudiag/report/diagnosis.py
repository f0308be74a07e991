"""From a path to a Report: the layers in a row."""

from __future__ import annotations

from collections.abc import Callable

from tb_gpudiag.errors import NothingToRead, UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.find import TraceFile, find_traces
from tb_gpudiag.trace.read import read_trace

Progress = Callable[[float, str], None]
"""Called with the share that is done (0 to 1) and what is being done."""

# Of the whole time, reading takes about this much on large traces.
_READING_SHARE = 0.7


def diagnose_file(file: TraceFile, progress: Progress | None = None) -> pb.Report:
    """Reads and diagnoses one trace file. Raises the TraceError family."""

    def reading(share: float, stage: str) -> None:
        if progress is not None:
            progress(share * _READING_SHARE, stage)

    trace = read_trace(file.path, progress=reading)
    if progress is not None:
        progress(_READING_SHARE, "diagnosing")
    return build_report(Facts(trace), file)


def diagnose_path(path: str) -> pb.Report:
    """Diagnoses the one trace at a path. Raises NothingToRead, UsageError (several traces), or the TraceError
    family."""
    found = find_traces(path)
    if not found.files:
        if found.problems:
            raise found.problems[0]
        raise NothingToRead(
            "no trace was found",
            where=path,
            remedy="name a .pt.trace.json or .pickle file, or a directory that holds one",
        )
    if len(found.files) > 1:
        raise UsageError(
            f"holds {len(found.files)} traces, and one report is about one",
            where=path,
            remedy="name one trace file",
        )
    return diagnose_file(found.files[0])
