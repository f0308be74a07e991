"""Header of a report: its trace and its limiter; and the table that compares several reports."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.hints import without_hints
from tb_gpudiag.report.views.document import Column, Table, table
from tb_gpudiag.wording.format import count, time_us
from tb_gpudiag.wording.vocabulary import LIMITERS, limiter_word


def heading(trace: pb.TraceInfo) -> str:
    """`run · worker · span`, as much of it as is known."""
    parts = ["" if trace.run == "." else trace.run, trace.worker, f"span {trace.span}" if trace.span else ""]
    name = " · ".join(part for part in parts if part) or trace.path
    return f"{name} (simulated)" if trace.simulated else name


def about(trace: pb.TraceInfo) -> str:
    """Size, length and contents of the trace, in one line."""
    parts = [count(trace.events, "event"), time_us(trace.duration_us)]
    if trace.rank >= 0:
        parts.append(f"rank {trace.rank}" + (f" of {trace.world_size}" if trace.world_size else ""))
    kept = [
        name for name in ("steps", "stacks", "shapes", "memory", "flops") if getattr(trace.recorded, name)
    ]
    parts.append("recorded: " + (", ".join(kept) or "only the events"))
    if trace.malformed_events:
        parts.append(count(trace.malformed_events, "malformed event") + " skipped")
    if trace.status == pb.TraceInfo.PARTIAL:
        parts.append("the file is cut off")
    if trace.status == pb.TraceInfo.WRITING:
        parts.append("the file is still being written")
    return " · ".join(parts)


def limiter(report: pb.Report) -> str:
    """The limiter in words. A snapshot is about memory."""
    if report.trace.kind != pb.TraceInfo.trace:
        return LIMITERS["memory"].word
    return limiter_word(pb.Verdict.Limiter.Name(report.verdict.limiter), on_gpu=bool(report.devices))


OVERVIEW_COLUMNS = (
    Column("Trace"),
    Column("Limited by"),
    Column("First finding"),
    Column("Other findings"),
)


def overview(reports: Sequence[pb.Report]) -> Table | None:
    """Table of several reports: what limits each trace. None for a single report."""
    if len(reports) < 2:
        return None
    rows = [
        (
            heading(report.trace),
            limiter(report),
            _first_finding(report),
            ", ".join(dict.fromkeys(finding.rule for finding in without_hints(report.findings)[1:])),
        )
        for report in reports
    ]
    return table("overview", count(len(reports), "trace"), OVERVIEW_COLUMNS, rows)


def _first_finding(report: pb.Report) -> str:
    for finding in without_hints(report.findings):
        return f"{pb.Finding.Severity.Name(finding.severity)} {finding.rule} {finding.title}"
    return "none"
