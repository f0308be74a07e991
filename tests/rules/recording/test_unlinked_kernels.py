from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.recording.unlinked_kernels import RULE
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.wording.quantity import number, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, figures, finding, healthy, is_clear, without_gpu


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


def test_fires_above_one_in_twenty(tmp_path: Path) -> None:
    facts = facts_of(_mostly_linked(6), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert found.title.startswith(str(share_of(6, 100)))
    assert figures(found)["Without a launch"] == (
        share_of(6, 100, "of the GPU work"),
        number(6, "kernel or copy", "kernels and copies"),
    )


def test_idle_time_without_a_cause_is_a_warning(tmp_path: Path) -> None:
    facts = facts_of(_mostly_linked(6, gap_us=50), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_mostly_linked(5), tmp_path)))


def test_a_fully_linked_trace_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))


def test_cannot_tell_without_a_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path)))
