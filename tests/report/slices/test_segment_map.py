"""The map of segments: conserved against the curve, and against what the builder did, at any moment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.memory_slice import prepare_stacks
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.report.slices.segment_map import prepare_segments, slice_segments
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder, TraceBuilder

MIB = 1 << 20


def prepared(path: Path) -> Prepared:
    facts = Facts(read_trace(str(path)))
    return prepare_memory(facts) | prepare_stacks(facts) | prepare_segments(facts)


def boxes(found: pb.SegmentMap) -> list[tuple[int, float, float]]:
    return list(zip(found.box_row, found.box_offset, found.box_requested, strict=True))


def stack(found: pb.SegmentMap, box: int) -> list[str]:
    frames, node = [], found.box_node[box]
    while node >= 0:
        frames.append(found.names[found.node_name[node]])
        node = found.node_parent[node]
    return frames


def test_a_moment_has_its_segments_and_what_is_in_them(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    large = snapshot.segment(20 * MIB, at=0)
    first = snapshot.allocate(4 * MIB, at=10, stack=["train.py(3): main", "train.py(9): forward"])
    snapshot.allocate(2 * MIB, at=20)
    small = snapshot.segment(2 * MIB, at=25)
    snapshot.free(first, at=30)
    snapshot.give_back(small, at=40)
    arrays = prepared(snapshot.write(tmp_path))
    before = slice_segments(arrays, None, 20)
    assert [(row.address, row.bytes, row.blocks) for row in before.rows] == [(hex(large), 20 * MIB, 2)]
    assert boxes(before) == [(0, 0, 4 * MIB), (0, 4 * MIB, 2 * MIB)]
    assert (before.box_made_us[0], before.box_freed_us[0], before.box_freed_us[1]) == (10, 30, -1)
    assert stack(before, 0) == ["train.py(9): forward", "train.py(3): main"]
    both = slice_segments(arrays, 0, 30)
    assert [row.bytes for row in both.rows] == [20 * MIB, 2 * MIB]
    assert (both.used_bytes, both.inactive_bytes, both.free_bytes) == (2 * MIB, 18 * MIB, 2 * MIB)
    assert both.rows[0].largest_free_bytes == 14 * MIB
    assert [row.bytes for row in slice_segments(arrays, 0, None).rows] == [20 * MIB]


def test_a_segment_that_grows_stays_one(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    address = snapshot.segment(20 * MIB, at=0, expandable=True)
    snapshot.allocate(3 * MIB, at=1)
    # The driver maps more at its end.
    whole = snapshot.segments[0]
    whole.bytes += 10 * MIB
    whole.blocks[-1].bytes += 10 * MIB
    snapshot._entry(0, "segment_map", address + 20 * MIB, 10 * MIB, 50, [])
    arrays = prepared(snapshot.write(tmp_path))
    assert [row.bytes for row in slice_segments(arrays, 0, 20).rows] == [20 * MIB]
    assert [(row.bytes, row.expandable) for row in slice_segments(arrays, 0, 60).rows] == [(30 * MIB, True)]


def test_memory_from_before_the_recording_is_there(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(20 * MIB, at=0)
    old = snapshot.allocate(MIB, at=1)
    snapshot.allocate(2 * MIB, at=2)
    snapshot.allocate(MIB, at=40)
    snapshot.free(old, at=50)
    snapshot.forget(3)
    found = slice_segments(prepared(snapshot.write(tmp_path)), 0, 0)
    assert boxes(found) == [(0, 0, MIB), (0, MIB, 2 * MIB), (0, 3 * MIB, MIB)]
    assert list(zip(found.box_made_us, found.box_freed_us, strict=True)) == [(-1, 10), (-1, -1), (0, -1)]


def test_private_pools_are_numbered(tmp_path: Path) -> None:
    import pickle

    snapshot = SnapshotBuilder()
    for size in (8, 6, 4):
        snapshot.segment(size * MIB, at=0)
    document = snapshot.document()
    for segment, pool in zip(document["segments"], [(0, 0), (0, 7), (0, 3)], strict=True):
        segment["segment_pool_id"] = pool
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document))
    assert [row.pool for row in slice_segments(prepared(path), 0, None).rows] == [0, 1, 2]


def test_small_neighbors_are_one_box(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(1024 * MIB, at=0)
    for at in range(1000):
        snapshot.allocate(512, at=at + 1)
    found = slice_segments(prepared(snapshot.write(tmp_path)), 0, None)
    assert found.rows[0].blocks == 1000
    assert (list(found.box_count), list(found.box_requested)) == ([1000], [512_000])


def largest_free(snapshot: SnapshotBuilder) -> int:
    return max((b.bytes for s in snapshot.segments for b in s.blocks if b.state == "inactive"), default=0)


def empty_segments(snapshot: SnapshotBuilder) -> list[int]:
    """Addresses of the segments that have nothing in use."""
    return [s.address for s in snapshot.segments if all(b.state == "inactive" for b in s.blocks)]


def random_history(chance: random.Random) -> tuple[SnapshotBuilder, list[tuple[int, int, int, int]]]:
    """A snapshot, and after each event its time, the used and reserved bytes, and the number of segments."""
    snapshot = SnapshotBuilder()
    live: list[int] = []
    truth: list[tuple[int, int, int, int]] = []
    for at in range(1, 400):
        size = chance.randrange(512, 3 * MIB)
        empty = empty_segments(snapshot)
        if largest_free(snapshot) < size + 512:
            snapshot.segment(chance.choice([4, 20]) * MIB, at=at)
        elif empty and chance.random() < 0.3:
            snapshot.give_back(empty[0], at=at)
        elif live and chance.random() < 0.5:
            snapshot.free(live.pop(chance.randrange(len(live))), at=at)
        else:
            live.append(snapshot.allocate(size, at=at))
        truth.append((at, snapshot.used(), snapshot.reserved(), len(snapshot.segments)))
    return snapshot, truth


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_random_histories_agree_with_what_happened(tmp_path: Path, seed: int) -> None:
    snapshot, truth = random_history(random.Random(seed))
    arrays = prepared(snapshot.write(tmp_path))
    start = truth[0][0]
    for at, used, reserved, segments in truth:
        found = slice_segments(arrays, 0, at - start)
        assert (found.used_bytes, found.bytes, found.segments, found.outside_bytes) == (
            used,
            reserved,
            segments,
            0,
        )
        assert sum(found.box_requested) == used
        assert found.used_bytes + found.inactive_bytes + found.free_bytes == found.bytes


def test_traces_have_no_segments(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.thread().alloc(MIB, at=1)
    with pytest.raises(UsageError, match="snapshot"):
        slice_segments(prepared(trace.write(tmp_path)), None, None)


def test_real_snapshots_agree_with_their_curve(shared_traces: Path) -> None:
    path = shared_traces.parent / "snapshots" / "many_segments_forward.pickle"
    if not path.exists():
        pytest.skip("no real snapshots here")
    facts = Facts(read_trace(str(path)))
    arrays = prepare_memory(facts) | prepare_stacks(facts) | prepare_segments(facts)
    (device,) = facts.memory
    curve = device.curve
    for at in range(0, len(curve.time_ns), len(curve.time_ns) // 20):
        last = int((curve.time_ns <= curve.time_ns[at]).nonzero()[0][-1])
        found = slice_segments(arrays, None, curve.time_ns[at] / 1e3)
        assert (found.used_bytes, found.bytes) == (curve.allocated[last], curve.reserved[last])
