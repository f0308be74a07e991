"""Failed allocations: what was free then, whatever happened afterwards."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.peak import Failure
from tb_gpudiag.rules.all import RULES
from tb_gpudiag.rules.answer import Severity
from tb_gpudiag.rules.run import run_rules
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.wording.plain import plain

MIB = 1 << 20


def failure_of(snapshot: SnapshotBuilder, folder: Path) -> Failure:
    (memory,) = Facts(read_trace(str(snapshot.write(folder)))).memory
    assert memory.failure is not None
    return memory.failure


def filled(*, expandable: bool = False) -> tuple[SnapshotBuilder, list[int], list[int]]:
    """Fill five segments of 40 MiB with blocks of 10 MiB, and free every second block."""
    snapshot = SnapshotBuilder()
    segments = [snapshot.segment(40 * MIB, at=i, expandable=expandable) for i in range(5)]
    blocks = [
        snapshot.allocate(10 * MIB, at=10 + i, stack=["train.py(7): train", f"model.py({i % 2}): forward"])
        for i in range(20)
    ]
    for i in range(0, 20, 2):
        snapshot.free(blocks[i], at=100 + i)
    return snapshot, segments, blocks


@pytest.mark.parametrize("expandable", [False, True])
def test_what_was_free_is_known_after_the_job_freed_everything(expandable: bool, tmp_path: Path) -> None:
    snapshot, segments, blocks = filled(expandable=expandable)
    snapshot.free(blocks[1], at=150)  # 30 MiB in a row
    snapshot.out_of_memory(50 * MIB, at=200, device_free=5 * MIB)
    at_once = failure_of(snapshot, tmp_path)
    assert at_once.requested_bytes == 50 * MIB
    assert at_once.driver_free_bytes == 5 * MIB
    assert at_once.unused_bytes == 110 * MIB
    assert at_once.largest_free_bytes == 30 * MIB
    assert at_once.expandable is expandable
    assert at_once.held.allocated_bytes == 90 * MIB
    for i in range(3, 20, 2):
        snapshot.free(blocks[i], at=300 + i)
    for segment in segments[:3]:
        snapshot.give_back(segment, at=400)
    later = failure_of(snapshot, tmp_path)
    assert later.held.allocated_bytes == 90 * MIB
    assert replace(later, held=at_once.held) == at_once  # what was freed later counts as another kind


@pytest.mark.parametrize(
    ("requested", "driver_free", "why"),
    [
        (300, 5, "The request itself is the problem"),
        (150, 5, "too little"),
        (50, 5, "fragmented"),
        (120, 40, "cannot return partly used segments"),
        (50, 60, "set_per_process_memory_fraction"),
        (10, 0, "blocks of its own"),
    ],
)
def test_the_verdict_leads_with_why_it_did_not_fit(
    requested: int, driver_free: int, why: str, tmp_path: Path
) -> None:
    snapshot, _, _ = filled()
    snapshot.out_of_memory(requested * MIB, at=200, device_free=driver_free * MIB)
    facts = Facts(read_trace(str(snapshot.write(tmp_path))))
    verdict = find_verdict(facts)
    assert verdict.limiter == "memory"
    assert verdict.sentence.startswith("GPU 0 ran out of memory: an allocation of ")
    assert why in verdict.sentence
    assert "The largest allocation site, at model.py:1 in forward, held 100 MiB" in plain(verdict.sentence)
    found = run_rules(facts, RULES).findings
    assert found[0].rule.id == "GD402"  # one pass that keeps blocks is no leak
    assert found[0].severity is Severity.ERROR
    assert why in found[0].finding.summary


def test_a_segment_that_grew_and_shrank_in_parts_is_one(tmp_path: Path) -> None:
    """An expandable segment is mapped in two parts, and one of them is unmapped after the failure."""
    snapshot = SnapshotBuilder()
    address = snapshot.segment(40 * MIB, at=0, expandable=True)
    snapshot.allocate(6 * MIB, at=1)
    snapshot.out_of_memory(50 * MIB, at=2, device_free=MIB)
    document = snapshot.document()
    (history,) = document["device_traces"]
    first = {**history[0], "size": 20 * MIB}
    second = {**first, "addr": address + 20 * MIB}
    history[:1] = [first, second]
    (segment,) = document["segments"]
    path = tmp_path / "dump.pickle"
    for unmapped in (False, True):
        if unmapped:
            history.append({**second, "action": "segment_unmap"})
            segment["total_size"] = 20 * MIB
            segment["blocks"][1]["size"] = 14 * MIB
        path.write_bytes(pickle.dumps(document))
        (memory,) = Facts(read_trace(str(path))).memory
        assert memory.failure is not None
        assert memory.failure.expandable
        assert memory.failure.unused_bytes == 34 * MIB
        assert memory.failure.largest_free_bytes == 34 * MIB
        assert int(memory.curve.reserved[-1]) == (20 if unmapped else 40) * MIB


def test_each_device_has_its_own_failure(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder(devices=3)
    for device in range(3):
        snapshot.segment(20 * MIB, at=0, device=device)
        snapshot.allocate((device + 1) * MIB, at=1, device=device)
    snapshot.out_of_memory(50 * MIB, at=2, device=1, device_free=MIB)
    memories = Facts(read_trace(str(snapshot.write(tmp_path)))).memory
    assert {m.device: m.failure.held.allocated_bytes for m in memories if m.failure} == {1: 2 * MIB}
    assert {m.device: m.peak_allocated_bytes for m in memories} == {d: (d + 1) * MIB for d in range(3)}
