from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.memory.memory_fragmentation import RULE
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.wording.quantity import ratio, size
from tests.builder import SnapshotBuilder
from tests.conftest import SHARED_TRACES
from tests.real_traces import real_facts
from tests.rules.memory_stage import MIB, job, only
from tests.rules.stage import cannot_tell, facts_of, figures, healthy, is_clear, without_gpu

PEAK = 40 * MIB


@pytest.mark.parametrize(
    ("reserved", "capacity", "severity"),
    [
        (60, 100, Severity.WARNING),
        (59, 100, None),  # less than 1.5 times the peak
        (60, 119, Severity.WARNING),
        (60, 121, Severity.INFO),  # less than half of the device
        (60, 199, Severity.INFO),
        (60, 201, None),  # the unused 20 MiB are less than a tenth
        (60, 0, None),  # without a capacity 20 MiB are too little
    ],
)
def test_unused_memory_is_a_warning_or_a_hint_on_a_device_with_room(
    reserved: int, capacity: int, severity: Severity | None, tmp_path: Path
) -> None:
    trace = job([0] * 5, taken=PEAK - 8 * MIB, reserved=reserved * MIB, device_bytes=capacity * MIB)
    answer = RULE.check(facts_of(trace, tmp_path))
    if severity is None:
        assert is_clear(answer)
        return
    found = only(answer)
    assert found.severity is severity
    assert found.cost_bytes == reserved * MIB - PEAK
    evidence = figures(found)
    assert evidence["Unused at the peak"][0] == size(found.cost_bytes)
    assert evidence["Reserved at the peak"][1] == ratio(reserved * MIB / PEAK, "the allocated memory")
    assert ("expandable_segments" in found.fix.code) is (severity is Severity.WARNING)


def test_without_a_capacity_one_gib_counts(tmp_path: Path) -> None:
    trace = job([0] * 5, taken=PEAK, reserved=1_100 * MIB, devices=())
    found = only(RULE.check(facts_of(trace, tmp_path)))
    assert found.cost_bytes == 1_100 * MIB - PEAK - 8 * MIB
    assert found.severity is Severity.WARNING


def test_cuda_graphs_are_advised_to_share_a_pool(tmp_path: Path) -> None:
    trace = job([0] * 5, taken=PEAK - 8 * MIB, reserved=80 * MIB, device_bytes=100 * MIB)
    trace.thread().graph_launch([("gemm", 300, 5)], at=290, us=5)
    assert "graph_pool_handle" in only(RULE.check(facts_of(trace, tmp_path))).fix.code


@pytest.mark.parametrize(
    ("segment_mib", "segments", "severity"), [(20, 200, Severity.WARNING), (4_000, 1, Severity.INFO)]
)
def test_a_snapshot_tells_fragments_from_one_large_free_block(
    segment_mib: int, segments: int, severity: Severity, tmp_path: Path
) -> None:
    snapshot = SnapshotBuilder()
    for _ in range(segments):
        snapshot.segment(segment_mib * MIB)
    for i in range(200):
        snapshot.allocate(12 * MIB, at=i)
    found = only(RULE.check(Facts(read_trace(str(snapshot.write(tmp_path))))))
    assert found.cost_bytes == 1_600 * MIB
    assert found.severity is severity


@pytest.mark.slow
@pytest.mark.parametrize(("asked_mib", "fires"), [(1_800, True), (1_999, False)])
def test_an_allocation_that_fails_despite_enough_unused_memory_is_found(
    asked_mib: int, fires: bool, tmp_path: Path
) -> None:
    """After the peak, at which all reserved memory is in use, two of three blocks are freed. Where what is
    asked for is nearly all of the rest, GD402 says that it is too little, and no arrangement helps."""
    snapshot = SnapshotBuilder()
    for i in range(150):
        snapshot.segment(20 * MIB, at=i)
    pieces = [snapshot.allocate(5 * MIB, at=200 + i) for i in range(600)]
    for i, piece in enumerate(pieces):
        if i % 3:
            snapshot.free(piece, at=1_000 + i)
    snapshot.out_of_memory(asked_mib * MIB, at=2_000)
    answer = RULE.check(Facts(read_trace(str(snapshot.write(tmp_path)))))
    assert is_clear(answer) is not fires
    if fires:
        found = only(answer)
        assert found.severity is Severity.WARNING
        assert found.cost_bytes == 2_000 * MIB
        assert "expandable_segments" in found.fix.code
        evidence = figures(found)
        assert evidence["Unused at the failure"] == (size(2_000 * MIB),)
        assert evidence["Requested at the failure"] == (size(asked_mib * MIB),)


def test_a_healthy_job_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(job([0] * 5, reserved=14 * MIB), tmp_path)))


def test_cannot_tell_without_memory_gpu_or_totals(tmp_path: Path) -> None:
    for number, trace in enumerate((healthy(), without_gpu(), job([0] * 5, generation="A"))):
        assert cannot_tell(RULE.check(facts_of(trace, tmp_path / str(number))))


def test_a_real_job_with_room_for_more_gets_a_hint(shared_traces: Path) -> None:
    """Reserved is 1.93 times the allocated memory, and two thirds of the GPU are free."""
    (file,) = (SHARED_TRACES / "v100_ddp_memory").iterdir()
    assert only(RULE.check(real_facts(file))).severity is Severity.INFO


@pytest.mark.parametrize("name", ["h100_owlv2", "h100_timesformer", "a100_particle_transformer"])
def test_real_jobs_that_use_their_memory_are_clear(name: str, shared_traces: Path) -> None:
    (file,) = (SHARED_TRACES / name).iterdir()
    assert is_clear(RULE.check(real_facts(file)))
