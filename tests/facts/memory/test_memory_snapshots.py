"""Facts of memory snapshots and memory timelines, which have no operators, but stacks, segments or
purposes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.find_phases import phases_of_stacks
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.rules.shared.growth import until_full
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder
from tests.builder.snapshot import Shape
from tests.with_each import with_each

MB = 1 << 20
MODULE = "/opt/lib/python3.11/site-packages/torch/nn/modules/module.py(1): _call_impl"
INIT = "/opt/lib/python3.11/site-packages/torch/nn/modules/linear.py(98): __init__"
ENGINE = "??(0): torch::autograd::Engine::evaluate_function(...)"
OPTIMIZER = "/opt/lib/python3.11/site-packages/torch/optim/adamw.py(220): step"
ZERO_GRAD = "/opt/lib/python3.11/site-packages/torch/optim/optimizer.py(990): zero_grad"


def memory_of(snapshot: SnapshotBuilder, shape: Shape = "new") -> DeviceMemory:
    with tempfile.TemporaryDirectory() as folder:
        (memory,) = Facts(read_trace(str(snapshot.write(Path(folder), shape=shape)))).memory
    return memory


def training(steps: int = 6, *, marked: bool = True) -> SnapshotBuilder:
    """Build a training job: weights, optimizer state, and in each step activations, gradients and a retained
    result."""
    snapshot = SnapshotBuilder()
    snapshot.segment(30 * MB, at=0)
    snapshot.allocate(3 * MB, at=1, stack=["train.py(3): main", INIT])
    gradient = None
    for step in range(steps):
        at = 1_000 * (step + 1)
        if marked:
            snapshot.step(step, at=at, us=1_000)
        if gradient is not None:
            snapshot.free(gradient, at=at + 5, stack=["train.py(8): main", ZERO_GRAD])
        kept = snapshot.allocate(
            2 * MB, at=at + 10, stack=["train.py(9): main", MODULE, "model.py(20): forward"]
        )
        snapshot.allocate(1_000, at=at + 20, stack=["train.py(9): main", "train.py(12): keep"])
        gradient = snapshot.allocate(3 * MB, at=at + 400, stack=[ENGINE])
        snapshot.free(kept, at=at + 500, stack=[ENGINE])
        if step == 0:
            snapshot.allocate(6 * MB, at=at + 600, stack=["train.py(11): main", OPTIMIZER])
        scratch = snapshot.allocate(1 * MB, at=at + 610, stack=["train.py(11): main", OPTIMIZER])
        snapshot.free(scratch, at=at + 620, stack=["train.py(11): main", OPTIMIZER])
    return snapshot


def test_memory_retained_in_each_step_is_a_site_with_its_exact_stack() -> None:
    memory = memory_of(training())
    (site,) = memory.sites
    assert (site.per_unit, site.size_bytes) == (1_024, 1_024)
    assert site.stack == "train.py(9): main\ntrain.py(12): keep"
    assert site.frame is not None
    assert (site.frame.file, site.frame.line) == ("train.py", 12)
    assert memory.trend is not None
    assert memory.trend.per_unit == 1_024


def test_frames_determine_kinds() -> None:
    kinds = memory_of(training()).peak.kinds
    # Highest in the last backward. What the retained results are for is not known.
    assert kinds == {
        MemoryKind.PARAMETER: 3 * MB,
        MemoryKind.OPTIMIZER_STATE: 6 * MB,
        MemoryKind.ACTIVATION: 2 * MB,
        MemoryKind.GRADIENT: 3 * MB,
        MemoryKind.UNKNOWN: 6 * 1_024,
    }


def test_memory_older_than_the_history_is_from_before() -> None:
    snapshot = training()
    snapshot.forget(14)
    memory = memory_of(snapshot)
    assert memory.peak.kinds[MemoryKind.BEFORE] >= 9 * MB  # the weights and the state
    frames = {
        owner.frame.file for owner in memory.peak.owners if owner.kind is MemoryKind.BEFORE and owner.frame
    }
    assert "train.py" in frames


def test_steps_before_the_history_have_no_floor() -> None:
    snapshot = training(8)
    snapshot.forget(40)
    memory = memory_of(snapshot)
    assert 3 <= len(memory.floors) < 8
    assert memory.trend is not None
    assert memory.trend.per_unit == 1_024
    snapshot.forget(0)
    assert len(memory_of(snapshot).floors) == 0


def test_without_marks_steps_are_inferred_from_what_repeats() -> None:
    memory = memory_of(training(64, marked=False))
    assert memory.floors.periods.inferred
    assert memory.trend is not None
    assert (memory.trend.unit, memory.trend.per_unit) == ("step", 1_024)
    assert memory.trend.word == "inferred step"
    assert memory.sites[0].frame is not None
    assert memory.sites[0].frame.line == 12
    assert until_full(memory) == 0  # its capacity is not known


def test_without_anything_that_repeats_the_slope_is_per_second() -> None:
    memory = memory_of(irregular(64))
    assert memory.trend is not None
    assert memory.trend.unit == "second"
    assert memory.trend.per_unit == pytest.approx(1_000 / 0.001, rel=0.05)


def irregular(steps: int) -> SnapshotBuilder:
    """Build a job of which nothing is known but sizes, all of them different."""
    snapshot = SnapshotBuilder()
    snapshot.segment(600 * MB, at=0)
    for step in range(steps):
        at = 1_000 * (step + 1)
        for part in range(3):
            taken = snapshot.allocate(2 * MB + 512 * (3 * step + part), at=at + 100 * part)
            snapshot.free(taken, at=at + 100 * part + 50)
        snapshot.allocate(1_000 + step % 7, at=at + 400)
    return snapshot


def test_without_times_nothing_is_per_second() -> None:
    memory = memory_of(irregular(64), "without times")
    assert (len(memory.floors), memory.trend, memory.sites) == (0, None, [])
    memory = memory_of(training(64, marked=False), "without times")
    assert memory.trend is not None
    assert (memory.trend.unit, memory.trend.per_unit) == ("step", 1_024)
    assert memory.peak.kinds[MemoryKind.PARAMETER] == 3 * MB


def test_cpp_frames_are_not_a_place_in_the_users_code() -> None:
    owners = memory_of(training()).peak.owners
    assert [owner.frame for owner in owners if owner.kind is MemoryKind.GRADIENT] == [None]


def test_segments_show_memory_that_is_free_but_cannot_be_returned() -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(10 * MB, at=0)
    first = snapshot.allocate(4 * MB, at=1)
    snapshot.allocate(2 * MB, at=2)
    snapshot.free(first, at=3)
    snapshot.segment(20 * MB, at=4, expandable=True)
    segments = memory_of(snapshot).reserve.segments
    assert segments is not None
    assert (segments.segments, segments.expandable) == (2, 1)
    assert segments.largest_free_bytes == 20 * MB
    assert segments.free_in_used_segments_bytes == 8 * MB
    each = [(s.bytes, s.used_bytes, s.largest_free_bytes, s.blocks, s.expandable) for s in segments.each]
    # Freed memory merges only with adjacent free memory.
    assert each[0][:2] == (10 * MB, 2 * MB)
    assert each[0][2] <= 8 * MB
    assert each[1] == (20 * MB, 0, 20 * MB, 1, True)


MAIN = "train.py(3): main"


@with_each(
    ("stack", "retries"),
    [
        ([MAIN], 1),  # the cache was emptied to get memory
        ([MAIN, "torch/cuda/memory.py(222): empty_cache"], 0),
        ([], 0),
    ],
)
def test_growths_retries_and_failures_are_counted(stack: list[str], retries: int) -> None:
    snapshot = SnapshotBuilder()
    old = snapshot.segment(10 * MB, at=0)
    snapshot.segment(4 * MB, at=1)
    snapshot.give_back(old, at=2, stack=stack)
    snapshot.segment(20 * MB, at=3, stack=[MAIN])
    snapshot.allocate(15 * MB, at=4)
    snapshot.out_of_memory(50 * MB, at=5)
    reserve = memory_of(snapshot).reserve
    assert (reserve.growths, reserve.shrinks, reserve.retries) == (2, 1, retries)
    assert (reserve.out_of_memory, reserve.out_of_memory_ns.tolist()) == (1, [5_000])


def test_a_memory_timeline_says_what_memory_is_for(tmp_path: Path) -> None:
    # [ns, action (1 existed before, 2 allocated, 4 freed), bytes, category (0 parameter, 4 activation, 5
    # gradient)]
    rows = [[-1, 1, 1000, 0], [10, 2, 300, 4], [20, 2, 50, 5], [30, 4, -300, 4], [40, 4, -50, 5]]
    path = tmp_path / "memory.raw.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    (memory,) = Facts(read_trace(str(path))).memory
    assert memory.peak.kinds == {
        MemoryKind.PARAMETER: 1000,
        MemoryKind.ACTIVATION: 300,
        MemoryKind.GRADIENT: 50,
    }
    assert not memory.allocations.paired


@with_each(
    ("frame", "phase"),
    [
        ("/opt/site-packages/torch/optim/adamw.py(220): step", Phase.OPTIMIZER),
        ("/opt/site-packages/bitsandbytes/optim/optimizer.py(280): step", Phase.OPTIMIZER),
        ("/opt/site-packages/apex/optimizers/fused_adam.py(99): step", Phase.OPTIMIZER),
        (r"C:\python\torch\optim\sgd.py(80): step", Phase.OPTIMIZER),
        ("/opt/site-packages/torch/optim/lr_scheduler.py(150): step", Phase.FORWARD),
        ("train.py(8): step", Phase.FORWARD),
        ("/opt/site-packages/torch/nn/modules/module.py(2700): zero_grad", Phase.ZERO_GRAD),
        ("/opt/site-packages/torch/nn/modules/module.py(1300): to", Phase.PARAMETER),
        ("/opt/site-packages/torch/nn/modules/module.py(1770): _call_impl", Phase.FORWARD),
        ("/opt/site-packages/torch/utils/data/dataloader.py(730): __next__", Phase.INPUT),
        ("/opt/site-packages/torch/_tensor.py(560): backward", Phase.BACKWARD),
    ],
)
def test_a_frame_determines_the_phase(frame: str, phase: Phase, tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(MB, at=0)
    snapshot.allocate(512, at=1, stack=["train.py(3): main", frame, "helper.py(4): inner"])
    facts = Facts(read_trace(str(snapshot.write(tmp_path))))
    assert facts.memory_context.phase[-1] == phase


def test_the_innermost_frame_decides_and_a_closure_is_not_part_of_the_optimizer() -> None:
    backward = "/opt/site-packages/torch/_tensor.py(560): backward"
    stacks = {
        (OPTIMIZER, "train.py(5): closure", MODULE, "model.py(2): forward"): Phase.FORWARD,
        (OPTIMIZER, "train.py(5): closure", backward): Phase.BACKWARD,
        (backward, "checkpoint.py(3): recompute", MODULE): Phase.BACKWARD,
        (backward, "train.py(9): hook", OPTIMIZER): Phase.OPTIMIZER,
        ("",): Phase.UNKNOWN,
    }
    assert phases_of_stacks(["\n".join(frames) for frames in stacks]).tolist() == list(stacks.values())


def test_a_graph_that_is_dropped_is_no_backward_pass() -> None:
    """Its nodes let go of what they saved, for example when the next forward pass replaces the output."""
    drops = (
        "??(0): torch::autograd::deleteNode(torch::autograd::Node*)\n"
        "(0): torch::autograd::generated::NllLossBackward0::release_variables()"
    )
    applies = "(0): torch::autograd::generated::NllLossBackward0::apply(std::vector<at::Tensor>&&)"
    stacks = [f"train.py(9): main\n{inner}" for inner in (drops, applies, ENGINE)]
    assert phases_of_stacks(stacks).tolist() == [Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD]


def test_state_of_an_optimizer_in_whose_first_step_the_recording_ends() -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(30 * MB, at=0)
    update = "/opt/lib/python3.11/site-packages/torch/optim/optimizer.py(493): wrapper"
    for number in range(4):
        at = 10 * (number + 1)
        snapshot.allocate(MB, at=at, stack=["train.py(11): main", update, "mine.py(8): step"])
        scratch = snapshot.allocate(
            2 * MB, at=at + 1, stack=["train.py(11): main", update, "mine.py(9): step"]
        )
        if number < 3:
            snapshot.free(scratch, at=at + 2)
    kinds = memory_of(snapshot).peak.kinds
    assert kinds == {MemoryKind.OPTIMIZER_STATE: 4 * MB, MemoryKind.UNKNOWN: 2 * MB}
