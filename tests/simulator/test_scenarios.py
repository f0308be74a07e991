"""Invariants of every simulated run, and what each scenario plants."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.simulator import MemoryTruth, Without, scenarios, simulate
from tests.simulator.diagnosed import simulated
from tests.simulator.scenarios import LEAKS, different_scenarios
from tests.simulator.script import SCRIPT

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
PLANTED_CAUSE = {
    "input_pipeline": "input",
    "host_bound": "python",
    "slow_operator": "dispatch",
    "cache_emptied": "allocator",
    "pinned_buffers": "allocator",
    "lazy_loading": "compile",
    "module_loads": "compile",
    "allocator_in_step": "allocator",
    "compilation_in_step": "compile",
    "queued": "queued",
    "launch_bound": "launch",
}
"""Scenarios whose fault is one cause of idle time."""


def idle(name: str) -> int:
    return sum(simulated(name).truth.idle_ns.values())


@pytest.mark.parametrize("name", different_scenarios())
def test_every_nanosecond_of_the_window_is_busy_or_idle_for_one_cause(name: str) -> None:
    truth = simulated(name).truth
    assert truth.busy_ns + sum(truth.idle_ns.values()) == truth.window_ns
    assert sum(truth.trigger_ns.values()) == sum(truth.idle_ns.values())
    for step in truth.steps:
        assert step.busy_ns + sum(step.idle_ns.values()) == step.duration_ns
    if truth.steps:
        assert sum(step.duration_ns for step in truth.steps) == truth.window_ns
        assert sum(step.busy_ns for step in truth.steps) == truth.busy_ns


@pytest.mark.parametrize("name", different_scenarios())
def test_no_work_begins_before_its_launch_and_no_stream_runs_two_things(name: str) -> None:
    recording = simulated(name).recording
    called = {span.correlation: span.start_ns for span in recording.host if span.correlation is not None}
    assert all(work.start_ns > called[work.correlation or 0] for work in recording.gpu)
    for stream in {work.stream for work in recording.gpu}:
        spans = sorted((w.start_ns, w.end_ns) for w in recording.gpu if w.stream == stream)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_the_same_arguments_give_the_same_bytes_and_another_seed_does_not() -> None:
    first = simulate("host_sync", seed=3).bytes()
    assert simulate("host_sync", seed=3).bytes() == first
    assert simulate("host_sync", seed=4).bytes() != first


def test_a_healthy_gpu_is_idle_only_for_its_turnarounds() -> None:
    """From the second step: in the first one the GPU waits for the first launch."""
    truth = simulated("healthy").truth
    for step in truth.steps[1:]:
        assert set(step.idle_ns) == {"latency"}
        assert step.idle_ns["latency"] < 0.02 * step.duration_ns


@pytest.mark.parametrize(("name", "cause"), PLANTED_CAUSE.items())
def test_a_planted_cause_dominates_and_its_fix_removes_it(name: str, cause: str) -> None:
    faulty, fixed = simulated(name).truth, simulated(f"{name}_fixed").truth
    assert faulty.idle_ns[cause] > 0.5 * idle(name)
    assert faulty.idle_ns[cause] > 0.2 * faulty.window_ns
    assert fixed.idle_ns.get(cause, 0) < 0.01 * fixed.window_ns


@pytest.mark.parametrize("name", ["host_sync", "copied_back", "synchronize"])
def test_a_planted_sync_drains_the_queue(name: str) -> None:
    faulty, fixed = simulated(name).truth, simulated(f"{name}_fixed").truth
    assert faulty.trigger_ns["drained"] > 0.8 * idle(name)
    assert "drained" not in fixed.trigger_ns


def test_a_run_without_a_cause_differs_in_nothing_else() -> None:
    faulty = simulated("host_bound")
    free = simulate("host_bound", without=Without(frozenset({"python"})))
    assert "python" not in free.truth.idle_ns
    assert [work.name for work in free.recording.gpu] == [work.name for work in faulty.recording.gpu]
    assert free.truth.window_ns < 0.7 * faulty.truth.window_ns


def test_a_run_without_waits_keeps_the_work() -> None:
    faulty = simulated("host_sync").truth
    free = simulate("host_sync", without=Without(waits=True))
    assert "drained" not in free.truth.trigger_ns
    assert len(free.recording.gpu) == len(simulated("host_sync").recording.gpu)
    assert free.truth.window_ns < faulty.window_ns


def test_a_pageable_copy_is_exposed_and_a_pinned_one_is_hidden() -> None:
    assert (
        simulated("pageable_copies_fixed").truth.window_ns
        < 0.7 * simulated("pageable_copies").truth.window_ns
    )


def memory(name: str, device: int | None = 0) -> MemoryTruth:
    return next(truth for truth in simulated(name).truth.memory if truth.device == device)


@pytest.mark.parametrize("name", [name for name, *_ in LEAKS])
def test_a_leak_raises_the_floor_by_what_each_step_retains(name: str) -> None:
    planted, truth = scenarios()[name].job.leak_bytes, memory(name)
    rises = [b - a for a, b in pairwise(truth.floor_bytes[1:])]
    assert rises == [truth.slope_bytes] * len(rises)
    assert truth.slope_bytes == pytest.approx(planted, rel=0.01)
    assert truth.behaviour == "leak"
    assert memory(f"{name}_fixed").behaviour == "saw_tooth"
    assert len(set(memory(f"{name}_fixed").floor_bytes[1:])) == 1


def test_a_leak_of_the_host_is_not_on_the_gpu() -> None:
    on_host, on_gpu = memory("host_leak", None), memory("host_leak")
    assert on_host.slope_bytes >= scenarios()["host_leak"].job.host_leak_bytes
    assert on_gpu.slope_bytes == 0
    assert len(set(on_gpu.floor_bytes[1:])) == 1


@pytest.mark.parametrize("name", ["memory_warms_up", "cache_fills", "optimizer_state"])
def test_a_plateau_rises_and_stays(name: str) -> None:
    floors = memory(name).floor_bytes
    assert floors[0] < floors[-1]
    assert len(set(floors[-3:])) == 1


@pytest.mark.parametrize("name", different_scenarios())
def test_memory_is_consistent(name: str) -> None:
    """Nothing is freed twice, allocations do not overlap, and no more is allocated than reserved."""
    recording = simulated(name).recording
    alive: dict[int, int] = {}
    total = {0: recording.memory_start.get(0, 0), None: 0}
    for event in recording.memory:
        if event.bytes > 0:
            assert event.address not in alive
            alive[event.address] = event.bytes
        else:
            assert alive.pop(event.address, -event.bytes) == -event.bytes
        total[event.device] += event.bytes
        assert total[event.device] >= 0
        if event.reserved is not None:
            assert total[event.device] <= event.reserved <= simulated(name).scenario.job.capacity_bytes
    spans = sorted((address, address + size) for address, size in alive.items())
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("name", ["healthy", "leak_gradients", "optimizer_state"])
def test_everything_at_the_peak_has_a_kind(name: str) -> None:
    truth = memory(name)
    assert sum(truth.peak_kinds.values()) == truth.peak_bytes
    assert truth.peak_kinds["before"] == scenarios()[name].job.weights_bytes or name == "leak_gradients"
    assert truth.peak_kinds["gradient"] > 0


@pytest.mark.parametrize("name", PLANTED_CAUSE)
def test_severity_scales_what_is_planted(name: str) -> None:
    planted = [
        simulate(name, severity=severity).truth.idle_ns.get(PLANTED_CAUSE[name], 0)
        for severity in (0.25, 1, 2)
    ]
    assert planted[0] < planted[1] < planted[2]


def test_python_frames_name_lines_of_the_script() -> None:
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    frames = {span.name for span in simulated("host_sync").recording.host if span.name.startswith("train.py")}
    for frame in frames - {f"train.py({len(lines)}): <module>"}:
        number, function = frame.removeprefix("train.py(").split("): ")
        assert f"def {function}(" in lines[int(number) - 1]
    assert any("check_alive" in frame for frame in frames)


def test_the_command_writes_marked_traces(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.simulator", str(tmp_path), "--only", "queued", "--only", "leak"]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)  # overwrites, adds none
    files = sorted(tmp_path.rglob("*"))
    assert [f.parent.name for f in files if f.is_file()] == ["leak", "queued"]
    for file in files:
        if file.is_file():
            assert file.name.endswith(".pt.trace.json.gz")
            content = json.loads(gzip.decompress(file.read_bytes()))
            assert content["simulated"] is True
            assert content["deviceProperties"][0]["name"].startswith("Simulated")
