"""The peak: phases of allocations, and what the memory is for."""

from __future__ import annotations

import pytest

from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tests.builder import TraceBuilder
from tests.facts import facts_of
from tests.facts.memory.training import only, training, without_the_first_memory_event


def test_phases_and_lifetimes_determine_kinds() -> None:
    trace = TraceBuilder()
    training(trace)
    facts = facts_of(trace)
    (memory,) = facts.memory
    own, phase = memory.allocations, facts.memory_context.phase
    phases = {int(size): Phase(int(phase[event])) for size, event in zip(own.bytes, own.event, strict=True)}
    assert phases == {
        1000: Phase.INPUT,
        300: Phase.FORWARD,
        70: Phase.FORWARD,
        40: Phase.BACKWARD,
        30: Phase.BACKWARD,
        80: Phase.OPTIMIZER,
        9: Phase.OPTIMIZER,
    }
    # Highest with two batches: the second step's, and the first one's, which is freed late.
    peak = memory.peak
    assert peak.kinds == {
        MemoryKind.INPUT: 2000,
        MemoryKind.GRADIENT: 40,
        MemoryKind.OPTIMIZER_STATE: 80,
    }
    assert (peak.phase.label, peak.allocated_bytes) == ("", 2120)


def phases(trace: TraceBuilder) -> list[str]:
    """Return the phase of each memory event, in order of time."""
    return [Phase(int(phase)).name for phase in facts_of(trace).memory_context.phase]


def test_a_mark_cut_off_by_the_profilers_frames_is_found_by_the_frame_around_the_step() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.frame("torch/optim/optimizer.py(509): wrapper", at=0, us=100)
    main.frame("torch/autograd/profiler.py(918): __enter__", at=1, us=10)
    main.annotation("Optimizer.step#Mine.step", at=5, us=90)
    main.op("aten::zeros_like", at=50, us=20)
    main.alloc(512, at=55)
    main.op("aten::mm", at=150, us=20)
    main.alloc(256, at=155)
    assert phases(trace) == ["OPTIMIZER", "FORWARD"]


@pytest.mark.parametrize("stacks", [False, True])
def test_a_closure_runs_forward_and_backward_inside_the_optimizers_step(stacks: bool) -> None:
    trace = TraceBuilder()
    main, engine = trace.thread(), trace.thread("autograd")
    main.annotation("Optimizer.step#AdamW.step", at=0, us=500)
    if stacks:
        main.frame("nn.Module: Net_0", at=10, us=90)
    main.op("aten::linear", at=15, us=60, sequence=None if stacks else 4)
    main.alloc(512, at=20)
    main.annotation("Optimizer.zero_grad#AdamW.zero_grad", at=110, us=20)
    main.alloc(512, at=115)
    engine.op("AddmmBackward0", at=200, us=100, sequence=4, forward_thread=main.tid)
    engine.alloc(512, at=210)
    main.op("aten::_foreach_add_", at=400, us=50)
    main.alloc(512, at=410)
    assert phases(trace) == ["FORWARD", "ZERO_GRAD", "BACKWARD", "OPTIMIZER"]


def test_inside_backward_a_hook_steps_and_a_checkpoint_recomputes() -> None:
    trace = TraceBuilder()
    engine = trace.thread("autograd")
    engine.op("autograd::engine::evaluate_function: CheckpointBackward", at=0, us=100)
    engine.frame("nn.Module: Block_3", at=10, us=50).op("aten::linear", at=15, us=30, sequence=9)
    engine.alloc(512, at=20)
    engine.op("autograd::engine::evaluate_function: AccumulateGrad", at=200, us=100)
    engine.annotation("Optimizer.step#SGD.step", at=210, us=50).op("aten::add_", at=215, us=20)
    engine.alloc(512, at=220)
    assert phases(trace) == ["BACKWARD", "OPTIMIZER"]


def test_activations_and_temporaries_at_a_peak_in_forward() -> None:
    trace = TraceBuilder()
    main, engine = trace.thread(), trace.thread("autograd")
    main.op("aten::mm", at=0, us=50)
    kept, scratch, lost = main.alloc(300, at=1), main.alloc(70, at=2), main.alloc(5, at=3)
    main.free(scratch, at=10)
    engine.op("autograd::engine::evaluate_function: MmBackward0", at=100, us=50)
    engine.free(engine.alloc(6, at=105), at=110)
    engine.free(kept, at=120)
    peak = only(trace).peak
    assert peak.kinds == {
        MemoryKind.ACTIVATION: 300,
        MemoryKind.TEMPORARY: 70,
        MemoryKind.UNKNOWN: 5,  # its free was not recorded
    }
    assert peak.phase is Phase.FORWARD
    assert lost


def test_memory_from_before_is_a_kind_and_an_owner() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    early = main.alloc(4096, at=-5)
    main.op("aten::mm", at=0, us=10)
    main.alloc(512, at=1)
    main.free(early, at=20)
    (memory,) = without_the_first_memory_event(trace).memory
    assert memory.curve.start_bytes == 4096
    assert memory.allocations.early_free_bytes.tolist() == [4096]
    assert memory.peak.kinds == {MemoryKind.BEFORE: 4096, MemoryKind.UNKNOWN: 512}
    assert {owner.kind: owner.bytes for owner in memory.peak.owners} == memory.peak.kinds
