"""The table of runs and jobs: one line for each, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Cell, Column, Kind, Table, table
from tb_gpudiag.wording.format import count
from tb_gpudiag.wording.quantity import duration, share_of
from tb_gpudiag.wording.vocabulary import limiter_word

_COLUMNS = (
    Column("Run"),
    Column("Step", Kind.NUMBER, "Median duration of a step."),
    Column("GPU busy", Kind.NUMBER, "Share of the step window in which the busiest GPU worked."),
    Column("Limited by"),
    Column("First finding"),
    Column("Saves up to", Kind.NUMBER, "Share of the step window that the first fix saves, at most."),
)


def worst_first(rows: Iterable[pb.RunRow]) -> list[pb.RunRow]:
    """Sort by severity, then by what fixing the first finding saves."""
    return sorted(rows, key=lambda row: (-row.severity, -row.saving_share, row.run, row.worker))


def run_table(rows: Sequence[pb.RunRow]) -> Table:
    """Return the table of these rows, in their order."""
    jobs = sum(row.kind == pb.TraceInfo.job for row in rows)
    recordings = len(rows) - jobs
    parts = [count(jobs, "job")] * bool(jobs) + [count(recordings, "recording")] * bool(recordings)
    return table("overview", " and ".join(parts), _COLUMNS, map(_row, rows))


def _row(row: pb.RunRow) -> tuple[Cell, ...]:
    measured = row.kind in (pb.TraceInfo.trace, pb.TraceInfo.job)
    return (
        _name(row),
        duration(row.step_us * 1_000) if row.step_us else "",
        share_of(row.busy_share, 1) if measured and row.busy_share else "",
        _limiter(row),
        _finding(row),
        share_of(row.saving_share, 1) if row.saving_share else "",
    )


def _name(row: pb.RunRow) -> str:
    run = "" if row.run in ("", ".") else row.run
    who = f"job of {count(row.ranks, 'rank')}" if row.kind == pb.TraceInfo.job else row.worker
    return " · ".join(part for part in (run, who) if part)


def _limiter(row: pb.RunRow) -> str:
    return limiter_word(pb.Verdict.Limiter.Name(row.limiter), on_gpu=row.busy_share > 0)


def _finding(row: pb.RunRow) -> str:
    if not row.first_rule:
        return "none"
    return f"{pb.Finding.Severity.Name(row.severity)} {row.first_rule} {row.first_title}"
