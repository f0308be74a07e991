from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.profiler_overhead import RULE
from tests.builder import HostThread, TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, is_clear, one_gap, without_gpu

PROFILER_FRAME = "torch/autograd/profiler.py(793): __exit__"


def _profiles(main: HostThread, at: float, us: float) -> None:
    main.frame(PROFILER_FRAME, at=at, us=us)


def test_it_fires_where_the_gpu_waits_for_the_profiler(tmp_path: Path) -> None:
    facts = facts_of(one_gap(_profiles, 100), tmp_path)
    found = finding(RULE.check(facts))
    assert "10.0" in found.title
    assert found.cost_ns == 0  # nothing that a fix of the job saves
    assert figures(found)["Options turned on"] == ("with_stack",)
    assert [(r.start_ns, r.end_ns) for r in found.ranges] == [(300_000, 400_000)]
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(one_gap(_profiles, 49), tmp_path)))


def test_overhead_that_the_gpu_tracer_reports_counts(tmp_path: Path) -> None:
    trace = one_gap(lambda main, at, us: main.op("aten::copy_", at=at, us=us), 100)
    trace.overhead("Activity Buffer Request", at=310, us=80)
    assert "8.0" in finding(RULE.check(facts_of(trace, tmp_path))).title


def test_without_a_gpu_it_is_the_main_threads_time(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.frame(PROFILER_FRAME, at=100, us=100)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert "main thread" in found.summary


@pytest.mark.parametrize("gpu", [True, False])
def test_it_cannot_tell_without_stacks_and_events_of_the_tracer(tmp_path: Path, gpu: bool) -> None:
    trace = TraceBuilder() if gpu else without_gpu()
    if gpu:
        main = trace.thread()
        main.step(0, at=0, us=1000)
        main.launch("gemm", at=10, us=5, runs_at=20, runs_us=980)
    assert cannot_tell(RULE.check(facts_of(trace, tmp_path)))


@pytest.mark.parametrize(("us", "leads"), [(300, False), (600, True)])
def test_a_window_that_is_mostly_the_profilers_comes_first(us: float, leads: bool, tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(one_gap(_profiles, us), tmp_path)))
    assert found.leads == leads
    assert found.severity == (Severity.WARNING if leads else None)


@pytest.mark.parametrize(("us", "said"), [(90, "Record more steps"), (80, "with_stack")])
def test_a_single_stretch_is_not_shortened_by_fewer_options(us: float, said: str, tmp_path: Path) -> None:
    """Two more take 45 µs each."""
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000)
    for at, length in ((0, us), (300, 45), (600, 45)):
        main.frame(PROFILER_FRAME, at=at, us=length)
    assert said in finding(RULE.check(facts_of(trace, tmp_path))).fix.text
