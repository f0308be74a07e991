from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.recording.no_gpu import RULE
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.rules.run import ABOUT_TIME, run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.wording.quantity import number
from tests.builder import TraceBuilder
from tests.builder.forms import BASE_NS, EPOCH_NS
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


def test_an_accelerator_that_is_not_read_is_named_and_nothing_is_said_about_time(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.loader(at=0, us=400)
    main.op("aten::mm", at=400, us=600)
    at = (EPOCH_NS - BASE_NS) / 1_000 + 400
    trace.raw(
        {"ph": "X", "cat": "enqueue", "name": "Enqueue@aclnnMm", "pid": 1, "tid": 1, "ts": at, "dur": 5}
    )
    facts = facts_of(trace, tmp_path)
    assert "Ascend NPU" in finding(RULE.check(facts)).title
    assert find_verdict(facts).limiter == "unknown"
    outcome = run_rules(facts, RULES)
    assert not [f for f in outcome.findings if f.rule.family in ABOUT_TIME]
