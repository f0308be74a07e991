"""From Reports to the document that every format shows: the sections and their order."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.document import Document, ReportView, Section
from tb_gpudiag.report.views.rank_views import clock_sections, hang_sections
from tb_gpudiag.report.views.sections.finding_sections import (
    better_recording,
    clear,
    defects,
    findings,
    notes,
    plan,
)
from tb_gpudiag.report.views.sections.memory_sections import (
    growing_sites,
    memory_summary,
    partly_free_segments,
    peak_owners,
)
from tb_gpudiag.report.views.sections.program_sections import (
    compilations,
    compile_log,
    engine_functions,
    engine_steps,
    graph_breaks,
    graph_kernels,
    without_graphs,
)
from tb_gpudiag.report.views.sections.time_sections import (
    accounts,
    collectives,
    host_time,
    inferred_steps,
    kernel_families,
    launch_hotspots,
    mfu_sections,
    module_times,
    synchronizations,
)
from tb_gpudiag.report.views.sections.trace_header import about, heading, limiter


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
        about=about(report.trace),
        limiter=limiter(report),
        verdict=report.verdict.sentence,
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
        engine_steps(report),
        engine_functions(report),
        graph_kernels(report),
        *mfu_sections(report),
        inferred_steps(report),
        findings(report),
        plan(report),
        host_time(report),
        kernel_families(report),
        module_times(report),
        collectives(report),
        launch_hotspots(report),
        synchronizations(report),
        compilations(report),
        graph_breaks(report),
        without_graphs(report),
        compile_log(report),
        memory_summary(report.memory),
        growing_sites(report.memory),
        peak_owners(report.memory),
        partly_free_segments(report.memory),
        clear(report),
        notes(report),
        defects(report),
        better_recording(report),
    ]


def any_rule(reports: Sequence[pb.Report | pb.JobReport]) -> str:
    """Id of the first finding's rule; "" without findings."""
    return next((finding.rule for report in reports for finding in report.findings), "")
