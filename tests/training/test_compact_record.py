"""The record of a recording has what matters, and never more than a few kilobytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.training.diagnosing import MOST_BYTES, figures_of, record_of
from tests.report.reports import usual_report


def test_a_record_has_verdict_account_findings_and_steps() -> None:
    report = usual_report()
    record = pb.Report.FromString(record_of(report, report.steps))
    assert record.verdict == report.verdict
    assert record.steps == report.steps
    assert [finding.rule for finding in record.findings] == [finding.rule for finding in report.findings]
    assert record.findings[0].places[0].function == report.findings[0].places[0].function
    assert record.devices[0].window_idle_by_cause == report.devices[0].window_idle_by_cause
    assert record.trace.path == report.trace.path


def test_figures_are_shares_of_the_step_window_and_add_up() -> None:
    figures = figures_of(usual_report())
    assert figures["gpudiag/idle/input"] == pytest.approx(0.6)
    assert figures["gpudiag/step_ms"] == 1.0
    idle = sum(value for tag, value in figures.items() if tag.startswith("gpudiag/idle/"))
    assert figures["gpudiag/busy_share"] + idle == pytest.approx(1.0)


def test_a_record_and_the_figures_have_the_mfu() -> None:
    report = pb.Report(mfu=pb.Mfu(mfu=0.4, parts=[pb.MfuPart(us=1)]), tables=[pb.Table(id="operator_rates")])
    assert figures_of(report) == {"gpudiag/mfu": 0.4}
    record = pb.Report.FromString(record_of(report, []))
    assert record.mfu.mfu == 0.4
    assert not record.tables


def test_the_memory_floor_is_the_last_one_that_is_steady() -> None:
    floors = [pb.MemoryFloor(bytes=1, excused=True), pb.MemoryFloor(bytes=5), pb.MemoryFloor(bytes=7)]
    report = pb.Report(
        memory=[
            pb.DeviceMemory(device=-1, peak_allocated_bytes=1e9, floors=floors[:1]),
            pb.DeviceMemory(device=0, peak_allocated_bytes=9, floors=floors),
        ]
    )
    assert figures_of(report) == {"gpudiag/memory_floor_bytes": 7}


@given(st.integers(0, 200), st.text(max_size=200), st.integers(1, 100))
def test_a_record_is_bounded_whatever_the_report_contains(count: int, text: str, times: int) -> None:
    name = text * times
    finding = pb.Finding(
        rule="GD101",
        title=name,
        summary=name,
        evidence=[pb.Evidence(label=name, value=name)] * 4,
        places=[pb.Place(file=name, function=name)] * 4,
        fix=pb.Fix(text=name, code=name),
    )
    report = pb.Report(
        trace=pb.TraceInfo(path=name, worker=name, notes=[name]),
        verdict=pb.Verdict(limiter="input", sentence=name),
        findings=[finding] * (count % 30),
        steps=[pb.Step(name=name)] * count,
        devices=[pb.Device(name=name, idle_by_cause=[pb.CauseTime(cause="input")] * 9)] * (count % 10),
        memory=[pb.DeviceMemory(name=name, floors=[pb.MemoryFloor(name=name)] * count)],
    )
    content = record_of(report, report.steps)
    assert len(content) <= MOST_BYTES
    assert pb.Report.FromString(content).verdict.limiter == pb.Verdict.input
