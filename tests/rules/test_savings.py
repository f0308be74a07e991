"""Savings of fixes: replayed where the model explains the trace, and never counted twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.replay.replay import Change
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.rule import Finding, Fix, Removable, Saving
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.savings import plan_fixes, trusted_replay, with_bounded_saving, with_replayed_saving
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.facts.replay.test_replay import two_steps
from tests.real_traces import first_in
from tests.rules.stage import without_gpu


def test_a_replayed_saving_says_so_and_is_what_the_story_says() -> None:
    [found] = [f for f in run_rules(facts_of(two_steps(400))).findings if f.rule.id == "GD101"]
    saving = found.finding.saving
    assert saving is not None
    assert saving.basis == "replayed"
    assert saving.low_ns <= 800_000 <= saving.high_ns
    assert saving.high_ns - saving.low_ns < 40_000


def test_without_a_gpu_nothing_is_replayed(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000).loader(at=0, us=600)
    main.op("aten::mm", at=600, us=300)
    outcome = run_rules(facts_of(trace))
    assert outcome.plan == []
    assert {f.finding.saving.basis for f in outcome.findings if f.finding.saving} == {"at most"}
    assert trusted_replay(facts_of(without_gpu())) is None


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_traces())
def test_all_fixes_together_never_give_more_than_there_is(trace: TraceBuilder) -> None:
    facts = facts_of(trace)
    outcome = run_rules(facts, RULES)
    assert all(planned.saving_ns >= 0 for planned in outcome.plan)
    together = sum(planned.saving_ns for planned in outcome.plan)
    assert together <= facts.window.duration_ns
    if outcome.plan:
        assert facts.replay.measured.window_ns - together == outcome.plan[-1].window_ns
        assert all(0 <= planned.window_ns <= facts.window.duration_ns for planned in outcome.plan)
    savings = [found.finding.saving for found in outcome.findings if found.finding.saving]
    assert all(0 <= saving.low_ns <= saving.high_ns <= facts.window.duration_ns for saving in savings)


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), st.integers(0, 2**62))
def test_any_saving_is_between_nothing_and_the_window(low: int, high: int, window: int) -> None:
    finding = Finding("", "", Fix(""), saving=Saving(low, high))
    saving = with_bounded_saving(finding, window).saving
    assert saving is not None
    assert 0 <= saving.low_ns <= saving.high_ns <= window
    inside = 0 <= low <= high <= window
    assert (saving == finding.saving) == inside


def test_a_plan_never_saves_more_than_the_window() -> None:
    """The unchanged replay may be longer than the recording, and fixes cannot save what was not there."""
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts).findings if f.rule.id == "GD101"]
    all_host_time = Change(Intervals(np.array([0]), np.array([2_000_000])), share=10.0)
    promising = replace(found, removable=Removable(all_host_time, all_host_time))
    window_ns = facts.replay.measured.window_ns
    assert [(p.saving_ns, p.window_ns) for p in plan_fixes(facts.replay, [promising])] == [(window_ns, 0)]


def test_two_fixes_of_the_same_time_count_once() -> None:
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts).findings if f.rule.id == "GD101"]
    plan = plan_fixes(facts.replay, [found, found])
    assert [(planned.finding, planned.saving_ns) for planned in plan] == [(0, 800_000)]


def test_what_cannot_be_replayed_keeps_its_own_saving() -> None:
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts).findings if f.rule.id == "GD101"]
    bare = type(found)(found.title, found.summary, found.fix, cost_ns=5)
    assert with_replayed_saving(facts.replay, bare) is bare


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [("v100_resnet50_workers0", 124e6, "GD101")],
)
def test_a_real_pair(shared_traces: Path, before: str, after: float, rule: str) -> None:
    """ResNet without its loader's wait, against the steady steps of the run with 4 workers (124-126 ms)."""
    facts = first_in(before)
    [found] = [f.finding for f in run_rules(facts).findings if f.rule.id == rule]
    assert found.removable is not None
    predicted = facts.replay.run(found.removable.most).window_ns / len(facts.steps)
    assert predicted == pytest.approx(after, rel=0.10)
    assert facts.replay.run(Change()).window_ns == facts.replay.unchanged.window_ns
