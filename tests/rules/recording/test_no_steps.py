from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.no_steps import RULE
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, finding


def test_fires_without_marks_and_shows_how_to_add_them(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=10, us=5, runs_at=20, runs_us=100)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert "prof.step()" in found.fix.code
    assert found.cost_ns == 0
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_a_step_annotation_on_the_gpu_is_not_a_step(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().launch("gemm", at=10, us=5, runs_at=20, runs_us=100)
    trace.gpu_annotation("ProfilerStep#4", at=20, us=100)
    finding(RULE.check(facts_of(trace, tmp_path)))


def test_an_empty_trace_has_no_steps_either(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=()).raw({"ph": "i", "name": "mark", "ts": 1.0, "pid": 0, "tid": 0})
    finding(RULE.check(facts_of(trace, tmp_path)))
