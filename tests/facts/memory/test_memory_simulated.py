"""Memory of simulated jobs, compared with the simulator's truth."""

from __future__ import annotations

import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tests.builder import Generation
from tests.simulator.diagnosed import simulated, simulated_facts
from tests.trace.support import read_bytes

pytestmark = pytest.mark.slow

STEADY = ["memory_warms_up", "cache_fills", "optimizer_state", "accumulated_gradients", "varying_sizes"]
OTHERS = ["little_room", "fragmented"]
LEAKS = [
    "leak",
    "leak_kept_graph",
    "leak_retained_graph",
    "leak_hooks",
    "leak_growing_cache",
    "leak_gradients",
    "leak_metrics",
    "host_leak",
]
# The simulator's kinds. "other" cannot be identified from a trace.
_TRUE_KINDS = {kind.value: kind for kind in MemoryKind} | {"other": MemoryKind.UNKNOWN}


@pytest.mark.parametrize("scenario", [*LEAKS, *STEADY, *OTHERS])
def test_floors_peak_and_slope_are_the_true_ones(scenario: str) -> None:
    run = simulated(scenario)
    found = {memory.device: memory for memory in simulated_facts(scenario).memory}
    for truth in run.truth.memory:
        memory = found.pop(NONE if truth.device is None else truth.device)
        assert memory.floors.bytes.tolist() == truth.floor_bytes
        assert memory.peak_allocated_bytes == truth.peak_bytes
        assert memory.peak.reserved_at_peak_bytes in (truth.peak_reserved_bytes, NONE)
        assert memory.trend is not None
        if truth.behaviour == "leak":
            assert memory.trend.per_unit == pytest.approx(truth.slope_bytes, rel=0.02)
            assert memory.sites[0].operator in truth.operators
            frame = memory.sites[0].frame
            assert truth.frame in ("", f"{frame.file}({frame.line}): {frame.function}" if frame else "")
            assert sum(site.per_unit for site in memory.sites) == pytest.approx(truth.slope_bytes, rel=0.02)
    assert not found


@pytest.mark.parametrize("scenario", [*STEADY, *OTHERS])
def test_kinds_at_the_peak_are_the_true_ones(scenario: str) -> None:
    run = simulated(scenario)
    gpu = simulated_facts(scenario).memory[0]
    true = {_TRUE_KINDS[kind]: size for kind, size in run.truth.memory[0].peak_kinds.items()}
    assert gpu.peak.kinds == {kind: size for kind, size in true.items() if size}


@pytest.mark.parametrize("scenario", LEAKS)
def test_no_part_of_a_leak_has_a_wrong_kind(scenario: str) -> None:
    run = simulated(scenario)
    gpu = simulated_facts(scenario).memory[0]
    true = {_TRUE_KINDS[kind]: size for kind, size in run.truth.memory[0].peak_kinds.items()}
    for kind, size in gpu.peak.kinds.items():
        assert kind is MemoryKind.UNKNOWN or size <= true[kind]


@pytest.mark.parametrize("generation", ["A", "B", "C1"])
@pytest.mark.parametrize("scenario", ["leak", "leak_growing_cache", "optimizer_state"])
def test_every_generation_has_the_same_slope(scenario: str, generation: Generation) -> None:
    run = simulated(scenario)
    memory = Facts(read_bytes(run.bytes(generation))).memory[0]
    assert memory.curve.relative == (generation == "A")
    assert memory.trend is not None
    assert memory.trend.per_unit == pytest.approx(run.truth.memory[0].slope_bytes, rel=0.02)
    assert bool(memory.sites) == (generation != "A" and scenario != "optimizer_state")
