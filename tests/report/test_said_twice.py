"""A report never says two things: simulated jobs, any traces, and real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.jobs.report.job_view import job_document
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.build import build_report
from tb_gpudiag.report.views.compose import compose, report_view
from tb_gpudiag.report.wire import from_json, to_json
from tb_gpudiag.service.index.run_rows import run_row
from tb_gpudiag.trace.files.file_names import TraceFile
from tb_gpudiag.trace.files.find import find_traces
from tests.builder import TraceBuilder
from tests.conftest import REPOSITORY
from tests.facts.any_traces import any_traces
from tests.real_traces import FILES, file_at, real_facts, real_report
from tests.report.reports import report_of, usual_report
from tests.report.said_twice import (
    contradictions,
    contradictions_of_job,
    contradictions_of_row,
    fields_twice,
    figures_of_worst,
    shares_twice,
    told_again,
)
from tests.simulator.diagnosed import simulated_facts
from tests.simulator.scenarios import different_scenarios


@pytest.mark.slow
@pytest.mark.parametrize("name", different_scenarios())
def test_a_simulated_job(name: str) -> None:
    file = TraceFile(name, ".", name, "", 0, 0, name)
    report = build_report(simulated_facts(name), file)
    assert contradictions(report) == []
    assert shares_twice(compose([report])) == []
    assert told_again(report_view(report), report.verdict.busy_share) == []


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(any_traces())
def test_any_trace(tmp_path_factory: pytest.TempPathFactory, trace: TraceBuilder) -> None:
    assert contradictions(report_of(trace, tmp_path_factory.mktemp("any"))) == []


@pytest.mark.parametrize("path", FILES)
def test_a_real_trace(shared_traces: Path, path: str) -> None:
    """Also in JSON, and in the table of runs."""
    facts, report, file = real_facts(path), real_report(path), file_at(str(shared_traces / path))
    assert contradictions(from_json(to_json(report), pb.Report)) == []
    assert told_again(report_view(report), report.verdict.busy_share) == []
    row = run_row(build_digest(facts, report, file))
    assert contradictions_of_row(row, report) == []
    assert figures_of_worst(report, row) == []


@pytest.mark.parametrize("folder", ["v100_dlrm_8ranks", "h100_nanogpt_8ranks", "cpu_torch213/gloo2"])
def test_a_real_job(shared_traces: Path, folder: str) -> None:
    files = find_traces(str(shared_traces / folder)).files
    digests = [build_digest(real_facts(file.path), real_report(file.path), file) for file in files]
    (job,) = build_jobs(digests).reports
    assert job.findings
    assert contradictions_of_job(job) == []
    assert shares_twice(job_document([job])) == []
    assert told_again(job_document([job]).reports[0]) == []


@pytest.mark.slow
def test_no_two_fields_of_json_say_one_figure() -> None:
    """In the recordings that are part of the project."""
    folders = (REPOSITORY / "demo/recorded", REPOSITORY / "tb_gpudiag/demo_log")
    reports = [
        json.loads(to_json(real_report(file.path)))
        for folder in folders
        for file in find_traces(str(folder)).files
        if file.kind == "trace"
    ]
    assert len(reports) > 15
    assert fields_twice(reports) == []
    for report in reports:
        report.setdefault("plan", {})["saved_us"] = report["step_time"]["unprofiled_us"]
    as_before = [f".plan.saved_us and .{name}" for name in ("plan.whole_us", "step_time.unprofiled_us")]
    assert fields_twice(reports) == as_before


def _saves_more(report: pb.Report) -> None:
    report.findings[0].saving.high_us *= 1.5


def _a_mean_step(report: pb.Report) -> None:
    report.step_time.median_us *= 1.01


def _plan_saves_more(report: pb.Report) -> None:
    report.plan.fixes[0].saving_us += 1


def _another_limiter(report: pb.Report) -> None:
    report.verdict.limiter = pb.Verdict.communication


def _another_window(report: pb.Report) -> None:
    report.devices[0].window_us += 1


def _an_error(report: pb.Report) -> None:
    report.findings[0].severity = pb.Finding.ERROR


@pytest.mark.slow
def test_a_contradiction_is_found() -> None:
    right, report = usual_report(), pb.Report()
    assert contradictions(right) == []
    for change in (_a_mean_step, _saves_more, _plan_saves_more, _another_limiter, _another_window, _an_error):
        report.CopyFrom(right)
        change(report)
        assert contradictions(report), change.__name__
