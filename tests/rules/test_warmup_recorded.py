from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.rules.warmup_recorded import RULE
from tests.builder import TraceBuilder
from tests.rules.stage import cannot_tell, facts_of, finding, is_clear


def _steps(lengths_us: Sequence[float], *, gpu: bool = True) -> TraceBuilder:
    trace = TraceBuilder(devices=("Test GPU",) if gpu else ())
    main = trace.thread()
    at = 0.0
    for number, us in enumerate(lengths_us):
        main.step(number, at=at, us=us)
        if gpu:
            main.launch("gemm", at=at, us=5, runs_at=at + 6, runs_us=us - 10)
        else:
            main.op("aten::mm", at=at, us=us - 1)
        at += us
    return trace


def test_a_slow_first_step_is_mentioned(tmp_path: Path) -> None:
    facts = facts_of(_steps([250, 100, 100, 100, 100, 100, 100, 100, 100]), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.INFO
    assert ("slow steps", "1 of 9") in [(e.label, e.value) for e in found.evidence]


def test_it_is_a_warning_where_the_figures_are_about_the_warm_up(tmp_path: Path) -> None:
    facts = facts_of(_steps([2000, 400, 100, 100, 100]), tmp_path)
    found = finding(RULE.check(facts))
    assert RULE.severity_of(found, facts.window.duration_ns) is Severity.WARNING
    assert ("slow steps", "2 of 5") in [(e.label, e.value) for e in found.evidence]


def test_it_is_seen_without_a_gpu_too(tmp_path: Path) -> None:
    finding(RULE.check(facts_of(_steps([900, 100, 100, 100], gpu=False), tmp_path)))


def test_just_under_twice_the_others_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([195, 100, 100, 100]), tmp_path)))


def test_a_slow_step_in_the_middle_is_no_warm_up(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100, 100, 900, 100, 100]), tmp_path)))


def test_equal_steps_are_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_steps([100, 100, 100]), tmp_path)))


def test_cannot_tell_from_two_steps(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(_steps([900, 100]), tmp_path)))
