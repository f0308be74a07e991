"""Header of a report: its trace and its limiter."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.wording.format import count, time_us
from tb_gpudiag.wording.vocabulary import FILE_KINDS, LIMITERS, limiter_word

_ONLY_REPORTS = (pb.TraceInfo.hang, pb.TraceInfo.clock)


def heading(trace: pb.TraceInfo) -> str:
    """`run/host_1.123.pt.trace.json`: the run and the name of the file."""
    run = "" if trace.run in (".", "") else f"{trace.run}/"
    name = run + (trace.path.rpartition("/")[2] or trace.worker)
    return f"{name} (simulated)" if trace.simulated else name


def about(trace: pb.TraceInfo) -> str:
    """Size, length and contents of the trace, in one line."""
    if trace.kind in _ONLY_REPORTS:
        return FILE_KINDS[pb.TraceInfo.Kind.Name(trace.kind)].explanation.removesuffix(".")
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
    """What ends the job, or else the limiter in words. A snapshot is about memory."""
    if report.verdict.headline:
        return report.verdict.headline
    if report.trace.kind in _ONLY_REPORTS:
        return FILE_KINDS[pb.TraceInfo.Kind.Name(report.trace.kind)].word
    if report.trace.kind != pb.TraceInfo.trace:
        return LIMITERS["memory"].word
    return limiter_word(pb.Verdict.Limiter.Name(report.verdict.limiter), on_gpu=bool(report.devices))
