"""The verdict ranks parts that add up to the step window, and its numbers are the account's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.shared.lost_time import lost_time
from tb_gpudiag.rules.shared.window_parts import split_window
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.format import share
from tests.rules.stage import facts_of, healthy, one_gap, without_gpu
from tests.simulator import scenarios, simulate

LIMITERS = {
    "healthy": "compute",
    "input_pipeline": "input",
    "launch_bound": "launch",
    "host_sync": "sync",
    "allocator_in_step": "memory",
}
"""Simulated scenario -> what limits it."""


@pytest.fixture(scope="module", params=sorted(scenarios()))
def simulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    written = simulate(request.param, seed=0).write(tmp_path_factory.mktemp(request.param))
    return Facts(read_trace(str(written)))


def test_parts_add_up_to_the_step_window(simulated: Facts) -> None:
    if simulated.device is None:
        pytest.skip("a job without a GPU has no window to split")
    lost = lost_time(simulated.window, simulated.device, simulated.main_thread_spans)
    parts = split_window(simulated.device.window_account, lost)
    assert parts.window_ns == simulated.window.duration_ns
    assert all(ns >= 0 for ns in vars(parts).values())
    assert sum(parts.by_limiter.values()) + parts.computing_ns == parts.window_ns


@pytest.mark.parametrize("scenario", LIMITERS)
def test_the_limiter_is_what_was_planted(scenario: str, tmp_path: Path) -> None:
    facts = Facts(read_trace(str(simulate(scenario, seed=0).write(tmp_path))))
    assert find_verdict(facts).limiter == LIMITERS[scenario]


def test_the_sentence_has_the_accounts_numbers(tmp_path: Path) -> None:
    facts = facts_of(one_gap(lambda main, at, us: main.loader(at=at, us=us), 400), tmp_path)
    assert facts.device is not None
    loading_ns = int(facts.device.window_account.idle_ns[0, Cause.INPUT])
    verdict = find_verdict(facts)
    assert verdict.limiter == "input"
    assert share(loading_ns, facts.window.duration_ns) in verdict.sentence
    assert share(verdict.busy_share) in verdict.sentence


def test_a_healthy_job_is_limited_by_computing(tmp_path: Path) -> None:
    assert find_verdict(facts_of(healthy(), tmp_path)).limiter == "compute"


def test_a_job_without_a_gpu_speaks_of_the_main_thread(tmp_path: Path) -> None:
    verdict = find_verdict(facts_of(without_gpu(), tmp_path))
    assert verdict.sentence.startswith("No GPU activity was recorded. The main thread")
    assert verdict.busy_share == 0
