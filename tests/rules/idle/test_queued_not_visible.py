from __future__ import annotations

from pathlib import Path

from tb_gpudiag.rules.idle.queued_not_visible import RULE
from tb_gpudiag.wording.quantity import duration, share_of
from tests.builder import TraceBuilder
from tests.rules.stage import (
    cannot_tell,
    facts_of,
    figures,
    finding,
    healthy,
    is_clear,
    one_gap,
    without_gpu,
)


def _queued(idle_us: float) -> TraceBuilder:
    """Launch both kernels before the gap; the second one still starts late."""
    trace = TraceBuilder()
    main = trace.thread()
    main.launch("before", at=50, us=5, runs_at=60, runs_us=240)
    main.step(0, at=100, us=1000)
    main.op("aten::all_reduce", at=110, us=20)
    main.launch("after", at=115, us=5, runs_at=300 + idle_us, runs_us=800 - idle_us)
    return trace


def test_fires_on_idle_time_with_work_queued_and_says_that_the_cause_is_not_visible(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_queued(100), tmp_path)))
    assert found.cost_ns == 100_000
    assert figures(found)["Idle with work queued"] == (
        duration(100_000),
        share_of(100_000, 1_000_000, "of the step window"),
    )
    assert "not visible" in found.summary


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_queued(49), tmp_path)))


def test_a_late_host_is_clear(tmp_path: Path) -> None:
    facts = facts_of(one_gap(lambda main, at, us: main.op("aten::add", at=at, us=us), 300), tmp_path)
    assert is_clear(RULE.check(facts))


def test_a_queue_without_gaps_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(healthy(), tmp_path)))


def test_cannot_tell_without_a_gpu(tmp_path: Path) -> None:
    assert cannot_tell(RULE.check(facts_of(without_gpu(), tmp_path)))


def test_idle_time_before_the_first_work_may_be_work_that_was_not_recorded(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.step(0, at=0, us=1000)
    main.launch("first", at=10, us=5, runs_at=400, runs_us=600)
    found = finding(RULE.check(facts_of(trace, tmp_path)))
    assert figures(found)["Before the first recorded GPU work"][0] == duration(385_000)
    within = finding(RULE.check(facts_of(_queued(100), tmp_path / "within")))
    assert "Before the first recorded GPU work" not in figures(within)
