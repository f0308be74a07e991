"""Diagnose a trace file: read it, compute its facts, run the rules, build the Report."""

from __future__ import annotations

from collections.abc import Callable

from tb_gpudiag.errors import NothingToRead, UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.trace.files.find import TraceFile, find_traces
from tb_gpudiag.trace.files_beside import with_captures, with_compile_log
from tb_gpudiag.trace.read import read_trace

Progress = Callable[[float, str], None]
"""Called with the share that is done (0 to 1) and the current stage."""

# Share of the time that reading takes on large traces: 49% of one with 110 MB.
_READING_SHARE = 0.5


def diagnose_file(file: TraceFile, progress: Progress | None = None) -> pb.Report:
    """Read and diagnose one trace file. Raises TraceError: the file cannot be read."""

    return build_report(read_facts(file, progress), file)


def read_facts(file: TraceFile, progress: Progress | None = None) -> Facts:
    """Read a trace file and return its facts, which are computed when they are used. Raises TraceError:
    the file, or a log of torch.compile or a capture that was named for it, cannot be read."""

    def reading(share: float, stage: str) -> None:
        if progress is not None:
            progress(share * _READING_SHARE, stage)

    trace = read_trace(file.path, progress=reading, folder=file.folder)
    trace = with_captures(with_compile_log(trace, file), file)
    if progress is not None:
        progress(_READING_SHARE, "diagnosing")
    return Facts(trace)


def diagnose_path(path: str) -> pb.Report:
    """Find and diagnose the only trace at a path.

    Raises:
        NothingToRead: there is no trace.
        UsageError: there are several traces.
        TraceError: the file cannot be read.
    """
    return diagnose_file(only_trace(path))


def only_trace(path: str) -> TraceFile:
    """Find the only trace at a path.

    Raises:
        NothingToRead: there is no trace.
        UsageError: there are several traces.
    """
    found = find_traces(path)
    if not found.files:
        if found.problems:
            raise found.problems[0]
        raise NothingToRead(
            "no trace was found",
            where=path,
            remedy="name a .pt.trace.json or .pickle file, or a directory that contains one",
        )
    if len(found.files) > 1:
        raise UsageError(
            f"contains {len(found.files)} traces, and a report is about one trace",
            where=path,
            remedy="name one trace file",
        )
    return found.files[0]
