"""The recorded allocations, replayed through a model of the caching allocator."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.caching_allocator import CachingAllocator, DoesNotFit
from tb_gpudiag.facts.memory.fitting import Fit
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.memory.memory_fragmentation import RULE
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.conftest import SHARED_TRACES
from tests.not_compiled import not_compiled
from tests.rules.memory_stage import only
from tests.with_each import with_each

MIB = 1 << 20
GIB = 1 << 30
PLAIN = not_compiled("tb_gpudiag.facts.memory.caching_allocator")


@with_each(
    ("requested", "reserved"),
    [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (11 * MIB, 12), (21 * MIB, 22)],
)
def test_the_driver_is_asked_for_torchs_sizes(requested: int, reserved: int) -> None:
    allocator = CachingAllocator(GIB)
    allocator.allocate(0, requested)
    assert allocator.reserved_bytes == reserved * MIB


def test_freed_neighbors_become_one_block() -> None:
    allocator = CachingAllocator(20 * MIB)
    for number in range(4):
        allocator.allocate(number, 5 * MIB)
    for number in (0, 2, 1, 3):
        allocator.free(number)
    allocator.allocate(4, 19 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_a_segment_in_use_is_not_returned_and_expandable_ones_join_holes() -> None:
    """Requests of 12 MiB fit between two segments, but not into holes of 9 MiB."""

    def run(allocator: CachingAllocator) -> None:
        for number in range(0, 30, 3):
            for part, size in enumerate((9, 2, 9)):
                allocator.allocate(number + part, size * MIB)
        for number in range(0, 30, 3):
            allocator.free(number)
            allocator.free(number + 2)
        for number in range(30, 40):
            allocator.allocate(number, 12 * MIB)

    run(CachingAllocator(250 * MIB, expandable=True))
    with pytest.raises(DoesNotFit):
        run(CachingAllocator(250 * MIB))
    run(CachingAllocator(320 * MIB))


def test_an_expandable_segment_maps_its_holes_again() -> None:
    """The driver gets back what is free, in parts of 20 MiB, and gives it again for the next request."""
    allocator = CachingAllocator(100 * MIB, expandable=True)
    for number in range(5):
        allocator.allocate(number, 20 * MIB)
    for number in (1, 2, 4):
        allocator.free(number)
    allocator.return_cached()
    assert allocator.reserved_bytes == 40 * MIB
    first = allocator.allocate(5, 35 * MIB)
    assert allocator.reserved_bytes == 80 * MIB
    assert allocator.allocate(6, 5 * MIB) == first + 35 * MIB
    with pytest.raises(DoesNotFit):
        allocator.allocate(7, 21 * MIB)


def what_happens(allocator: Any, seed: int) -> list[tuple[int, int]]:
    """Allocate and free at random, with two owners, until something does not fit. Return each address, and
    what is reserved then."""
    random, live, found = Random(seed), list[int](), list[tuple[int, int]]()
    with suppress(DoesNotFit, PLAIN.DoesNotFit):
        for number in range(300):
            if live and random.random() < 0.45:
                allocator.free(live.pop(random.randrange(len(live))))
            size = random.choice((512, 300_000, random.randrange(1, 60 * MIB)))
            address = allocator.allocate(number, size, random.randrange(2))
            live.append(number)
            found.append((address, allocator.reserved_bytes))
    return found


@given(st.integers(0, 2**32), st.integers(200, 2_000), st.booleans())
def test_it_does_the_same_with_a_compiler_and_without(seed: int, mib: int, expandable: bool) -> None:
    compiled = CachingAllocator(mib * MIB, private=frozenset({1}), expandable=expandable)
    plain = PLAIN.CachingAllocator(mib * MIB, private=frozenset({1}), expandable=expandable)
    assert what_happens(compiled, seed) == what_happens(plain, seed)


def fragmented() -> SnapshotBuilder:
    """60 segments of 42 MiB, each with a free block of 40 MiB, and 30 requests of 41 MiB, for each of which
    the driver gives a new segment."""
    snapshot = SnapshotBuilder()
    for _ in range(60):
        snapshot.segment(42 * MIB, at=0)
    blocks = [(snapshot.allocate(40 * MIB, at=1), snapshot.allocate(2 * MIB, at=1)) for _ in range(60)]
    for large, _ in blocks:
        snapshot.free(large, at=2)
    snapshot.traces = [[] for _ in snapshot.traces]  # the history begins here
    for number in range(30):
        snapshot.segment(42 * MIB, at=10 + 10 * number)
        snapshot.allocate(41 * MIB, at=11 + 10 * number, stack=["train.py(5): fit"])
    return snapshot


def fit_of(snapshot: SnapshotBuilder, folder: Path) -> Fit:
    (memory,) = Facts(read_trace(str(snapshot.write(folder)))).memory
    assert memory.fit is not None
    return memory.fit


def test_fragments_cost_what_expandable_segments_would_save(tmp_path: Path) -> None:
    fit = fit_of(fragmented(), tmp_path)
    assert fit.error_bytes == 0
    assert not fit.whole
    assert 89 * 42 * MIB < fit.needs_bytes <= 90 * 42 * MIB  # partly used segments are not returned
    assert fit.expandable_needs_bytes <= 1.15 * (60 * 2 + 30 * 41) * MIB
    found = only(RULE.check(Facts(read_trace(str(fragmented().write(tmp_path))))))
    assert found.severity is Severity.WARNING
    assert "with expandable segments in at least" in found.summary


def test_cached_segments_cost_nothing_because_they_are_returned(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    for _ in range(100):
        snapshot.segment(20 * MIB, at=0)
    snapshot.traces = [[] for _ in snapshot.traces]
    for number in range(30):
        snapshot.segment(42 * MIB, at=10 + 10 * number)
        snapshot.allocate(41 * MIB, at=11 + 10 * number, stack=["train.py(5): fit"])
    fit = fit_of(snapshot, tmp_path)
    assert 30 * 42 * MIB <= fit.needs_bytes <= 32 * 42 * MIB + 2000 * MIB / 16
    found = only(RULE.check(Facts(read_trace(str(snapshot.write(tmp_path))))))
    assert found.severity is Severity.INFO


def test_a_segment_whose_address_the_driver_gives_again_was_there_before(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(20 * MIB, at=0)
    cached = snapshot.segment(42 * MIB, at=0)
    snapshot.allocate(15 * MIB, at=1)
    snapshot.traces = [[] for _ in snapshot.traces]
    snapshot.allocate(3 * MIB, at=3)
    snapshot.give_back(cached, at=5)
    snapshot.segment(42 * MIB, at=10, address=cached)
    snapshot.allocate(41 * MIB, at=11)
    fit = fit_of(snapshot, tmp_path)
    assert fit.error_bytes == fit.misplaced == 0
    assert fit.needs_bytes == (20 + 42) * MIB


def test_a_history_that_contradicts_the_allocator_is_not_replayed(tmp_path: Path) -> None:
    """The driver gave a segment although a free block would have fit."""
    snapshot = SnapshotBuilder()
    snapshot.segment(42 * MIB, at=0)
    snapshot.traces = [[] for _ in snapshot.traces]
    snapshot.segment(4 * GIB, at=1000)
    snapshot.allocate(41 * MIB, at=1001)
    (memory,) = Facts(read_trace(str(snapshot.write(tmp_path)))).memory
    assert memory.fit is None


def test_blocks_that_overlap_are_not_replayed(tmp_path: Path) -> None:
    snapshot = fragmented()
    document = snapshot.document()
    document["segments"][0]["blocks"][1]["address"] -= 41 * MIB
    file = tmp_path / "overlap.pickle"
    file.write_bytes(pickle.dumps(document))
    (memory,) = Facts(read_trace(str(file))).memory
    assert memory.fit is None


@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    [
        "small.pickle",
        "reserved_not_used.pickle",
        "many_segments_forward.pickle",
        "compile_context_forward.pickle",
        "memory_viz_page.html",
    ],
)
def test_replayed_unchanged_real_snapshots_are_the_same(name: str) -> None:
    """At every moment as much is reserved, and each allocation is at its address."""
    file = SHARED_TRACES.parent / "snapshots" / name
    if not file.exists():
        pytest.skip("no real snapshots")
    (memory,) = Facts(read_trace(str(file))).memory
    assert memory.fit is not None
    assert memory.fit.error_bytes == memory.fit.misplaced == 0
    assert memory.fit.expandable_needs_bytes <= memory.fit.needs_bytes <= memory.peak_reserved_bytes


def test_tensors_that_grow_fit_into_little_more_than_they_take(tmp_path: Path) -> None:
    """Without a limit, the allocator reserves each size anew: 1.3 GiB for 220 MiB."""
    snapshot, last, before = SnapshotBuilder(), 0, 0
    for i in range(1, 12):
        segment = snapshot.segment(20 * i * MIB, at=10 * i)
        new = snapshot.allocate(20 * i * MIB, at=10 * i + 1)
        if last:
            snapshot.free(last, at=10 * i + 2)
            snapshot.give_back(before, at=10 * i + 3)
        last, before = new, segment
    fit = Facts(read_trace(str(snapshot.write(tmp_path)))).memory[0].fit
    assert fit is not None
    assert fit.expandable_needs_bytes <= fit.needs_bytes <= 450 * MIB


def test_each_stream_has_blocks_of_its_own() -> None:
    allocator = CachingAllocator(60 * MIB)
    allocator.allocate(0, 15 * MIB, owner=1)
    allocator.free(0)
    assert allocator.allocate(1, 15 * MIB, owner=2) != allocator.allocate(2, 15 * MIB, owner=1)
    assert allocator.reserved_bytes == 32 * MIB


def test_a_private_pool_keeps_what_it_cached() -> None:
    allocator = CachingAllocator(40 * MIB, private=frozenset({1}))
    for number, owner in enumerate((0, 1)):
        allocator.allocate(number, 20 * MIB, owner)
        allocator.free(number)
    allocator.return_cached()
    assert allocator.reserved_bytes == 20 * MIB
    with pytest.raises(DoesNotFit):
        allocator.allocate(2, 30 * MIB)


@pytest.mark.parametrize("key", ["stream", "segment_pool_id"])
def test_streams_and_private_pools_are_replayed(key: str, tmp_path: Path) -> None:
    """The last allocation takes the higher one of two free segments: the other one is not its own."""
    snapshot = SnapshotBuilder()
    first = snapshot.segment(12 * MIB, at=0)
    one = snapshot.allocate(12 * MIB, at=1)
    second = snapshot.segment(12 * MIB, at=2)
    other = snapshot.allocate(12 * MIB, at=3)
    snapshot.free(one, at=4)
    snapshot.free(other, at=5)
    snapshot.segments.reverse()
    assert snapshot.allocate(12 * MIB, at=6) == second > first
    document = snapshot.document()
    own = next(segment for segment in document["segments"] if segment["address"] == second)
    own[key] = 7 if key == "stream" else (0, 1)
    for entry in document["device_traces"][0]:
        if entry["addr"] == second and key == "stream":
            entry["stream"] = 7
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document))
    fit = Facts(read_trace(str(path))).memory[0].fit
    assert fit is not None
    assert (fit.error_bytes, fit.misplaced, fit.allocations) == (0, 0, 3)


def test_a_request_that_is_far_too_large_needs_at_least_itself(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(20 * MIB, at=0)
    snapshot.allocate(5 * MIB, at=1)
    snapshot.out_of_memory(300 * GIB, at=2, device_free=GIB)
    fit = Facts(read_trace(str(snapshot.write(tmp_path)))).memory[0].fit
    assert fit is not None
    assert 300 * GIB <= fit.needs_bytes < 310 * GIB
