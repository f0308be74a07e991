"""What runs the model: an engine's steps and functions, kernels in graphs, and why torch.compile compiled."""

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
from tb_gpudiag.report.views.sections.finding_sections import code_place
from tb_gpudiag.wording.format import count, cut_middle, in_quotes
from tb_gpudiag.wording.quantity import duration, number, share_of
from tb_gpudiag.wording.vocabulary import ENGINE_KINDS, term

FUNCTIONS_SHOWN = 8
NODES_SHOWN = 12
"""Rows of the tables. The Report has more."""


def engine_steps(report: pb.Report) -> Table:
    """A row for each kind of step. Empty without engine steps."""
    found = report.serving
    how = "" if found.marked else ", by the function that runs the model"
    columns: list[ColumnOf[pb.EngineKind]] = [
        (Column("Kind"), lambda kind: term(ENGINE_KINDS, pb.EngineKind.Kind.Name(kind.kind)).word),
        (numbers("engine_steps"), lambda kind: number(kind.steps)),
        (numbers("engine_step_time"), lambda kind: duration(kind.median_us * 1e3)),
        (numbers("engine_requests"), lambda kind: _known(kind.requests)),
        (numbers("engine_tokens"), lambda kind: _known(kind.tokens)),
        (numbers("engine_rate"), lambda kind: _known(kind.tokens_per_s)),
        (numbers("engine_busy"), lambda kind: share_of(kind.busy_share, 1)),
        (numbers("engine_gap"), lambda kind: duration(kind.gap_us * 1e3) if kind.gap_known else ""),
    ]
    return table_of("engine_steps", f"Engine steps of {found.server}{how}", found.kinds, columns)


def _known(value: float) -> Cell:
    """A number that the server states, "" for others."""
    return number(round(value)) if value >= 0 else ""


def graph_kernels(report: pb.Report) -> Table:
    """Kernels of graphs by the operators that were captured. Empty without captures."""
    found = report.captured_graphs
    columns: list[ColumnOf[pb.GraphNode]] = [
        (Column("Operator", Kind.NAME), lambda node: node.operator),
        (Column("Shapes", Kind.CODE), lambda node: node.shapes),
        (Column("Module", Kind.CODE), lambda node: node.module),
        (Column("Kernel", Kind.NAME), lambda node: cut_middle(node.kernel, 40)),
        (numbers("kernels"), lambda node: number(node.kernels)),
        (numbers("kernel_time"), lambda node: duration(node.us * 1e3)),
    ]
    shown = found.nodes[:NODES_SHOWN] if found.matched else []
    return table_of("graph_kernels", "Kernels in graphs, by the captured operator", shown, columns)


def engine_functions(report: pb.Report) -> Table:
    """Idle time of the GPU by the engine's function. Empty without engine steps."""
    found = report.serving
    columns: list[ColumnOf[pb.EngineFunction]] = [
        (Column("The engine was in", Kind.CODE), lambda one: one.name),
        (numbers("idle_before"), lambda one: duration(one.before_us * 1e3)),
        (numbers("idle_inside"), lambda one: duration(one.inside_us * 1e3)),
        (numbers("idle_of_window"), lambda one: share_of(one.share, 1)),
    ]
    shown = found.functions[:FUNCTIONS_SHOWN]
    more = len(found.functions) - len(shown)
    title = "What the engine did while the GPU was idle" + (f" ({count(more)} more)" if more else "")
    return table_of("engine_functions", title, shown, columns)


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
