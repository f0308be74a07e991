"""Files that export_memory_timeline writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.trace.events import Trace
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.vocabulary.recorded import DeviceType, MemoryAction, MemoryPurpose
from tests.with_each import with_each

PREEXISTING, CREATE, CHANGE_OF_VERSION, DESTROY = 1, 2, 3, 4
WEIGHT, TEMPORARY, GRADIENT = MemoryPurpose.PARAMETER, MemoryPurpose.TEMPORARY, MemoryPurpose.GRADIENT
BEGIN_NS = 1_700_000_000_000_000_001

EVENTS = [
    (-1, PREEXISTING, 4_096, WEIGHT),
    (BEGIN_NS, CREATE, 1_024, TEMPORARY),
    (BEGIN_NS + 10, CHANGE_OF_VERSION, -4_096, WEIGHT),
    (BEGIN_NS + 10, CHANGE_OF_VERSION, 4_096, WEIGHT),
    (BEGIN_NS + 20, CHANGE_OF_VERSION, -1_024, TEMPORARY),
    (BEGIN_NS + 20, CHANGE_OF_VERSION, 1_024, GRADIENT),
    (BEGIN_NS + 30, DESTROY, -1_024, GRADIENT),
]


def read(value: Any, folder: Path, name: str = "memory.raw.json.gz") -> Trace:
    path = folder / name
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return read_trace(str(path))


def by_purpose(trace: Trace) -> dict[MemoryPurpose, int]:
    memory = trace.memory
    assert memory.purpose is not None
    return {p: total for p in MemoryPurpose if (total := int(memory.bytes[memory.purpose == p].sum()))}


def test_raw_events_become_a_curve(tmp_path: Path) -> None:
    trace = read(EVENTS, tmp_path)
    memory = trace.memory
    assert trace.kind == "memory_timeline"
    assert trace.start_ns == BEGIN_NS
    assert memory.time_ns.tolist() == [0, 0, 20, 20, 30]
    assert memory.bytes.tolist() == [4_096, 1_024, -1_024, 1_024, -1_024]
    assert memory.allocated.tolist() == [4_096, 5_120, 5_120, 5_120, 4_096]
    assert memory.found is not None
    assert memory.found.tolist() == [True, False, False, False, False]
    assert (memory.reserved == NONE).all()
    assert (memory.action == np.where(memory.bytes > 0, MemoryAction.ALLOCATE, MemoryAction.FREE)).all()
    assert trace.events_read == len(EVENTS)
    assert any("which device" in note for note in trace.notes)


@pytest.mark.parametrize("size", [512, 924])
def test_sizes_tell_the_cpu_from_a_gpu(size: int, tmp_path: Path) -> None:
    """A GPU's allocator rounds sizes up. Those of older memory may be sizes of tensors."""
    events = [(-1, PREEXISTING, 2_244, WEIGHT), *EVENTS[1:], (BEGIN_NS + 40, CREATE, size, TEMPORARY)]
    times = [1_000, 1_005, 1_006]
    sums = [
        [0, 2_244, 0, 0, 0, 0, 0, 0, 0],
        *([0, 2_244, 0, 0, number * size, 0, 0, 0, 0] for number in (1, 0)),
    ]
    for trace in (read(events, tmp_path), read([times, sums], tmp_path, "memory.json")):
        on_cpu = size % 512 > 0
        assert set(trace.memory.device_type.tolist()) == {DeviceType.CPU if on_cpu else DeviceType.CUDA}
        assert set(trace.memory.device.tolist()) == {NONE if on_cpu else 0}
        assert ("CPU" in trace.notes[0]) is on_cpu
        (memory,) = Facts(trace).memory
        assert memory.is_cpu is on_cpu


def test_a_new_purpose_does_not_change_the_total(tmp_path: Path) -> None:
    assert by_purpose(read(EVENTS[:-1], tmp_path)) == {WEIGHT: 4_096, GRADIENT: 1_024}


@with_each(
    "event",
    [
        (BEGIN_NS, CREATE, -(2**63), TEMPORARY),
        (BEGIN_NS, CREATE, 2**62, TEMPORARY),
        (-(2**63), CREATE, 512, TEMPORARY),
        (2**63 - 1, CREATE, 512, TEMPORARY),
        (BEGIN_NS, 9, 512, TEMPORARY),
        (BEGIN_NS, CREATE, 512, 99),
    ],
)
def test_impossible_events_are_skipped(event: tuple[int, int, int, int], tmp_path: Path) -> None:
    spoilt, whole = (read(events, tmp_path).memory for events in ([*EVENTS, event], EVENTS))
    assert spoilt.allocated.tolist() == whole.allocated.tolist()
    assert spoilt.time_ns.tolist() == whole.time_ns.tolist()


def test_sums_over_time_become_a_curve(tmp_path: Path) -> None:
    sums = [
        [0, 4_096, 0, 0, 1_024, 0, 0, 0, 0],
        [0, 4_096, 0, 0, 0, 0, 512, 0, 0],
        [0, 4_096, 0, 0, 0, 0, 512, 0, 0],
    ]
    for name in ("memory.json", "memory.json.gz"):
        trace = read([[1_000, 1_005, 1_006], sums], tmp_path, name)
        assert trace.memory.time_ns.tolist() == [0, 0, 5_000, 5_000]
        assert trace.memory.bytes.tolist() == [4_096, 1_024, -1_024, 512]
        assert trace.memory.allocated.tolist() == [5_120, 5_120, 4_608, 4_608]
        assert by_purpose(trace) == {WEIGHT: 4_096, GRADIENT: 512}


@with_each(
    "value",
    [
        [[]],
        [[], []],
        [[1, 2, 3]],
        [[1, 2, 3, 4], [5, 6, 7]],
        [[1, 2, 3, 4, 5]],
        [[1, 2], [[0, 1, 2]]],
        [[[1, 2, 3, 4]]],
        b"[[1,2,3,]]",
        b"[[1,2,3,99999999999999999999999]]",
        b"[[1-2,2,3,4]]",
        b"[[1,2,3,4]",
    ],
)
def test_other_lists_of_lists_are_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(NotATrace):
        read(value, tmp_path)


def test_an_html_page_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(NotATrace, match=r"HTML page.*raw\.json\.gz"):
        read(b"<html>\n<head></head></html>", tmp_path, "memory.html")
