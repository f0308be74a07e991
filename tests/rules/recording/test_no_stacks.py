from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.no_stacks import RULE
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, finding, is_clear


def test_fires_if_no_frames_are_recorded(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=10).launch("gemm", at=1, us=5, runs_at=20, runs_us=100)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert "with_stack=True" in found.fix.code
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO


def test_call_stacks_of_old_traces_count_as_stacks(tmp_path: Path) -> None:
    trace = TraceBuilder("A")
    main = trace.thread()
    main.frame("train.py(12): train", at=0, us=100).op("aten::mm", at=10, us=10)
    assert is_clear(RULE.check(facts_of(trace, tmp_path)))
