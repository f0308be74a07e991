"""Savings of fixes: replayed where the model explains the trace, and never counted twice."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Finding, Fix, Removable, Saving
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.savings import Predicted, plan_fixes, with_saving
from tb_gpudiag.rules.shared.slowed_recording import trusted_replay
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.facts.replay.test_replay import two_steps
from tests.real_traces import first_in
from tests.rules.stage import without_gpu
from tests.simulator import FAULTS, Fault, simulate
from tests.with_each import with_each


def test_a_replayed_saving_says_so_and_is_what_the_story_says() -> None:
    [found] = [f for f in run_rules(facts_of(two_steps(400)), RULES).findings if f.rule.id == "GD101"]
    saving = found.finding.saving
    assert saving is not None
    assert saving.basis == "replayed"
    # Without the handing over of batches and a slower host, the steps are 2 x 400 us shorter.
    assert 400_000 < saving.low_ns < 2 * 300_000
    assert saving.high_ns == pytest.approx(800_000, abs=20_000)


def test_without_a_gpu_nothing_is_replayed(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000).loader(at=0, us=600)
    main.op("aten::mm", at=600, us=300)
    outcome = run_rules(facts_of(trace), RULES)
    assert outcome.plan == []
    assert {f.finding.saving.basis for f in outcome.findings if f.finding.saving} == {"estimate"}
    assert trusted_replay(facts_of(without_gpu())) is None


@with_each(("cost", "most"), [(50, 100), (600, 800), (1000, 1000)])
def test_on_a_cpu_the_rest_gains_no_more_than_the_fix_removes(cost: int, most: int) -> None:
    facts = facts_of(without_gpu())
    window_ns = facts.window.duration_ns
    found = with_saving(Finding("", "", Fix(""), cost_ns=cost * window_ns // 1000), facts, None)
    assert found.saving is not None
    assert (found.saving.low_ns, found.saving.high_ns) == (0, most * window_ns // 1000)
    assert bool(found.saving.beyond) is (most > cost)


def test_on_a_cpu_a_fix_may_remove_more_than_it_is_about() -> None:
    facts = facts_of(without_gpu())
    window = facts.window
    end_ns = window.start_ns + window.duration_ns * 3 // 4
    loops = Removal(Intervals(np.array([window.start_ns]), np.array([end_ns])))
    about = Finding("", "", Fix(""), cost_ns=window.duration_ns // 2, removable=Removable(loops, loops))
    saving = with_saving(about, facts, None).saving
    assert saving is not None
    assert (saving.low_ns, saving.high_ns) == (0, window.duration_ns * 7 // 8)


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    for found in outcome.findings:
        if found.finding.removable is not None and facts.device is not None:
            most = found.finding.removable.most
            saved_ns = facts.replay.unchanged.window_ns - facts.replay.run(most).window_ns
            assert saved_ns <= facts.replay.most_saved(most) or not trusted_replay(facts)
    savings = [found.finding.saving for found in outcome.findings if found.finding.saving]
    assert all(0 <= saving.low_ns <= saving.high_ns <= facts.window.duration_ns for saving in savings)


@cache
def _without_gpu() -> Facts:
    return facts_of(without_gpu())


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), st.integers(0, 2**62))
def test_any_saving_is_between_nothing_and_the_window(low: int, high: int, cost: int) -> None:
    facts = _without_gpu()
    finding = Finding("", "", Fix(""), cost_ns=cost, saving=Saving(low, high))
    saving = with_saving(finding, facts, None).saving
    assert saving is not None
    assert 0 <= saving.low_ns <= saving.high_ns <= facts.window.duration_ns


def test_a_plan_never_saves_more_than_the_gpu_needs() -> None:
    """Whatever a fix promises to remove, the kernels still take their time."""
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD101"]
    all_host_time = Removal(Intervals(np.array([0]), np.array([2_000_000])), share=10.0)
    promising = replace(found, removable=Removable(all_host_time, all_host_time))
    [planned] = plan_fixes(Predicted(facts.replay, None), [promising])
    assert planned.saving_ns + planned.window_ns == facts.replay.measured.window_ns
    assert planned.window_ns == 2 * 10 * 50_000  # the kernels


def test_two_fixes_of_the_same_time_count_once() -> None:
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD101"]
    plan = plan_fixes(Predicted(facts.replay, None), [found, found])
    assert [(planned.finding, planned.saving_ns) for planned in plan] == [(0, 800_000)]


def test_what_cannot_be_replayed_saves_at_most_its_cost() -> None:
    facts = facts_of(two_steps(400))
    bare = Finding("", "", Fix(""), cost_ns=5)
    assert with_saving(bare, facts, Predicted(facts.replay, None)).saving == Saving(0, 5)
    assert with_saving(Finding("", "", Fix("")), facts, Predicted(facts.replay, None)).saving is None


def test_the_first_row_of_the_plan_saves_what_its_finding_says() -> None:
    facts = facts_of(two_steps(400))
    outcome = run_rules(facts, RULES)
    saving = outcome.findings[0].finding.saving
    assert saving is not None
    assert (outcome.plan[0].finding, outcome.plan[0].saving_ns) == (0, saving.high_ns)


def test_what_is_sure_is_no_more_than_the_fix_surely_removes_of_the_cost() -> None:
    """Half of the wait for data costs 100 µs here, but without it, the host gets 400 µs ahead."""
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD101"]
    assert found.removable is not None
    half = replace(found.removable.most, share=0.5)
    cheap = replace(found, cost_ns=200_000, removable=Removable(half, found.removable.most))
    saving = with_saving(cheap, facts, Predicted(facts.replay, None)).saving
    assert saving is not None
    assert saving.low_ns == 100_000
    assert saving.high_ns > cheap.cost_ns
    assert "the CPU runs further ahead" in saving.beyond


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("v100_resnet50_workers0", "v100_resnet50_workers4"),
        ("v100_resnet50_second_workers0", "v100_resnet50_second_workers4"),
    ],
)
def test_real_input_savings_are_in_the_range(shared_traces: Path, before: str, after: str) -> None:
    """Savings per step, compared with the median steps of the same job with four workers. The finding that
    was fixed comes first."""
    facts, fixed = first_in(before), first_in(after)
    first = run_rules(facts, RULES).findings[0]
    assert first.rule.id == "GD101"
    saving = first.finding.saving
    assert saving is not None
    assert saving.basis == "replayed"
    measured = _median_step_ns(facts) - _median_step_ns(fixed)
    assert saving.low_ns <= measured * len(facts.steps) <= saving.high_ns
    assert facts.replay.run(Removal()).window_ns == facts.replay.unchanged.window_ns


def _median_step_ns(facts: Facts) -> float:
    assert facts.device is not None
    account = facts.device.account
    return float(np.median(account.end_ns - account.start_ns))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [f for f in FAULTS if f.rule == "GD101"], ids=lambda fault: fault.name)
@pytest.mark.parametrize("severity", [0.9, 1.5])
def test_simulated_input_savings_are_in_the_range(fault: Fault, severity: float, tmp_path: Path) -> None:
    job = fault.planted(severity)
    before, after = simulate(job, seed=5, noise=0.05), simulate(fault.fixed(job), seed=5, noise=0.05)
    facts = Facts(read_trace(str(before.write(tmp_path, gzipped=False))))
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD101"]
    assert found.saving is not None
    truth = before.truth.window_ns - after.truth.window_ns
    assert 0 < found.saving.low_ns <= truth <= 1.02 * found.saving.high_ns


@pytest.mark.parametrize(
    ("before", "after", "rule"), [("rtx5080_without_cuda_graph", "rtx5080_with_cuda_graph", "GD201")]
)
def test_at_most_is_a_bound_of_a_real_saving(shared_traces: Path, before: str, after: str, rule: str) -> None:
    """The GPU starts work up to 0.3 ms late for no recorded reason, so nothing is replayed. The CUDA graph
    saved more than the finding's cost: it removed the Python between the launches, too."""
    facts, fixed = first_in(before), first_in(after)
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == rule]
    assert found.saving is not None
    assert found.saving.basis == "at most"
    per_step_ns = facts.window.duration_ns / len(facts.steps) - fixed.window.duration_ns / len(fixed.steps)
    assert found.cost_ns < per_step_ns * len(facts.steps) <= found.saving.high_ns
