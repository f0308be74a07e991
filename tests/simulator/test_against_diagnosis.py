"""The diagnosis finds, from names and nesting alone, exactly what the simulator planted."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.run import run_rules
from tests.simulator import Simulated, scenarios
from tests.simulator.diagnosed import simulated, simulated_facts
from tests.simulator.scenarios import different_scenarios

pytestmark = pytest.mark.slow

FAULTS = {name: scenario.rule for name, scenario in scenarios().items() if scenario.rule}


@pytest.fixture(params=different_scenarios())
def diagnosed(request: pytest.FixtureRequest) -> tuple[Simulated, Facts]:
    return simulated(request.param), simulated_facts(request.param)


def test_the_window_and_its_idle_time_agree_to_the_nanosecond(diagnosed: tuple[Simulated, Facts]) -> None:
    run, facts = diagnosed
    device = facts.device
    assert device is not None
    borders_ns = facts.borders_ns
    window = Window(int(borders_ns[0]), int(borders_ns[-1])) if run.truth.steps else facts.recorded_window
    assert window.duration_ns == run.truth.window_ns
    found = {cause.label: ns for cause, ns in device.ledger.by_cause(window).items()}
    assert found == run.truth.idle_ns
    triggers = {trigger.label: ns for trigger, ns in device.ledger.by_trigger(window).items()}
    assert triggers == run.truth.trigger_ns
    assert facts.trace.metadata.simulated


def test_every_step_agrees(diagnosed: tuple[Simulated, Facts]) -> None:
    run, facts = diagnosed
    steps = facts.step_times
    if not facts.recorded.steps:
        assert not run.truth.steps
        return
    account = steps.times
    assert account.names == [step.name for step in run.truth.steps]
    for number, step in enumerate(run.truth.steps):
        assert account.end_ns[number] - account.start_ns[number] == step.duration_ns
        found = {
            cause.label: account.idle_ns[number, cause] for cause in Cause if account.idle_ns[number, cause]
        }
        assert found == step.idle_ns


@pytest.mark.parametrize(("name", "rule"), FAULTS.items())
def test_each_fault_triggers_its_rule(name: str, rule: str) -> None:
    assert rule in findings(name)


@pytest.mark.parametrize(
    "name", [name for name in different_scenarios() if name.endswith("_fixed") or name == "healthy"]
)
def test_fixed_and_healthy_runs_have_no_finding_above_info(name: str) -> None:
    found = findings(name)
    assert [rule for rule, severity in found.items() if severity > Severity.INFO] == []


REPLAY_TOLERANCE = 0.02
"""Share of the window: the replay has one latency for all launches, the simulator spreads it."""


@pytest.mark.parametrize("name", ["input_pipeline", "host_bound", "allocator_in_step", "compilation_in_step"])
def test_estimated_savings_are_the_time_that_the_fixed_run_saves(name: str) -> None:
    """Only for faults whose fix removes host time and changes nothing that the GPU has to do."""
    run = simulated(name)
    (found,) = (f for f in run_rules(simulated_facts(name), RULES).findings if f.rule.id == FAULTS[name])
    saving = found.finding.saving
    assert saving is not None
    assert saving.basis == "replayed"
    saved_ns = run.truth.window_ns - simulated(f"{name}_fixed").truth.window_ns
    tolerance_ns = REPLAY_TOLERANCE * run.truth.window_ns
    assert saving.low_ns - tolerance_ns <= saved_ns <= saving.high_ns + tolerance_ns


def findings(name: str) -> dict[str, Severity]:
    """Return rule id -> severity for a scenario."""
    outcome = run_rules(simulated_facts(name), RULES)
    return {finding.rule.id: finding.severity for finding in outcome.findings}
