"""Where steps begin and end, which marks are steps, and that all say the same step time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.digest.build_digest import build_digest
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.service.index.run_rows import run_row
from tb_gpudiag.trace.files.find import find_traces
from tb_gpudiag.training.diagnosing import compared_steps, figures_of, record_of
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.report.reports import report_at
from tests.with_each import with_each

MS = 1_000.0
"""In us, the builder's unit."""


def steps_of(*lengths_us: float, launches: int = 20) -> TraceBuilder:
    """Build steps without a GPU's delay: a launch in each twentieth of a step."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 0.0
    for number, us in enumerate(lengths_us):
        main.step(number, at=at, us=us)
        for i in range(launches if us >= MS else 0):
            begins = at + i * us / launches
            main.op("aten::mm", at=begins, us=10)
            main.launch("gemm", at=begins + 2, us=5, runs_at=begins + 8, runs_us=us / launches / 2)
        at += us
    return trace


def marked(trace: TraceBuilder) -> list[str]:
    return [name.removeprefix("ProfilerStep#") for name in facts_of(trace).recorded_steps.names]


def test_the_mark_that_the_end_of_the_recording_closes_is_no_step() -> None:
    trace = steps_of(60 * MS, 60 * MS, 60 * MS, 18)
    assert marked(trace) == ["0", "1", "2"]
    assert facts_of(trace).step_time.median == 60e6


def test_a_first_step_that_was_cut_is_no_step() -> None:
    trace = steps_of(60 * MS, 60 * MS)
    main = trace.thread(tid=trace.recording.pid)
    main.step(7, at=-20 * MS, us=20 * MS)
    main.op("aten::mm", at=-10, us=5)
    assert marked(trace) == ["0", "1"]


@with_each(
    "trace",
    [
        steps_of(60 * MS, 60 * MS, 20 * MS),  # short, but it does all of its work
        steps_of(60 * MS, 5 * MS, 60 * MS, 5 * MS),  # a short one is a step of this job
        steps_of(60 * MS),
    ],
)
def test_short_steps_and_lone_ones_are_steps(trace: TraceBuilder) -> None:
    assert len(facts_of(trace).recorded_steps) == sum("Step#" in span.name for span in trace.recording.host)


def ahead(*, gpu_us: float, queued_us: float = 0, host_us: float = 1 * MS, steps: int = 4) -> TraceBuilder:
    """Build steps whose host takes host_us each, and never waits for a GPU that takes gpu_us for its work.

    queued_us: how long the GPU goes on with a kernel whose launch was not recorded."""
    trace = TraceBuilder()
    main = trace.thread()
    free = 10.0
    if queued_us:
        trace.kernel("earlier", at=0, us=queued_us)
        free = queued_us
    for number in range(steps):
        at = number * host_us
        main.step(number, at=at, us=host_us)
        main.op("aten::mm", at=at + 2, us=20)
        begins = max(free, at + 10)
        main.launch("gemm", at=at + 4, us=5, runs_at=begins, runs_us=gpu_us)
        free = begins + gpu_us
    return trace


def lengths_us(facts: Facts) -> list[float]:
    return [float(ns) / 1_000 for ns in np.diff(facts.steady.borders_ns)]


def test_a_step_of_a_host_that_runs_ahead_takes_as_long_as_the_gpu() -> None:
    facts = facts_of(ahead(gpu_us=16 * MS))
    assert lengths_us(facts)[1:] == [16 * MS] * 3
    assert facts.step_time.median == 16e6


def test_a_step_of_a_gpu_that_waits_takes_as_long_as_the_host() -> None:
    facts = facts_of(ahead(gpu_us=0.1 * MS))
    assert lengths_us(facts) == [1 * MS] * 4


def test_work_from_before_the_steps_is_outside_of_the_window() -> None:
    facts = facts_of(ahead(gpu_us=16 * MS, queued_us=48 * MS))
    assert lengths_us(facts) == [16 * MS] * 4
    assert facts.window.start_ns == 48e6
    assert facts.window.duration_ns == 4 * 16e6
    assert facts.steady.earlier_ns == 48e6
    # The host ran these steps while the GPU was at the earlier work.
    assert (facts.host_window.start_ns, facts.host_window.end_ns) == (0, 4e6)
    assert int(facts.launches.in_window.sum()) == 4


def test_steps_after_a_left_out_one_begin_when_its_work_is_done() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=100 * MS)
    main.launch("slow", at=90 * MS, us=5, runs_at=90 * MS + 10, runs_us=50 * MS)
    for number in range(1, 5):
        at = 100 * MS + (number - 1) * MS
        main.step(number, at=at, us=MS)
        main.launch("gemm", at=at + 4, us=5, runs_at=140 * MS + 10 + (number - 1) * 10 * MS, runs_us=10 * MS)
    facts = facts_of(trace)
    assert facts.steady.first == 1
    assert facts.window.start_ns == 140_010_000
    assert lengths_us(facts) == [10 * MS] * 4


def test_everything_says_the_same_step_time(tmp_path: Path) -> None:
    """A host ahead of the GPU, one slow step and a stub: mean, marks and GPU time all differ from it."""
    trace = ahead(gpu_us=16 * MS, queued_us=5 * MS, steps=6)
    main = trace.thread(tid=trace.recording.pid)
    main.step(6, at=6 * MS, us=30 * MS)
    for i in range(3):
        main.op("aten::mm", at=6 * MS + 2, us=20)
        main.launch("gemm", at=6 * MS + 4 + i * 10, us=5, runs_at=101 * MS + i * 16 * MS, runs_us=16 * MS)
    main.step(7, at=36 * MS, us=18)
    path = trace.write(tmp_path)
    report = report_at(path, tmp_path)
    (file,) = find_traces(str(tmp_path)).files
    digest = build_digest(facts_of(trace), report, file)
    record = type(report).FromString(record_of(report, compared_steps(digest)))
    assert report.step_time.median_us == 16 * MS
    assert report.step_time.steps == 7
    assert report.step_time.mean_us == pytest.approx(report.devices[0].window_us / 7)
    assert digest.step_time.median == 16e6
    assert run_row(digest).step_us == 16 * MS
    assert record.step_time == report.step_time
    assert figures_of(report)["gpudiag/step_ms"] == 16
    accounts = report.devices[0].step_accounts
    assert np.median([step.duration_us for step in accounts]) == 16 * MS
    assert sum(step.duration_us for step in accounts) == report.devices[0].window_us
    for finding in report.findings:
        saving = finding.saving
        assert saving.high_per_step_us == pytest.approx(saving.high_share * report.step_time.unprofiled_us)
