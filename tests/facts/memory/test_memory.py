"""Memory device by device, told in stories: who holds the peak, who grows, what is reserved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import MOST_GPUS, DeviceMemory
from tb_gpudiag.facts.memory.peak import MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.sites import floor_table
from tb_gpudiag.trace.events import MemoryAction, MemoryEvents, Trace
from tests.builder import Generation, HostThread, TraceBuilder
from tests.facts import facts_of
from tests.facts.laws import assert_laws
from tests.trace.support import read_bytes

STEP_US = 1000.0


def only(trace: TraceBuilder) -> DeviceMemory:
    (memory,) = facts_of(trace).memory
    return memory


def test_peaks_are_per_device_and_the_cpu_comes_last() -> None:
    trace = TraceBuilder(devices=("a", "b"), device_bytes=1000)
    main = trace.thread()
    main.alloc(50, at=0.5, device=1, reserved=64)
    first = main.alloc(300, at=1, reserved=512)
    main.alloc(200, at=2, reserved=640)
    main.free(first, at=3)
    main.alloc(10_000, at=5, device=None)
    found = [
        (m.name, m.device, m.peak_allocated_bytes, m.peak_reserved_bytes, m.capacity_bytes)
        for m in facts_of(trace).memory
    ]
    assert found == [("GPU 0", 0, 500, 640, 1000), ("GPU 1", 1, 50, 64, 1000), ("CPU", -1, 10_000, 0, 0)]


def test_a_trace_that_names_ever_more_devices_is_bounded() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for device in range(MOST_GPUS + 10):
        main.alloc(512, at=device, device=device)
    main.alloc(512, at=1_000, device=MOST_GPUS + 9)
    devices = [memory.device for memory in facts_of(trace).memory]
    assert len(devices) == MOST_GPUS
    assert devices[0] == MOST_GPUS + 9


def test_without_memory_events_there_is_nothing_to_say() -> None:
    trace = TraceBuilder()
    trace.thread().op("aten::mm", at=0, us=5)
    assert facts_of(trace).memory == []


def without_the_first_memory_event(trace: TraceBuilder) -> Facts:
    """As if the recording had begun after it."""
    document = trace.document()
    events = document["traceEvents"]
    events.remove(min((e for e in events if e["name"] == "[memory]"), key=lambda e: float(e["ts"])))
    return Facts(read_bytes(json.dumps(document).encode()))


@pytest.mark.parametrize("as_spans", [False, True])
def test_memory_events_may_be_spans(as_spans: bool) -> None:
    trace = TraceBuilder(memory_as_spans=as_spans)
    main = trace.thread()
    main.free(main.alloc(512, at=1), at=2)
    memory = only(trace)
    assert memory.curve.allocated.tolist() == [512, 0]
    assert memory.allocations.freed_ns.tolist() == [memory.curve.time_ns[1]]


def test_an_old_trace_has_no_totals_and_no_addresses() -> None:
    trace = TraceBuilder("A")
    main = trace.thread()
    main.op("aten::mm", at=0, us=10)
    early = main.alloc(4096, at=-5)
    kept = main.alloc(512, at=1)
    trace.recording.memory.pop(0)  # from before the recording
    main.free(early, at=3)
    main.free(kept, at=4)
    memory = only(trace)
    assert memory.curve.relative
    assert memory.curve.start_bytes == 4096  # what was freed had been there
    assert memory.curve.allocated.tolist() == [4608, 512, 0]
    assert not memory.allocations.paired
    assert memory.peak.kinds == {MemoryKind.UNKNOWN: 4608}
    assert memory.sites == []


def training(trace: TraceBuilder, steps: int = 4) -> list[int]:
    """Steps that load a batch of 1,000, keep activations of 300 for backward, make gradients of 40 and, in
    the first step, an optimizer's state of 80. Returns the steps' starts in ns."""
    main, engine = trace.thread(), trace.thread("autograd")
    gradient = batch = None
    for step in range(steps):
        at = STEP_US * step
        main.step(step, at=at, us=STEP_US)
        main.frame("train.py(3): train", at=at, us=STEP_US)
        main.op("aten::to", at=at + 10, us=40)
        main.copy("HtoD", at=at + 20, us=5, runs_at=at + 26, runs_us=10, bytes=1000)
        taken = main.alloc(1000, at=at + 12)
        if batch is not None:
            main.free(batch, at=at + 60)
        batch = taken
        main.frame("nn.Module: Net_0", at=at + 100, us=100)
        main.op("aten::mm", at=at + 110, us=40)
        kept = main.alloc(300, at=at + 120)
        scratch = main.alloc(70, at=at + 125)
        main.free(scratch, at=at + 140)
        if gradient is not None:
            main.annotation("Optimizer.zero_grad#SGD.zero_grad", at=at + 300, us=20)
            main.free(gradient, at=at + 310)
        engine.op("autograd::engine::evaluate_function: MmBackward0", at=at + 400, us=100)
        gradient = engine.alloc(40, at=at + 420)
        partial = engine.alloc(30, at=at + 430)
        engine.free(partial, at=at + 440)
        engine.free(kept, at=at + 450)
        main.annotation("Optimizer.step#Adam.step", at=at + 600, us=50)
        main.op("aten::add", at=at + 610, us=20)
        if step == 0:
            main.alloc(80, at=at + 612)
        update = main.alloc(9, at=at + 615)
        main.free(update, at=at + 625)
    return [round(STEP_US * 1000 * step) for step in range(steps)]


def test_kinds_are_told_by_phases_and_lifetimes() -> None:
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
    # Highest while two batches are there: the second step's, and the first one's that is let go of late.
    peak = memory.peak
    assert peak.kinds == {
        MemoryKind.INPUT: 2000,
        MemoryKind.GRADIENT: 40,
        MemoryKind.OPTIMIZER_STATE: 80,
    }
    assert (peak.phase.label, peak.allocated_bytes) == ("", 2120)


def phases(trace: TraceBuilder) -> list[str]:
    """Of each memory event, in order of time."""
    return [Phase(int(phase)).name for phase in facts_of(trace).memory_context.phase]


def test_a_mark_that_the_profilers_frames_cut_off_is_told_by_the_frame_around_the_step() -> None:
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


def test_inside_backward_a_hook_steps_and_a_checkpoint_computes_again() -> None:
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
        MemoryKind.UNKNOWN: 5,  # nobody saw its end
    }
    assert peak.phase is Phase.FORWARD
    assert lost


def test_what_was_there_before_is_a_kind_and_an_owner() -> None:
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


def test_healthy_training_has_a_level_floor_and_no_growing_site() -> None:
    trace = TraceBuilder()
    training(trace, 8)
    memory = only(trace)
    assert memory.trend is not None
    assert (memory.trend.per_unit, memory.trend.high) == (0, 0)
    assert memory.sites == []
    assert memory.until_full == 0


def test_the_steps_are_slices_of_the_host() -> None:
    trace = TraceBuilder()
    starts = training(trace)
    assert only(trace).floors.periods.start_ns.tolist() == starts


def leak(trace: TraceBuilder, main: HostThread, steps: int, *, line: int = 9, bytes: int = 512) -> None:
    for step in range(steps):
        at = STEP_US * step + 200
        main.frame(f"keep.py({line}): remember", at=at, us=50).op("aten::clone", at=at + 5, us=20)
        main.op("aten::empty_like", at=at + 6, us=5)
        main.alloc(bytes, at=at + 8)


def test_what_is_kept_in_each_step_is_a_site_with_its_line() -> None:
    trace = TraceBuilder(device_bytes=100_000)
    training(trace, 8)
    leak(trace, trace.thread("other"), 8)
    memory = only(trace)
    assert memory.trend is not None
    assert memory.trend.per_unit == 512
    (site,) = memory.sites
    assert (site.operator, site.per_unit, site.size_bytes, site.replaced) == ("aten::clone", 512, 512, False)
    assert site.frame is not None
    assert (site.frame.file, site.frame.line) == ("keep.py", 9)
    assert site.stack.endswith("keep.py(9): remember")
    # The last floor is where its step begins: seven steps have left one each, six of them two steps ago.
    assert (site.count, site.steps, site.old_count, site.old_steps) == (7, 7, 6, 6)
    room = memory.capacity_bytes - memory.peak_allocated_bytes
    assert memory.until_full == pytest.approx(room / 512)


def test_a_cache_that_is_replaced_by_a_larger_one_is_a_site() -> None:
    trace = TraceBuilder()
    training(trace, 8)
    main, held = trace.thread("other"), None
    for step in range(8):
        at = STEP_US * step + 200
        main.frame("cache.py(4): extend", at=at, us=50).op("aten::cat", at=at + 5, us=20)
        larger = main.alloc(1024 * (step + 1), at=at + 8)
        if held is not None:
            main.free(held, at=at + 30)
        held = larger
    (site,) = only(trace).sites
    assert (site.operator, site.per_unit, site.count, site.replaced) == ("aten::cat", 1024, 1, True)
    assert site.old_count == 0


def test_a_cache_that_has_filled_is_no_growing_site() -> None:
    trace = TraceBuilder()
    training(trace, 12)
    leak(trace, trace.thread("other"), 5)
    memory = only(trace)
    assert memory.trend is not None
    assert memory.trend.earlier > 0
    assert memory.trend.later == 0
    assert memory.sites == []


def test_sites_and_what_was_there_before_add_up_to_each_floor() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    early = main.alloc(4096, at=-5)
    training(trace, 6)
    leak(trace, main, 6)
    main.free(early, at=3 * STEP_US + 500)
    facts = without_the_first_memory_event(trace)
    (memory,) = facts.memory
    table = floor_table(memory.allocations, memory.floors, facts.host, facts.trace.memory)
    assert (table.bytes.sum(axis=0) + table.before == memory.floors.bytes[table.column]).all()
    assert table.before.tolist() == [4096, 4096, 0, 0, 0]


def test_the_reserve_counts_what_the_driver_gave_and_took() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(3):
        main.step(step, at=STEP_US * step, us=STEP_US)
    first = main.alloc(500, at=10, reserved=2000)
    main.alloc(300, at=20, reserved=4000)
    main.free(first, at=30)
    main.alloc(100, at=STEP_US + 10, reserved=3000)
    main.alloc(100, at=STEP_US + 20, reserved=5000)
    reserve = only(trace).reserve
    assert reserve.known
    assert (reserve.unused_at_peak_bytes, reserve.most_unused_bytes) == (4000 - 800, 5000 - 500)
    assert (reserve.growths, reserve.shrinks) == (2, 1)
    assert (reserve.steady_growths, reserve.steady_shrinks) == (1, 1)


def test_a_retry_frees_and_asks_again_within_one_operator() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    main.op("aten::mm", at=0, us=100)
    main.call("cudaMalloc", at=5, us=5).call("cudaFree", at=20, us=5).call("cudaMalloc", at=40, us=5)
    main.alloc(512, at=50, reserved=512)
    main.call("cudaFree", at=200, us=5)  # empty_cache(), in no operator
    main.op("aten::mm", at=300, us=100).call("cudaMalloc", at=305, us=5)
    main.op("aten::mm", at=500, us=10)
    main.alloc(512, at=505, device=1, reserved=512)
    assert [memory.reserve.retries for memory in facts_of(trace).memory] == [1, 0]


@pytest.mark.parametrize("generation", ["B", "C1", "C2"])
def test_every_generation_with_totals_says_the_same(generation: Generation) -> None:
    trace = TraceBuilder(generation)
    training(trace)
    memory = only(trace)
    assert memory.peak.allocated_bytes == 2120
    assert not memory.curve.relative


@pytest.fixture(scope="module")
def six_steps() -> Trace:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(6):
        main.step(step, at=100 * step, us=100).op("aten::mm", at=100 * step + 10, us=80)
    main.alloc(512, at=1)
    return facts_of(trace).trace


@st.composite
def wild_memory(draw: st.DrawFn) -> MemoryEvents:
    """Memory events that contradict one another."""
    count = draw(st.integers(1, 40))

    def column(values: Sequence[int], kind: type) -> npt.NDArray[Any]:
        return np.array(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)), kind)

    action = column(list(MemoryAction), np.uint8)
    falls = np.isin(action, (MemoryAction.FREE, MemoryAction.SHRINK))
    return MemoryEvents(
        time_ns=np.sort(column(range(0, 600_000, 7_000), np.int64)),
        action=action,
        bytes=np.where(falls, -1, 1) * column([0, 512, 1024, 2**40], np.int64),
        address=column(range(4), np.uint64),
        device_type=column([0, 1], np.int32),
        device=column([-1, 0, 1], np.int32),
        allocated=column([-5, -1, 0, 512, 4096], np.int64),
        reserved=column([-1, 0, 8192], np.int64),
        thread=column([0, -1], np.int32),
        stack=column([0, -1], np.int32),
        stacks=["train.py(3): main"],
        found=column([0, 1], np.bool_) if draw(st.booleans()) else None,
        purpose=column(range(8), np.uint8) if draw(st.booleans()) else None,
    )


@given(wild_memory())
@settings(deadline=None)
def test_whatever_was_recorded_the_laws_hold(six_steps: Trace, memory: MemoryEvents) -> None:
    facts = Facts(replace(six_steps, memory=memory))
    assert_laws(facts)
    for one in facts.memory:
        assert all(site.per_unit > 0 for site in one.sites)
        assert one.reserve.most_unused_bytes >= one.reserve.unused_at_peak_bytes >= 0
        assert one.until_full >= 0


@pytest.mark.parametrize(
    ("modules", "shown"), [(["Linear_0"], "Linear_0"), (["Linear_0", "Linear_7"], "Linear")]
)
def test_a_site_names_its_module_or_the_class_of_several(modules: list[str], shown: str) -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for step in range(5):
        main.step(step, at=STEP_US * step, us=STEP_US)
        main.frame("model.py(20): forward", at=STEP_US * step, us=900)
        for place, module in enumerate(modules):
            at = STEP_US * step + 100 * place
            main.frame(f"nn.Module: {module}", at=at + 1, us=90).op("aten::mm", at=at + 10, us=50)
            main.alloc(512, at=at + 20)
    (site,) = only(trace).sites
    assert (site.module, site.count, site.per_unit) == (shown, 4 * len(modules), 512 * len(modules))
