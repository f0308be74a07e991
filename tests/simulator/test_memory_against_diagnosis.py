"""The diagnosis of memory, from names, addresses and nesting alone, agrees with the simulator."""

from __future__ import annotations

import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tests.simulator import MemoryTruth, scenarios
from tests.simulator.diagnosed import simulated, simulated_facts

pytestmark = pytest.mark.slow

Pair = tuple[MemoryTruth, DeviceMemory]
UNNAMED = {"other"}
"""Kinds for which the diagnosis has no name."""


@pytest.fixture(
    params=[name for name in scenarios() if name != "no_steps" and not name.endswith("_fixed")],
)
def devices(request: pytest.FixtureRequest) -> list[Pair]:
    found = {memory.device: memory for memory in simulated_facts(request.param).memory}
    truths = simulated(request.param).truth.memory
    return [(truth, found[NONE if truth.device is None else truth.device]) for truth in truths]


def test_the_floors_and_the_peak_agree_to_the_byte(devices: list[Pair]) -> None:
    for truth, memory in devices:
        assert memory.floors.bytes.tolist() == truth.floor_bytes
        assert memory.peak.allocated_bytes == truth.peak_bytes
        assert max(0, memory.peak.reserved_at_peak_bytes) == truth.peak_reserved_bytes
        assert memory.capacity_bytes == truth.capacity_bytes


def test_nothing_at_the_peak_has_a_wrong_kind(devices: list[Pair]) -> None:
    """Unknown memory may be of any kind: memory that lives to the end does not show what it was for."""
    for truth, memory in devices:
        found = {kind.value: size for kind, size in memory.peak.kinds.items()}
        unknown = found.pop("unknown", 0)
        missing = {kind: size - found.pop(kind, 0) for kind, size in truth.peak_kinds.items()}
        assert found == {}
        assert min(missing.values()) >= 0
        assert sum(missing.values()) == unknown
        if truth.behaviour != "leak":
            assert {kind for kind, size in missing.items() if size} <= UNNAMED
