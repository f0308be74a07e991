"""From Reports to the document that every format shows: the sections and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.essentials import sentence_above
from tb_gpudiag.report.views.document import Column, Document, Kind, ReportView, Section, lines, table, tables
from tb_gpudiag.report.views.figure_sections import (
    accounts,
    compile_log,
    growing_sites,
    inferred_steps,
    launch_hotspots,
    memory_summary,
    partly_free_segments,
    peak,
    peak_owners,
)
from tb_gpudiag.report.views.finding_sections import better_recording, defects, findings, notes, plan
from tb_gpudiag.vocabulary.frames import Frame, LineKind
from tb_gpudiag.wording.format import count, share, time_us
from tb_gpudiag.wording.vocabulary import (
    CLOCK_PHASES,
    FILE_KINDS,
    HANG_STATES,
    LIMITERS,
    bottleneck,
    limiter_word,
)

_ONLY_REPORTS = (pb.TraceInfo.hang, pb.TraceInfo.clock)

# Steps differ by as much as the rest.
_SLOWED: Final = 0.95


def heading(trace: pb.TraceInfo) -> str:
    """`run/host_1.123.pt.trace.json`: the run and the name of the file."""
    run = "" if trace.run in (".", "") else f"{trace.run}/"
    name = run + (trace.path.rpartition("/")[2] or trace.worker)
    return f"{name} (simulated)" if trace.simulated else name


def about(report: pb.Report) -> str:
    """Size, length and contents of the trace, in one line."""
    trace = report.trace
    if trace.kind in _ONLY_REPORTS:
        return FILE_KINDS[pb.TraceInfo.Kind.Name(trace.kind)].explanation.removesuffix(".")
    parts = [count(trace.events, "event"), step_text(report.step_time) or time_us(trace.duration_us)]
    if trace.rank >= 0:
        parts.append(f"rank {trace.rank}" + (f" of {trace.world_size}" if trace.world_size else ""))
    kept = [
        name for name in ("steps", "stacks", "shapes", "memory", "flops") if getattr(trace.recorded, name)
    ]
    parts.append("recorded: " + (", ".join(kept) or "only the events"))
    if trace.malformed_events:
        parts.append(count(trace.malformed_events, "malformed event"))
    if trace.status == pb.TraceInfo.PARTIAL:
        parts.append("the file is cut off")
    if trace.status == pb.TraceInfo.WRITING:
        parts.append("the file is still being written")
    return " · ".join(parts)


def step_text(found: pb.StepTime) -> str:
    """`48.3 ms per step (mean 61.2 ms), about 57.0 ms (50.1 ms to 60.3 ms) without the profiler`, where these
    make a difference; "" without steps."""
    mean = f" (mean {time_us(found.mean_us)})" * (found.median_us < _SLOWED * found.mean_us)
    shorter = found.unprofiled_us < _SLOWED * found.mean_us
    low, high = time_us(found.unprofiled_least_us), time_us(found.unprofiled_most_us)
    span = f" ({low} to {high})" * (low != high)
    without = f", about {time_us(found.unprofiled_us)}{span} without the profiler" if shorter else ""
    return f"{time_us(found.median_us)} per step{mean}{without}" if found.median_us else ""


def headline(report: pb.Report) -> str:
    """What ends the job, or else its bottleneck."""
    limits = report.trace.kind == pb.TraceInfo.trace and not report.verdict.headline
    return bottleneck(limiter(report)) if limits else limiter(report)


def limiter(report: pb.Report) -> str:
    """What ends the job, or else the limiter in words. A snapshot is about memory."""
    if report.verdict.headline:
        return report.verdict.headline
    if report.trace.kind in _ONLY_REPORTS:
        return FILE_KINDS[pb.TraceInfo.Kind.Name(report.trace.kind)].word
    if report.trace.kind != pb.TraceInfo.trace:
        return LIMITERS["memory"].word
    return limiter_word(pb.Verdict.Limiter.Name(report.verdict.limiter), on_gpu=bool(report.devices))


_COLUMNS: Final = (
    Column("Ranks"),
    Column("Are"),
    Column("Operation"),
    Column("Group"),
    Column("Called at", Kind.CODE),
    Column("Not called by ranks"),
)


def hang_document(found: pb.HangReport, path: str) -> Document:
    view = ReportView("Hanging job", path, found.sentence, hang_sections(found))
    return Document("Hanging job", (view,))


def hang_sections(found: pb.HangReport) -> tuple[Section, ...]:
    """Build what there is to say of the dumps, beside the sentence."""
    rows = [
        (
            row.ranks_text,
            HANG_STATES[pb.HangingRanks.State.Name(row.state)].noun,
            f"{row.operation} {row.sequence:,}" if row.sequence else row.operation,
            row.group,
            str(Frame(row.place.file, row.place.line, row.place.function, LineKind.RUNNING)),
            row.waits_for_text,
        )
        for row in found.ranks
    ]
    sections = (
        lines("fix", "What to do", [found.advice]),
        table("ranks", "Where the ranks are", _COLUMNS, rows),
        lines("notes", "Notes", found.notes),
    )
    return tuple(section for section in sections if section)


def clock_sections(found: pb.ClockReport) -> list[Section]:
    """Build what there is to say of the clocks, beside the sentence."""
    names = [phase.name for phase in next((rank.phases for rank in found.ranks if rank.phases), ())]
    rows = [
        (
            str(rank.rank),
            count(int(rank.steps)),
            time_us(rank.step_us),
            *(f"{time_us(phase.us)} ({share(phase.share)})" for phase in rank.phases),
            *[""] * (len(names) - len(rank.phases)),
            rank.drift,
        )
        for rank in found.ranks
    ]
    columns = (
        Column("Rank"),
        Column("Steps", Kind.NUMBER),
        Column("Step", Kind.NUMBER, "Median over all steps."),
        *(Column(CLOCK_PHASES[name].word, Kind.NUMBER, CLOCK_PHASES[name].explanation) for name in names),
        Column("Drift"),
    )
    made = [
        f"Rank {one.rank} from step {int(one.step):,}: {one.why} ({one.worker})" for one in found.recordings
    ]
    return [
        table("ranks", "Steps by rank: medians, and shares of the steps", columns, rows),
        lines("recordings", "Recordings", made),
        lines("notes", "Notes", found.notes),
    ]


def compose(reports: Sequence[pb.Report]) -> Document:
    return Document(
        title=f"Diagnosis: {' '.join(heading(report.trace) for report in reports)}",
        reports=tuple(map(report_view, reports)),
        example=any_rule(reports),
        generator=reports[0].generator if reports else "",
    )


def report_view(report: pb.Report) -> ReportView:
    return ReportView(
        heading=heading(report.trace),
        path=report.trace.path,
        about=about(report),
        headline=headline(report),
        where=report.verdict.where,
        leak=report.verdict.leak,
        verdict=sentence_above(report.verdict, report.findings),
        sections=tuple(section for section in _sections(report) if section),
        figures=tuple(
            filter(None, (report.serving.sentence, report.captured_graphs.sentence, report.mfu.sentence))
        ),
    )


def _sections(report: pb.Report) -> list[Section]:
    """All sections in reading order; some are empty."""
    if report.HasField("hang"):
        return [*hang_sections(report.hang)]
    if report.HasField("clock"):
        return clock_sections(report.clock)
    return [
        *accounts(report),
        *tables(report.tables, "engine_steps", "engine_functions", "graph_kernels"),
        *peak(report),
        *tables(report.tables, "operator_rates"),
        inferred_steps(report),
        findings(report),
        plan(report),
        *tables(report.tables, "host", "kernel_families", "modules", "collectives"),
        launch_hotspots(report),
        *tables(report.tables, "synchronizations", "compilations", "graph_breaks", "without_graphs"),
        compile_log(report),
        memory_summary(report.memory),
        growing_sites(report.memory),
        peak_owners(report.memory),
        partly_free_segments(report.memory),
        notes(report),
        defects(report),
        better_recording(report),
    ]


def any_rule(reports: Sequence[pb.Report | pb.JobReport]) -> str:
    """Id of the first finding's rule; "" without findings."""
    return next((finding.rule for report in reports for finding in report.findings), "")
