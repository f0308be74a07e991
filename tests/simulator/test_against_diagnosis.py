"""The diagnosis finds, from names and nesting alone, exactly what the simulator planted."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from tb_gpudiag.facts.core.account import step_account
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.rule import Severity
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.trace.read import read_trace
from tests.simulator import Simulated, scenarios, simulate

FAULTS = {name: scenario.rule for name, scenario in scenarios().items() if scenario.rule}


@lru_cache
def run(name: str) -> Simulated:
    return simulate(name)


@pytest.fixture(scope="module", params=list(scenarios()))
def diagnosed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Simulated, Facts]:
    simulated = run(request.param)
    return simulated, facts_of(simulated, tmp_path_factory.mktemp(request.param))


def facts_of(simulated: Simulated, folder: Path) -> Facts:
    return Facts(read_trace(str(simulated.write(folder))))


def test_the_window_and_its_idle_time_agree_to_the_nanosecond(diagnosed: tuple[Simulated, Facts]) -> None:
    simulated, facts = diagnosed
    device = facts.device
    assert device is not None
    window = facts.recorded_window
    assert window.duration_ns == simulated.truth.window_ns
    found = {cause.label: ns for cause, ns in device.ledger.by_cause(window).items()}
    assert found == simulated.truth.idle_ns


def test_triggers_agree(diagnosed: tuple[Simulated, Facts]) -> None:
    simulated, facts = diagnosed
    assert facts.device is not None
    found = {
        trigger.label: ns for trigger, ns in facts.device.ledger.by_trigger(facts.recorded_window).items()
    }
    assert found == simulated.truth.trigger_ns


def test_every_step_agrees(diagnosed: tuple[Simulated, Facts]) -> None:
    simulated, facts = diagnosed
    device = facts.device
    assert device is not None
    account = step_account(device.busy, device.ledger, facts.recorded_steps, facts.recorded_window)
    assert account.names == [step.name for step in simulated.truth.steps]
    for number, step in enumerate(simulated.truth.steps):
        assert account.end_ns[number] - account.start_ns[number] == step.duration_ns
        found = {
            cause.label: account.idle_ns[number, cause] for cause in Cause if account.idle_ns[number, cause]
        }
        assert found == step.idle_ns


def test_its_traces_say_that_they_are_simulated(diagnosed: tuple[Simulated, Facts]) -> None:
    assert diagnosed[1].trace.metadata.simulated


@pytest.mark.parametrize(("name", "rule"), FAULTS.items())
def test_each_fault_triggers_its_rule(name: str, rule: str, tmp_path: Path) -> None:
    assert rule in findings(run(name), tmp_path)


@pytest.mark.parametrize(
    "name", [name for name in scenarios() if name.endswith("_fixed") or name == "healthy"]
)
def test_mended_and_healthy_runs_have_no_finding_above_info(name: str, tmp_path: Path) -> None:
    found = findings(run(name), tmp_path)
    assert [rule for rule, severity in found.items() if severity > Severity.INFO] == []


REPLAY_TOLERANCE = 0.02
"""Of the window: the replay puts every launch at one latency, where the simulator spreads it."""


@pytest.mark.parametrize("name", ["input_pipeline", "host_bound", "allocator_in_step", "compilation_in_step"])
def test_a_fix_gives_back_what_the_mended_run_takes_less(name: str, tmp_path: Path) -> None:
    """Faults whose fix only takes time of the host away, and changes nothing that the GPU has to do."""
    simulated = run(name)
    (found,) = (f for f in run_rules(facts_of(simulated, tmp_path)).findings if f.rule.id == FAULTS[name])
    saving = found.finding.saving
    assert saving is not None
    assert saving.basis == "replayed"
    less_ns = simulated.truth.window_ns - run(f"{name}_fixed").truth.window_ns
    tolerance_ns = REPLAY_TOLERANCE * simulated.truth.window_ns
    assert saving.low_ns - tolerance_ns <= less_ns <= saving.high_ns + tolerance_ns


def findings(simulated: Simulated, folder: Path) -> dict[str, Severity]:
    """Rule id -> severity."""
    outcome = run_rules(facts_of(simulated, folder))
    return {finding.rule.id: finding.severity for finding in outcome.findings}
