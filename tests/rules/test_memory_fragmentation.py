from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.memory_fragmentation import check
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.conftest import SHARED_TRACES
from tests.rules.memory_stage import MIB, job, only
from tests.rules.stage import cannot_tell, facts_of, healthy, is_clear, without_gpu

PEAK = 40 * MIB


@pytest.mark.parametrize(
    ("reserved", "capacity", "fires"),
    [
        (60, 100, True),
        (59, 100, False),  # less than 1.5 times the peak
        (60, 121, False),  # less than half of the device
        (60, 119, True),
        (60, 0, False),  # of an unknown device, 20 MiB are nothing
    ],
)
def test_it_fires_for_much_reserved_and_little_used(
    reserved: int, capacity: int, fires: bool, tmp_path: Path
) -> None:
    trace = job([0] * 5, taken=PEAK - 8 * MIB, reserved=reserved * MIB, device_bytes=capacity * MIB)
    answer = check(facts_of(trace, tmp_path))
    if not fires:
        assert is_clear(answer)
        return
    found = only(answer)
    assert found.cost_bytes == reserved * MIB - PEAK
    assert "expandable_segments" in found.fix.code


def test_of_an_unknown_device_a_gib_counts(tmp_path: Path) -> None:
    trace = job([0] * 5, taken=PEAK, reserved=1_100 * MIB, devices=())
    assert only(check(facts_of(trace, tmp_path))).cost_bytes == 1_100 * MIB - PEAK - 8 * MIB


def test_graphs_have_pools_of_their_own(tmp_path: Path) -> None:
    trace = job([0] * 5, taken=PEAK - 8 * MIB, reserved=80 * MIB, device_bytes=100 * MIB)
    trace.thread().graph_launch([("gemm", 300, 5)], at=290, us=5)
    assert "graph_pool_handle" in only(check(facts_of(trace, tmp_path))).fix.code


@pytest.mark.parametrize(("segment_mib", "segments", "fires"), [(20, 200, True), (4_000, 1, False)])
def test_a_snapshot_tells_pieces_from_one_large_rest(
    segment_mib: int, segments: int, fires: bool, tmp_path: Path
) -> None:
    snapshot = SnapshotBuilder()
    for _ in range(segments):
        snapshot.segment(segment_mib * MIB)
    for i in range(200):
        snapshot.allocate(12 * MIB, at=i)
    answer = check(Facts(read_trace(str(snapshot.write(tmp_path)))))
    assert is_clear(answer) is not fires
    if fires:
        assert only(answer).cost_bytes == 1_600 * MIB


def test_a_healthy_job_is_clear(tmp_path: Path) -> None:
    assert is_clear(check(facts_of(job([0] * 5, reserved=14 * MIB), tmp_path)))


def test_without_memory_gpu_or_totals_it_cannot_tell(tmp_path: Path) -> None:
    for number, trace in enumerate((healthy(), without_gpu(), job([0] * 5, generation="A"))):
        assert cannot_tell(check(facts_of(trace, tmp_path / str(number))))


def test_a_real_job_with_room_for_more_is_left_alone(shared_traces: Path) -> None:
    """1.93 times as much reserved as allocated, and two thirds of the GPU free."""
    (file,) = (SHARED_TRACES / "v100_ddp_memory").iterdir()
    assert is_clear(check(Facts(read_trace(str(file)))))
