"""What was live at a moment: by call stack, and conserved against the curve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.memory_messages import memory_messages
from tb_gpudiag.report.slices import memory_slice
from tb_gpudiag.report.slices.memory_history import prepare_memory
from tb_gpudiag.report.slices.memory_slice import prepare_stacks, slice_memory, slice_memory_state
from tb_gpudiag.report.slices.prepared import Prepared
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.real_traces import first_in

MIB = 1 << 20


def prepared(facts: Facts) -> Prepared:
    return prepare_memory(facts) | prepare_stacks(facts)


def stack_sizes(state: pb.MemoryState) -> dict[str, float]:
    return {state.names[name]: size for name, size in zip(state.name, state.node_bytes, strict=True)}


def test_a_moment_has_what_is_live_by_call_stack(tmp_path: Path) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("train.py(3): step", at=0, us=100)
    main.op("aten::relu", at=10, us=10)
    first = main.alloc(2 * MIB, at=12)
    main.op("aten::mm", at=30, us=10)
    main.alloc(MIB, at=32)
    main.free(first, at=60)
    arrays = prepared(Facts(read_trace(str(trace.write(tmp_path)))))
    both = slice_memory_state(arrays, None, 40.0)
    assert (both.live_bytes, both.allocations, both.earlier_bytes) == (3 * MIB, 2, 0)
    found = stack_sizes(both)
    assert (found["train.py(3): step"], found["aten::relu"], found["aten::mm"]) == (3 * MIB, 2 * MIB, MIB)
    assert [(block.bytes, block.made_us, block.freed_us) for block in both.blocks] == [
        (2 * MIB, 12, 60),
        (MIB, 32, -1),
    ]
    assert slice_memory_state(arrays, 0, None).live_bytes == MIB
    with pytest.raises(UsageError):
        slice_memory_state(arrays, 5, None)


def test_a_tree_of_equal_nodes_is_cut_and_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_slice, "MOST_NODES", 5)
    trace = TraceBuilder()
    main = trace.thread()
    for at in range(0, 100, 10):
        main.op(f"aten::op{at}", at=at, us=8)
        main.alloc(MIB, at=at + 2)
    state = slice_memory_state(prepared(Facts(read_trace(str(trace.write(tmp_path))))), None, None)
    assert len(state.node) == 5
    assert state.live_bytes == 10 * MIB


def test_memory_from_before_the_recording_is_named_and_in_no_range_of_it(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(20 * MIB, at=0)
    snapshot.allocate(3 * MIB, at=1)
    snapshot.allocate(2 * MIB, at=40)
    snapshot.allocate(MIB, at=50)
    snapshot.forget(2)
    facts = Facts(read_trace(str(snapshot.write(tmp_path))))
    arrays = prepared(facts)
    state = slice_memory_state(arrays, 0, None)
    assert (state.live_bytes, state.before_bytes, state.earlier_bytes) == (6 * MIB, 3 * MIB, 0)
    assert [(block.bytes, block.made_us) for block in state.blocks] == [
        (3 * MIB, -1),
        (2 * MIB, 0),
        (MIB, 10),
    ]
    (memory,) = memory_messages(facts.memory, facts.events)
    assert {kind.kind: kind.bytes for kind in memory.peak_kinds}[pb.MemoryKind.before] == state.before_bytes
    whole = slice_memory(arrays, 0, None, None, 100)
    assert (whole.allocated_bytes, whole.allocations) == (3 * MIB, 2)


@pytest.mark.parametrize("folder", ["v100_ddp_memory", "a100_particle_transformer", "cpu_torch213/leaky"])
def test_real_states_add_up_to_the_curve(shared_traces: Path, folder: str) -> None:
    facts = first_in(folder)
    arrays = prepared(facts)
    for device in facts.memory:
        curve = device.curve
        for share in (0.3, 0.7, 1.0):
            at = int(share * (len(curve.time_ns) - 1))
            state = slice_memory_state(arrays, device.device, curve.time_ns[at] / 1e3)
            nodes = zip(state.node_bytes, state.parent, strict=True)
            outermost = sum(size for size, above in nodes if above == NONE)
            assert outermost + state.unknown_bytes == pytest.approx(state.live_bytes)
            last = int((curve.time_ns <= curve.time_ns[at]).nonzero()[0][-1])
            allocated = max(float(curve.allocated[last]), state.live_bytes)
            assert state.live_bytes + state.earlier_bytes == pytest.approx(allocated)
