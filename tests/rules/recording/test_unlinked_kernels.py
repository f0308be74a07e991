from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.recording.unlinked_kernels import RULE
from tb_gpudiag.wording.quantity import number, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import facts_of, figures, finding, is_clear


def _mostly_linked(unlinked: int, *, gap_us: float = 0) -> TraceBuilder:
    """Build 100 kernels of 10 µs. The last ones have no launch, and the GPU is idle before each of them."""
    trace = TraceBuilder()
    main = trace.thread()
    at = 100.0
    for i in range(100):
        if i < 100 - unlinked:
            main.launch("gemm", at=i, us=0.5, runs_at=at, runs_us=10)
        else:
            at += gap_us
            trace.kernel("gemm", at=at, us=10)
        at += 10
    main.step(0, at=0, us=at)
    return trace


def test_fires_where_idle_time_has_no_cause(tmp_path: Path) -> None:
    facts = facts_of(_mostly_linked(6, gap_us=2), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert found.title.startswith(str(share_of(6, 100)))
    assert figures(found)["Without a launch"] == (
        share_of(6, 100, "of the GPU work"),
        number(6, "kernel or copy", "kernels and copies"),
    )


def test_work_that_was_queued_before_the_recording_is_no_finding(tmp_path: Path) -> None:
    """It keeps the GPU busy, and no idle time lacks a cause."""
    assert is_clear(RULE.check(facts_of(_mostly_linked(50), tmp_path)))


def test_earlier_work_that_leaves_idle_time_asks_for_a_synchronization(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for i in range(5):
        trace.kernel("queued", at=20 + 30 * i, us=10)
    main.launch("gemm", at=10, us=5, runs_at=170, runs_us=230)
    fix = finding(RULE.check(facts_of(trace, tmp_path))).fix
    assert "torch.cuda.synchronize()" in fix.code
    assert "warm-up" not in fix.text


def test_without_any_launch_it_asks_for_the_hosts_side(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for i in range(20):
        trace.kernel("gemm", at=20 * i, us=10)
    assert "CPU and CUDA activities" in finding(RULE.check(facts_of(trace, tmp_path))).fix.text


def test_idle_time_without_a_cause_is_a_warning(tmp_path: Path) -> None:
    facts = facts_of(_mostly_linked(6, gap_us=50), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_mostly_linked(6, gap_us=1.5), tmp_path)))
