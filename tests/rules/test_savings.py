"""Savings of fixes: replayed where the model explains the trace, and never counted twice."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.core.intervals import Intervals
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.replay.replay import Removal
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Finding, Fix, Removable, Saving
from tb_gpudiag.rules.given_back import GivenBack
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.savings import (
    MORE_THAN_COST,
    Predicted,
    plan_fixes,
    predicted_of,
    promised_range,
    removes_of,
    with_saving,
)
from tb_gpudiag.rules.shared.slowed_recording import trusted_replay
from tb_gpudiag.trace.read import read_trace
from tests.builder import TraceBuilder
from tests.conftest import REPOSITORY
from tests.facts import facts_of
from tests.facts.any_traces import any_traces
from tests.facts.replay.test_replay import two_steps
from tests.golden.recordings import RECORDED
from tests.real_traces import FILES, first_in, real_facts
from tests.rules.stage import without_gpu
from tests.simulator import FAULTS, Fault, simulate
from tests.with_each import with_each


def test_a_replayed_saving_says_so_and_is_what_the_story_says() -> None:
    [found] = [f for f in run_rules(facts_of(two_steps(400)), RULES).findings if f.rule.id == "GD101"]
    saving = found.finding.saving
    assert saving is not None
    assert saving.basis == "replayed"
    # The steps are 2 x 400 us shorter.
    assert saving.possible[1] * 2_000_000 == pytest.approx(800_000, abs=20_000)
    assert saving.low_ns < saving.likely_ns < saving.high_ns
    assert saving.likely_ns == pytest.approx(800_000, rel=0.1)


def test_without_a_gpu_nothing_is_replayed(tmp_path: Path) -> None:
    trace = TraceBuilder(devices=())
    main = trace.thread()
    main.step(0, at=0, us=1000).loader(at=0, us=600)
    main.op("aten::mm", at=600, us=300)
    outcome = run_rules(facts_of(trace), RULES)
    assert outcome.plan == []
    assert {f.finding.saving.basis for f in outcome.findings if f.finding.saving} == {"estimate"}
    assert trusted_replay(facts_of(without_gpu())) is None


@with_each("cost", [50, 600, 1000])
def test_on_a_cpu_more_than_the_cost_comes_back_only_as_timed_jobs_show(cost: int) -> None:
    facts = facts_of(without_gpu())
    cost_ns = cost * facts.window.duration_ns // 1000
    found = with_saving(Finding("", "", Fix(""), cost_ns=cost_ns), facts, None, "input")
    assert found.saving is not None
    assert 0 < found.saving.low_ns < found.saving.likely_ns <= found.saving.high_ns
    assert found.saving.high_ns < facts.window.duration_ns  # something always stays
    assert ("timed" in found.saving.beyond) == (found.saving.high_ns > cost_ns * MORE_THAN_COST)


def test_on_a_cpu_a_fix_may_remove_more_than_it_is_about() -> None:
    facts = facts_of(without_gpu())
    window = facts.window
    end_ns = window.start_ns + window.duration_ns * 3 // 4
    loops = Removal(Intervals(np.array([window.start_ns]), np.array([end_ns])))
    about = Finding("", "", Fix(""), cost_ns=window.duration_ns // 2, removable=Removable(loops))
    saving = with_saving(about, facts, None).saving
    assert saving is not None
    assert saving.possible == pytest.approx((0.75, 0.75), rel=0.001)
    assert window.duration_ns // 2 < saving.likely_ns < window.duration_ns * 0.8
    assert "timed" not in saving.beyond


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_traces())
def test_all_fixes_together_never_give_more_than_there_is(trace: TraceBuilder) -> None:
    nothing_is_promised_above_the_account(facts_of(trace))


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    st.sampled_from(FAULTS),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.integers(0, 99),
    st.sampled_from([0.0, 0.05]),
)
def test_no_saving_of_a_simulated_job_is_above_its_account(
    fault: Fault, severity: float, seed: int, noise: float
) -> None:
    with TemporaryDirectory() as folder:
        written = simulate(fault.planted(severity), seed=seed, noise=noise).write(Path(folder), gzipped=False)
        nothing_is_promised_above_the_account(Facts(read_trace(str(written))))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("path", FILES)
def test_no_saving_of_a_public_recording_is_above_its_account(path: str) -> None:
    nothing_is_promised_above_the_account(real_facts(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED.values())
def test_no_saving_of_a_recording_at_hand_is_above_its_account(name: str) -> None:
    (path,) = (path for path, own in RECORDED.items() if own == name)
    nothing_is_promised_above_the_account(Facts(read_trace(str(REPOSITORY / path))))


def nothing_is_promised_above_the_account(facts: Facts) -> None:
    outcome = run_rules(facts, RULES)
    assert all(planned.saving_ns >= 0 for planned in outcome.plan)
    ends = [(planned.low_ns, planned.likely_ns, planned.high_ns) for planned in outcome.plan]
    assert all(0 <= low <= likely <= high <= facts.window.duration_ns for low, likely, high in ends)
    assert sum(planned.saving_ns for planned in outcome.plan) <= facts.window.duration_ns
    savings = [found.finding.saving for found in outcome.findings if found.finding.saving]
    assert all(
        0 <= saving.low_ns <= saving.middle_ns <= saving.high_ns <= facts.window.duration_ns
        for saving in savings
    )
    account = predicted_of(facts)
    for found in outcome.findings:
        saving, removes = found.finding.saving, removes_of(found.finding, facts, account)
        if saving is None or removes is None:
            continue
        # In ms, of the step without the recorder.
        cost_ns = found.finding.cost_ns / facts.unprofiled_share
        assert saving.high_ns <= cost_ns * MORE_THAN_COST + 1 or saving.beyond
        step_ns = facts.unslowed.likely_ns if account else facts.window.duration_ns
        if account and saving.basis == "at most":  # of the one that was recorded
            step_ns = facts.window.duration_ns
        left_ns = step_ns * (1 - saving.high_ns / facts.window.duration_ns)
        assert left_ns >= step_ns * (1 - removes.account) - 2 or saving.basis == "at most"
        if account and found.finding.removable:
            assert left_ns >= facts.replay.shortest_ns(found.finding.removable.most) - 2


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


def test_a_plan_never_saves_more_than_the_account_allows() -> None:
    """Whatever a fix promises to remove, the kernels still take their time."""
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD101"]
    window_ns, predicted = facts.window.duration_ns, _predicted(facts)
    all_host_time = Removable(Removal(Intervals(np.array([0]), np.array([2_000_000]))))
    promising = with_saving(replace(found, removable=all_host_time), facts, predicted)
    promising = replace(promising, saving=replace(_of(promising), low_ns=2 * window_ns))
    [planned] = plan_fixes(predicted, [promising])
    assert (
        planned.low_ns == planned.high_ns == pytest.approx(window_ns - 2 * 10 * 50_000, rel=0.01)
    )  # the kernels


def test_two_fixes_of_the_same_time_count_once() -> None:
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD101"]
    plan = plan_fixes(_predicted(facts), [found, found])
    assert [(planned.finding, planned.saving_ns) for planned in plan] == [(0, _of(found).likely_ns)]


def test_a_fix_saves_less_after_one_that_saves_half_of_it() -> None:
    facts = facts_of(two_steps(400))
    [found] = [f.finding for f in run_rules(facts, RULES).findings if f.rule.id == "GD101"]
    assert found.removable is not None
    host = found.removable.most.host
    half = Removal(Intervals(host.start[:1], host.end[:1]))
    first = with_saving(replace(found, removable=Removable(half)), facts, _predicted(facts), "input")
    plan = plan_fixes(_predicted(facts), [first, found])
    assert plan[1].saving_ns == pytest.approx(_of(found).likely_ns / 2, rel=0.1)


def test_what_cannot_be_replayed_saves_at_most_its_cost() -> None:
    facts = facts_of(two_steps(400))
    bare = Finding("", "", Fix(""), cost_ns=5)
    assert with_saving(bare, facts, predicted_of(facts)).saving == Saving(0, 5)
    assert with_saving(Finding("", "", Fix("")), facts, predicted_of(facts)).saving is None


def test_the_first_row_of_the_plan_saves_what_its_finding_says() -> None:
    facts = facts_of(two_steps(400))
    outcome = run_rules(facts, RULES)
    saving = _of(outcome.findings[0].finding)
    [planned, *_] = outcome.plan
    assert (planned.finding, planned.low_ns, planned.saving_ns) == (0, saving.low_ns, saving.likely_ns)


def test_ends_that_are_far_apart_are_no_range() -> None:
    back = GivenBack(0.1, 0.5, 1.0, 3)
    assert promised_range((0.4, 0.4), back, 0.0, 1.0) == (0.0, 0.2, 0.4)
    assert promised_range((0.4, 0.4), replace(back, low=0.3), 0.0, 1.0) == pytest.approx((0.12, 0.2, 0.4))
    assert promised_range((0.4, 0.4), replace(back, low=0.3), 0.02, 0.3) == pytest.approx((0.1, 0.2, 0.3))


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
    measured = 1 - _median_step_ns(fixed) / _median_step_ns(facts)
    assert saving.low_ns <= measured * facts.window.duration_ns <= saving.high_ns
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
    assert 0 < found.saving.low_ns <= truth <= found.saving.high_ns


def _predicted(facts: Facts) -> Predicted:
    predicted = predicted_of(facts)
    assert predicted is not None
    return predicted


def _of(finding: Finding) -> Saving:
    assert finding.saving is not None
    return finding.saving
