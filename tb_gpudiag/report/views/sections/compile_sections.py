"""Why torch.compile compiled: compilations, graph breaks and functions without CUDA graphs, by its log."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import (
    Cell,
    Column,
    ColumnOf,
    Kind,
    Lines,
    Table,
    lines,
    numbers,
    table_of,
)
from tb_gpudiag.report.views.sections.place_text import code_place
from tb_gpudiag.wording.format import count, in_quotes
from tb_gpudiag.wording.quantity import duration, number

ROWS_SHOWN = 8
"""Rows of each table. The Report has more."""

FIRST_TIME = "for the first time"


def compilations(report: pb.Report) -> Table:
    """Compilations in the recording, the longest first: those before it are over."""
    columns: list[ColumnOf[pb.Compilation]] = [
        (Column("Function", Kind.CODE), lambda made: code_place(made.place)),
        (numbers("compiled_before"), lambda made: number(made.before)),
        (Column("Why"), why),
        (Column("Not in the cache"), lambda made: ", ".join(made.misses)),
        (numbers("compile_time"), lambda made: duration(made.place.us * 1e3)),
    ]
    shown = [made for made in report.compile_log.compilations if made.place.us]
    return table_of("compilations", "Compilations", shown[:ROWS_SHOWN], columns)


def why(made: pb.Compilation) -> str:
    """The guards that failed, or that there was nothing to reuse."""
    reasons = [*([f"failed: {in_quotes(made.failed, 400)}"] if made.failed else []), *made.reasons]
    return "; ".join(reasons) or ("" if made.before else FIRST_TIME)


def graph_breaks(report: pb.Report) -> Table:
    columns: list[ColumnOf[pb.GraphBreak]] = [
        (Column("At", Kind.CODE), lambda found: code_place(found.place)),
        (Column("Reason"), lambda found: found.reason),
        (numbers("break_runs"), lambda found: number(found.runs)),
        (numbers("between_graphs"), _between),
    ]
    return table_of("graph_breaks", "Graph breaks", report.compile_log.breaks[:ROWS_SHOWN], columns)


def _between(found: pb.GraphBreak) -> Cell:
    return duration(found.place.us * 1e3) if found.place.us else ""


def without_graphs(report: pb.Report) -> Table:
    """Functions for which CUDA graphs were wanted and not used."""
    columns: list[ColumnOf[pb.WithoutGraph]] = [
        (Column("At", Kind.CODE), lambda found: code_place(found.place)),
        (Column("Reason"), lambda found: found.reason),
        (numbers("graphless_runs"), lambda found: number(found.runs)),
        (numbers("graphless_time"), lambda found: duration(found.place.us * 1e3)),
    ]
    shown = report.compile_log.without_graphs[:ROWS_SHOWN]
    return table_of("without_graphs", "Without CUDA graphs", shown, columns)


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
