"""CUDA memory snapshots: the memory curve and the stacks."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import NotATrace, TraceError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import DeviceType, MemoryAction
from tests.builder import SnapshotBuilder
from tests.builder.snapshot import START_US, Shape
from tests.with_each import with_each

MB = 1 << 20
SHAPES: tuple[Shape, ...] = ("new", "without times", "1.13")
MOVES = (MemoryAction.ALLOCATE, MemoryAction.FREE)


def read(snapshot: SnapshotBuilder, folder: Path, shape: Shape = "new") -> Trace:
    return read_trace(str(snapshot.write(folder, shape=shape)))


def read_document(document: Any, folder: Path) -> Trace:
    path = folder / "dump_snapshot.pickle"
    path.write_bytes(pickle.dumps(document))
    return read_trace(str(path))


def training(steps: int = 4) -> SnapshotBuilder:
    """Record weights, and in each step an activation that is freed and a result that stays."""
    snapshot = SnapshotBuilder()
    snapshot.segment(20 * MB, at=0)
    snapshot.allocate(3 * MB, at=1, stack=["train.py(3): main", "model.py(7): __init__"])
    for step in range(steps):
        begin = 1_000 * (step + 1)
        snapshot.step(step, at=begin, us=1_000)
        activation = snapshot.allocate(
            2 * MB, at=begin + 10, stack=["train.py(9): main", "model.py(20): forward"]
        )
        snapshot.allocate(1_000, at=begin + 20, stack=["train.py(9): main", "train.py(12): keep"])
        snapshot.free(activation, at=begin + 500)
    return snapshot


def random_story(seed: int) -> tuple[SnapshotBuilder, list[tuple[int, int, int]]]:
    """Record random entries. Return the snapshot, and (device, allocated, reserved) after each row."""
    chance = random.Random(seed)
    snapshot = SnapshotBuilder(devices=2)
    totals: list[tuple[int, int, int]] = []
    alive: list[tuple[int, int]] = []
    segments: list[tuple[int, int]] = []
    for at in range(300):
        device = chance.randrange(2)
        if not any(d == device for d, _ in segments) or chance.random() < 0.03:
            segments.append((device, snapshot.segment(100 * MB, at=at, device=device)))
        elif chance.random() < 0.55:
            size = chance.choice([100, 512, 5_000, MB, 3 * MB + 1])
            alive.append((device, snapshot.allocate(size, at=at, device=device, stack=[f"a.py({size}): f"])))
        elif own := [pair for pair in alive if pair[0] == device]:
            pair = chance.choice(own)
            alive.remove(pair)
            snapshot.free(pair[1], at=at)
        else:
            snapshot.out_of_memory(1 << 40, at=at, device=device)
        totals.append((device, snapshot.used(device), snapshot.reserved(device)))
    return snapshot, totals


@with_each("seed", range(5))
def test_totals_equal_a_replay_from_the_start(seed: int, tmp_path: Path) -> None:
    snapshot, totals = random_story(seed)
    memory = read(snapshot, tmp_path).memory
    rows = list(zip(memory.device.tolist(), memory.allocated.tolist(), memory.reserved.tolist(), strict=True))
    assert rows == totals
    assert memory.found is not None
    assert not memory.found.any()


@pytest.mark.slow
@with_each("seed", range(5))
@with_each("entries", [0, 1, 20, 60])
def test_a_history_cut_by_its_ring_buffer_has_the_same_end_of_the_curve(
    seed: int, entries: int, tmp_path: Path
) -> None:
    snapshot, totals = random_story(seed)
    whole = [[row for row in totals if row[0] == device] for device in range(2)]
    snapshot.forget(entries)
    memory = read(snapshot, tmp_path).memory
    assert memory.found is not None
    for device in range(2):
        own = memory.device == device
        recorded = own & ~memory.found
        allocated, reserved = memory.allocated[recorded].tolist(), memory.reserved[recorded].tolist()
        last = whole[device][len(whole[device]) - len(allocated) :]
        assert [(device, *row) for row in zip(allocated, reserved, strict=True)] == last
        assert memory.allocated[own][-1] == snapshot.used(device)
        # Older live blocks come first, and add up.
        change = np.where(np.isin(memory.action[own], MOVES), memory.bytes[own], 0)
        assert (np.diff(memory.allocated[own]) == change[1:]).all()
        assert memory.allocated[own][0] - change[0] >= 0


@with_each("shape", SHAPES)
def test_every_format_of_the_file_gives_the_same_curve_and_stacks(shape: Shape, tmp_path: Path) -> None:
    snapshot = training()
    trace = read(snapshot, tmp_path, shape)
    memory, segments = trace.memory, trace.segments
    assert trace.kind == "snapshot"
    assert segments is not None
    assert memory.allocated[-1] == snapshot.used() == 3 * MB + 4 * 1_024
    assert segments.block_requested_bytes.sum() == 3 * MB + 4_000
    assert memory.allocated.max() == 5 * MB + 4 * 1_024
    assert (memory.reserved == 20 * MB).all()
    assert set(memory.device_type) == {DeviceType.CUDA}
    kept = memory.stacks[memory.stack[memory.bytes == 1_024][0]]
    assert kept == "train.py(9): main\ntrain.py(12): keep"
    assert segments.block_used.sum() == 5
    assert segments.block_bytes.sum() == segments.bytes.sum() == 20 * MB
    used = segments.block_stack[segments.block_used]
    assert [memory.stacks[i].splitlines()[-1] for i in used[:2]] == [
        "model.py(7): __init__",
        "train.py(12): keep",
    ]


def test_times_start_at_the_first_entry_and_absolute_time_is_kept(tmp_path: Path) -> None:
    trace = read(training(steps=1), tmp_path)
    assert trace.start_ns == START_US * 1_000
    assert trace.memory.time_ns.tolist() == [0, 1_000, 1_010_000, 1_020_000, 1_500_000]


def test_without_times_the_order_is_kept_and_noted(tmp_path: Path) -> None:
    trace = read(training(steps=1), tmp_path, "without times")
    assert (np.diff(trace.memory.time_ns) > 0).all()
    assert any("no times" in note for note in trace.notes)
    assert len(trace.events) == 0  # marks have times, and the history has none


def test_marks_become_steps(tmp_path: Path) -> None:
    snapshot = training()
    snapshot.mark("Optimizer.step#Adam.step", at=1_600, us=100)
    snapshot.annotations.append(
        {"name": "ProfilerStep#9", "stage": "START", "device": 0, "time_us": START_US + 6_000}
    )
    steps = Facts(read(snapshot, tmp_path)).steps
    assert steps.names == [f"ProfilerStep#{i}" for i in range(4)]
    assert steps.start_ns.tolist() == [1_000_000, 2_000_000, 3_000_000, 4_000_000]
    assert steps.end_ns.tolist() == [2_000_000, 3_000_000, 4_000_000, 5_000_000]


def test_a_mark_that_no_job_lives_to_end_is_skipped(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.mark("served", at=0, us=10 * 365 * 24 * 3_600 * 10**6)
    assert len(read(snapshot, tmp_path).events) == 0


def test_memory_older_than_the_history_is_found_with_its_stack(tmp_path: Path) -> None:
    snapshot = training()
    snapshot.forget(8)  # the entries of two steps
    memory = read(snapshot, tmp_path).memory
    assert memory.found is not None
    found = np.flatnonzero(memory.found)
    assert memory.time_ns[found].tolist() == [0, 0, 0]
    assert memory.bytes[found].tolist() == [3 * MB, 1_024, 1_024]
    assert "model.py(7): __init__" in memory.stacks[memory.stack[found[0]]]


def test_a_state_without_a_history_is_read(tmp_path: Path) -> None:
    snapshot = training()
    snapshot.forget(0)
    for shape in ("new", "segments only"):
        trace = read(snapshot, tmp_path, shape)
        assert trace.memory.allocated[-1] == snapshot.used()
        assert trace.memory.found is not None
        assert trace.memory.found.all()
        assert trace.events_read == 0


def test_pinned_memory_of_the_host_is_said(tmp_path: Path) -> None:
    """torch 2.14 adds the allocator of pinned memory to a snapshot."""
    document, pinned = training().document(), SnapshotBuilder()
    pinned.segment(64 * MB, at=0)
    pinned.allocate(48 * MB, at=1)
    document["host_segments"] = pinned.document()["segments"]
    trace = read_document(document, tmp_path)
    assert any("48 MiB in use, 64 MiB reserved" in note for note in trace.notes)
    plain = read(training(), tmp_path)
    assert trace.memory.allocated.tolist() == plain.memory.allocated.tolist()
    others: list[Any] = [5, [5], None, {}]
    for other in others:
        assert read_document({**document, "host_segments": other}, tmp_path).memory.allocated.size


def test_memory_that_waits_for_a_stream_is_used(tmp_path: Path) -> None:
    snapshot = training(steps=1)
    address = snapshot.allocate(MB, at=5_000)
    snapshot.free(address, at=5_001, completed=False)
    memory = read(snapshot, tmp_path).memory
    assert memory.allocated[-1] == snapshot.used() == 4 * MB + 1_024


def test_out_of_memory_has_the_requested_size_and_changes_no_total(tmp_path: Path) -> None:
    snapshot = training(steps=1)
    snapshot.out_of_memory(7 * MB, at=9_000, device_free=MB)
    memory = read(snapshot, tmp_path).memory
    assert memory.action[-1] == MemoryAction.OUT_OF_MEMORY
    assert memory.bytes[-1] == 7 * MB
    assert memory.allocated[-1] == memory.allocated[-2] == snapshot.used()


def test_segments_change_the_reserved_memory(tmp_path: Path) -> None:
    snapshot = training(steps=1)
    extra = snapshot.segment(2 * MB, at=5_000, expandable=True)
    snapshot.give_back(extra, at=6_000)
    snapshot.segment(4 * MB, at=7_000, expandable=True)
    trace = read(snapshot, tmp_path)
    assert trace.memory.reserved[-3:].tolist() == [22 * MB, 20 * MB, 24 * MB]
    assert trace.memory.bytes[-3:].tolist() == [2 * MB, -2 * MB, 4 * MB]
    assert trace.segments is not None
    assert trace.segments.expandable.tolist() == [False, True]


def test_requested_frees_count_if_none_are_completed(tmp_path: Path) -> None:
    document = training().document()
    [history] = document["device_traces"]
    document["device_traces"] = [[e for e in history if e["action"] != "free_completed"]]
    memory = read_document(document, tmp_path).memory
    assert (memory.action == MemoryAction.FREE).sum() == 4
    assert memory.allocated[-1] == 3 * MB + 4 * 1_024


def test_a_snapshot_taken_after_recording_stopped_is_noted(tmp_path: Path) -> None:
    document = training().document()
    document["segments"] = []
    trace = read_document(document, tmp_path)
    assert trace.memory.allocated.min() >= 0
    assert any("was recording stopped" in note for note in trace.notes)


def test_a_gzipped_snapshot_is_read(tmp_path: Path) -> None:
    trace = read_trace(str(training().write(tmp_path, "snapshot.pickle.gz")))
    assert trace.kind == "snapshot"
    assert len(trace.memory) == 14


def test_malformed_entries_are_skipped_and_counted(tmp_path: Path) -> None:
    document = training().document()
    bad = [
        {},
        None,
        {"action": ["alloc"], "size": 1},
        {"action": "alloc", "addr": -1, "size": 2, "time_us": 3},
    ]
    bad += [{"action": "alloc", "addr": 1, "size": 1 << 62, "time_us": 3}, {"action": "alloc", "size": "big"}]
    document["device_traces"][0] += bad
    document["segments"] += [None, {"blocks": 3}]
    document["segments"][0]["blocks"].append({"size": -1, "state": "inactive"})
    trace = read_document(document, tmp_path)
    assert trace.malformed_events == len(bad) + 3
    assert trace.events_read == 18
    assert trace.memory.allocated[-1] == 3 * MB + 4 * 1_024


def test_entries_of_an_unknown_kind_are_skipped_and_noted(tmp_path: Path) -> None:
    document = training().document()
    document["device_traces"][0].append({"action": "teleport", "addr": 1, "size": 1, "time_us": START_US})
    trace = read_document(document, tmp_path)
    assert any("1 entries" in note for note in trace.notes)
    assert len(trace.memory) == 14


def test_each_stack_is_kept_once_however_it_is_shared(tmp_path: Path) -> None:
    document = training().document()
    document["device_traces"] = [
        [{**e, "frames": [dict(frame) for frame in e["frames"]]} for e in document["device_traces"][0]]
    ]
    memory = read_document(document, tmp_path).memory
    assert len(memory.stacks) == len(set(memory.stacks)) == 3


@with_each(
    "frames",
    [
        7,
        [None],
        [{}],
        [{"filename": ["x"], "line": 1, "name": None}],
        [{"filename": "", "line": "x", "name": 1}],
    ],
)
def test_malformed_frames_are_not_a_stack(frames: Any, tmp_path: Path) -> None:
    document = training(steps=1).document()
    document["device_traces"][0][1]["frames"] = frames
    memory = read_document(document, tmp_path).memory
    assert memory.stack[1] == NONE


def test_names_of_frames_are_bounded_text(tmp_path: Path) -> None:
    document = training(steps=1).document()
    frame = {"filename": "x" * 10_000 + "/a\nb\ud800.py", "line": -1, "name": "f" * 10_000}
    document["device_traces"][0][1]["frames"] = [frame] * 10_000
    memory = read_document(document, tmp_path).memory
    text = memory.stacks[memory.stack[1]]
    text.encode("utf-8")
    assert len(text) < 100_000
    assert "xxx/a b?.py(0): fff" in text.splitlines()[0]  # the end of a path says most


def test_one_entry_repeated_many_times_is_refused(tmp_path: Path) -> None:
    """Otherwise, a file of kilobytes would become gigabytes."""
    for rows in ("device_traces", "segments", "host_segments", "blocks"):
        document = training(steps=3).document()
        document["host_segments"] = document["segments"][:]
        if rows == "blocks":
            document["segments"][0]["blocks"] *= 1_000
        else:
            document[rows] = document[rows] * 1_000
        with pytest.raises(NotATrace, match="many times"):
            read_document(document, tmp_path)


@with_each(
    "document",
    [
        {},
        [],
        5,
        {"segments": {}},
        {"segments": [], "device_traces": 5},
        {"epoch": 3, "loss": [0.5]},
        ["segments"],
    ],
)
def test_other_pickles_are_refused(document: Any, tmp_path: Path) -> None:
    with pytest.raises(NotATrace, match="snapshot"):
        read_document(document, tmp_path)


ODD: list[Any] = [
    None,
    -1,
    0,
    2**31,
    2**50,
    2**62,
    2**64,
    -(2**63),
    "",
    "alloc",
    [],
    {},
    (1, 2),
    True,
    0.5,
    [[]],
    "inactive",
    256,
]


def _replaced(value: Any, chance: random.Random, share: float) -> Any:
    """Return the value with some of its parts removed or replaced."""
    if chance.random() < share:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {key: _replaced(v, chance, share) for key, v in value.items() if chance.random() > share / 2}
    if isinstance(value, list):
        return [_replaced(v, chance, share) for v in value]
    return value


@pytest.mark.slow
@with_each("seed", range(60))
def test_totals_are_never_negative_or_the_file_is_refused(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    shape: Shape = chance.choice(["new", "without times", "1.13", "segments only"])
    document = _replaced(training(3).document(shape), chance, chance.choice([0.002, 0.01, 0.05]))
    try:
        trace = read_document(document, tmp_path)
    except TraceError:
        return
    memory = trace.memory
    assert (memory.allocated >= 0).all()
    assert (memory.reserved >= NONE).all()
    assert (memory.stack < len(memory.stacks)).all()
    assert (np.diff(memory.time_ns) >= 0).all()
    assert len(Facts(trace).memory) <= len(set(memory.device))


def test_times_whose_nanoseconds_fit_no_column_are_malformed(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(MB, at=0)
    snapshot.allocate(1_024, at=10)
    for entry, time_us in zip(snapshot.traces[0], (0, (1 << 53) - 1), strict=True):
        entry["time_us"] = time_us
    trace = read(snapshot, tmp_path)
    assert trace.malformed_events == 1
    assert trace.memory.time_ns.max(initial=0) < 1 << 62
