"""Memory on real traces, compared with a replay of the raw file event by event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tests.facts.memory.memory_replay import replay
from tests.real_traces import real_facts

pytestmark = pytest.mark.real

WITH_TOTALS = [
    "v100_ddp_memory",
    "h100_owlv2",
    "a100_particle_transformer",
    "mi300_falconsai",
    "h100_transformer_two_windows",
    "cpu_torch213/leaky",
    "cpu_torch213/python_export",
]
OLD = ["v100_resnet50_workers0", "v100_resnet50_workers4"]


def files(shared_traces: Path, folder: str) -> list[Path]:
    found = sorted((shared_traces / folder).glob("*.json*"))
    assert found
    return found


def alive_after_each(memory: DeviceMemory) -> list[int]:
    """Return the live bytes after each of the curve's events by the allocations, memory from before
    included."""
    own, change = memory.allocations, np.zeros(len(memory.curve), np.int64)
    np.add.at(change, own.position, own.bytes)
    ended = own.freed != NONE
    np.add.at(change, own.freed[ended], -own.bytes[ended])
    np.add.at(change, own.early_free, -own.early_free_bytes)
    return [memory.curve.start_bytes + int(size) for size in np.cumsum(change)]


@pytest.mark.parametrize("folder", WITH_TOTALS)
def test_curve_and_allocations_equal_a_replay(shared_traces: Path, folder: str) -> None:
    for path in files(shared_traces, folder):
        replayed = replay(path)
        found = real_facts(path).memory
        assert {memory.device for memory in found} == set(replayed)
        for memory in found:
            other = replayed[memory.device]
            assert not memory.curve.relative
            assert memory.curve.allocated.tolist() == other.totals
            assert alive_after_each(memory) == other.totals
            assert memory.allocations.early_free_bytes.tolist() == other.early_frees
            kept = int(memory.allocations.bytes[memory.allocations.freed == NONE].sum())
            assert kept == other.alive[-1]


@pytest.mark.parametrize("folder", OLD)
def test_without_totals_the_curve_is_the_sum_of_the_bytes(shared_traces: Path, folder: str) -> None:
    (path,) = files(shared_traces, folder)
    replayed = replay(path)
    for memory in real_facts(path).memory:
        counted = replayed[memory.device].counted
        assert memory.curve.relative
        assert memory.curve.allocated.tolist() == [size - min(0, *counted) for size in counted]
        assert not memory.allocations.paired


def test_mapped_memory_of_loader_workers_has_no_totals_of_its_allocator(shared_traces: Path) -> None:
    for path in files(shared_traces, "cpu_torch213/dl_workers2"):
        (memory,) = real_facts(path).memory
        counted = replay(path)[NONE].counted
        assert memory.curve.allocated.tolist() == [memory.curve.start_bytes + size for size in counted]
        assert memory.curve.start_bytes + counted[-1] == replay(path)[NONE].totals[-1]


@pytest.mark.parametrize("folder", WITH_TOTALS + OLD + ["cpu_torch213/dl_workers2"])
def test_kinds_and_owners_add_up_to_the_peak(shared_traces: Path, folder: str) -> None:
    for path in files(shared_traces, folder):
        for memory in real_facts(path).memory:
            peak = memory.peak
            assert peak.allocated_bytes == int(memory.curve.allocated.max())
            assert (
                sum(peak.kinds.values()) == sum(owner.bytes for owner in peak.owners) == peak.allocated_bytes
            )


@pytest.mark.parametrize("folder", WITH_TOTALS + OLD)
def test_a_floor_is_the_lowest_of_its_step(shared_traces: Path, folder: str) -> None:
    for path in files(shared_traces, folder):
        for memory in real_facts(path).memory:
            periods = memory.floors.periods
            lowest = [
                lowest_in(memory.curve, int(start), int(end))
                for start, end in zip(periods.start_ns, periods.end_ns, strict=True)
            ]
            assert memory.floors.bytes.tolist() == lowest


def lowest_in(curve: Curve, start_ns: int, end_ns: int) -> int:
    """Return the lowest value in [start_ns, end_ns), the value at its start included."""
    values: list[tuple[int, int]] = list(zip(curve.time_ns.tolist(), curve.allocated.tolist(), strict=True))
    before = [size for time, size in values if time < start_ns]
    inside = [size for time, size in values if start_ns <= time < end_ns]
    return min([(before or [curve.start_bytes])[-1], *inside])


def test_a_real_leak_has_its_slope_and_its_line(shared_traces: Path) -> None:
    # Each step retains its batch (2,048 bytes), the activations of one layer (4,096) and its outputs (320).
    for path in files(shared_traces, "cpu_torch213/leaky"):
        (memory,) = real_facts(path).memory
        assert memory.trend is not None
        assert (memory.trend.per_unit, memory.trend.steps) == (6464.0, 2)
        assert [(site.operator, site.per_unit) for site in memory.sites] == [
            ("aten::clamp_min", 4096.0),
            ("aten::cat", 2048.0),
            ("aten::addmm", 320.0),
        ]
        for site in memory.sites:
            assert site.frame is not None
            assert (site.frame.file, site.frame.function) == ("gen.py", "run")
            assert not site.replaced


@pytest.mark.parametrize("folder", [*WITH_TOTALS[:5], *OLD, "cpu_torch213/python_export"])
def test_jobs_without_a_leak_have_no_growing_site(shared_traces: Path, folder: str) -> None:
    for path in files(shared_traces, folder):
        for memory in real_facts(path).memory:
            assert memory.sites == []
            assert memory.trend is None or memory.trend.per_unit == 0


def test_steady_training_frees_its_activations_in_backward(shared_traces: Path) -> None:
    (path,) = files(shared_traces, "v100_ddp_memory")
    gpu = real_facts(path).memory[0]
    assert (gpu.device, len(gpu.curve)) == (1, 26_770)
    assert gpu.peak.phase.label == "backward"
    assert {kind.value for kind in gpu.peak.kinds} == {"before", "activation", "temporary"}
