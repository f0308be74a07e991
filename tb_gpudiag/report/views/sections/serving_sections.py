"""Engine steps of an inference server: what each kind takes, and what it does while the GPU is idle."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Cell, Column, ColumnOf, Kind, Table, numbers, table_of
from tb_gpudiag.wording.format import count, cut_middle
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
        (Column("Operator", Kind.CODE), lambda node: node.operator),
        (Column("Shapes", Kind.CODE), lambda node: node.shapes),
        (Column("Module", Kind.CODE), lambda node: node.module),
        (Column("Kernel", Kind.CODE), lambda node: cut_middle(node.kernel, 40)),
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
