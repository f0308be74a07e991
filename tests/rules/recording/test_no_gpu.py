from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.recording.no_gpu import RULE
from tb_gpudiag.rules.rule import Severity
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, finding, healthy, is_clear, without_gpu


def test_a_cpu_trace_is_told_so_and_no_more(tmp_path: Path) -> None:
    facts = facts_of(without_gpu(), tmp_path)
    assert RULE.severity_of(finding(RULE.check(facts)), facts.window.duration_ns) is Severity.INFO


def test_launches_without_kernels_are_a_failed_recording(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().step(0, at=0, us=100).call("cudaLaunchKernel", at=10, us=5)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert ("launch calls", "1") in [(e.label, e.text) for e in found.evidence]


def test_one_kernel_is_gpu_activity(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))
