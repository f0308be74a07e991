from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.recording.no_gpu import RULE
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.wording.quantity import number
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, healthy, is_clear, without_gpu


def test_a_cpu_trace_gets_a_hint(tmp_path: Path) -> None:
    facts = facts_of(without_gpu(), tmp_path)
    assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) is Severity.INFO


def test_launches_without_kernels_are_a_warning(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=100).call("cudaLaunchKernel", at=10, us=5)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert figures(found)["Launch calls"] == (number(1),)


def test_one_kernel_is_gpu_activity(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))
