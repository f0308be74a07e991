"""Which log of torch.compile the tables of compilations are from."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Lines, lines
from tb_gpudiag.wording.format import count, in_quotes


def compile_log(report: pb.Report) -> Lines:
    """Which log the tables are from, and what it does not tell."""
    log = report.compile_log
    if not log.name:
        return lines("compile_log", "Log of torch.compile", [])
    torch = f", of torch {log.torch}" if log.torch else ""
    broken = f", {count(log.malformed_entries)} of them unreadable" if log.malformed_entries else ""
    entries = count(log.entries, "entry", "entries")
    return lines(
        "compile_log",
        "Log of torch.compile",
        [f"{in_quotes(log.name)}{torch}: {entries}{broken}.", *log.notes],
    )
