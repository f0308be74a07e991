from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, RuleAnswer, Severity
from tb_gpudiag.rules.memory.memory_leak import RULE
from tb_gpudiag.rules.shared.growth import LEAST_BYTES_PER_STEP, floor_state
from tb_gpudiag.rules.shared.out_of_memory import HORIZON_STEPS
from tb_gpudiag.rules.verdict import find_verdict
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.training.noting_tensors import KEY
from tb_gpudiag.wording.quantity import number, size
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.rules.memory_stage import MIB, job, only
from tests.rules.stage import facts_of, figures, healthy, is_clear, without_gpu
from tests.simulator import simulate
from tests.some_values import slow
from tests.wording.plain import plain

MODULE_FRAME = "/x/site-packages/torch/nn/modules/module.py(1773): _call_impl"


def test_a_floor_that_rises_in_every_step_is_found_with_its_line(tmp_path: Path) -> None:
    found = only(RULE.check(facts_of(job([MIB] * 6), tmp_path)))
    assert found.cost_bytes_per_step == MIB
    assert found.cost_bytes == 4 * MIB  # the first step is excused
    assert found.memory_device == 0
    assert (found.places[0].file, found.places[0].line, found.places[0].operator) == (
        "train.py",
        7,
        "aten::clone",
    )
    assert found.cost_ns == 0


@pytest.mark.parametrize(("kept", "fires"), [(LEAST_BYTES_PER_STEP, True), (LEAST_BYTES_PER_STEP - 1, False)])
def test_a_few_numbers_per_step_are_not_a_leak(kept: int, fires: bool, tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(job([kept] * 6), tmp_path))) is not fires


@pytest.mark.parametrize(
    "kept",
    [
        [0] * 6,  # each step frees what it allocates
        [MIB, MIB, MIB, 0, 0, 0, 0, 0],  # a cache fills up
        [0, 9 * MIB, 0, 0, 0, 0],  # optimizer state, allocated in the second step
        [MIB, MIB // 2, MIB // 4, 0, 0, 0],  # libraries warm up
        [0, 0, 0, 0, 0, MIB, 0],  # a single one, late
    ],
)
def test_a_plateau_is_not_a_leak(kept: list[int], tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(job(kept), tmp_path)))


@pytest.mark.parametrize("seed", [0, *slow(*range(1, 12))])
@pytest.mark.parametrize("steps", [4, 6, 9])
def test_batches_of_changing_sizes_are_not_a_leak(seed: int, steps: int, tmp_path: Path) -> None:
    """Each batch is kept until the next one is loaded, so the floor always changes."""
    draw = random.Random(seed)
    trace = TraceBuilder()
    main, batch = trace.thread(), 0
    for step in range(steps):
        at = step * 100.0
        main.step(step, at=at, us=98).op("aten::to", at=at + 5, us=10)
        main.launch("gemm", at=at + 2, us=3, runs_at=at + 6, runs_us=80)
        before, batch = batch, main.alloc(draw.randrange(MIB, 8 * MIB), at=at + 7)
        if before:
            main.free(before, at=at + 8)
    assert not isinstance(RULE.check(facts_of(trace, tmp_path)), list)


def test_a_leak_takes_three_steps_to_find(tmp_path: Path) -> None:
    answer = RULE.check(facts_of(job([MIB, MIB]), tmp_path / "two"))
    assert isinstance(answer, CannotTell)
    assert "five steps" in answer.how_to_record
    of_three = only(RULE.check(facts_of(job([MIB] * 3), tmp_path / "three")))
    assert of_three.cost_bytes_per_step == MIB


def test_cannot_tell_without_steps_memory_or_gpu(tmp_path: Path) -> None:
    for i, trace in enumerate((job([MIB] * 2, mark_steps=False), healthy(), without_gpu())):
        answer = RULE.check(facts_of(trace, tmp_path / str(i)))
        assert isinstance(answer, CannotTell)
    assert "profile_memory=True" in str(RULE.check(facts_of(healthy(), tmp_path)))


def test_the_evidence_has_the_steps_until_memory_is_full(tmp_path: Path) -> None:
    found = only(RULE.check(facts_of(job([MIB] * 6, device_bytes=118 * MIB), tmp_path)))
    # The peak: 8 MiB from before, 6 leaked, and 4 that the last step allocates before its own leak.
    evidence = figures(found)
    assert evidence["Time until full"][0] == number(100, "step")
    assert evidence["Growth per step"][0] == size(MIB)
    assert str(size(MIB, "per step")) in found.title
    assert found.severity == Severity.ERROR


@pytest.mark.parametrize("steps", [0.9, 1.1])
def test_a_leak_that_fills_memory_within_the_horizon_is_an_error(steps: float, tmp_path: Path) -> None:
    kept = 64 * 1024
    capacity = 20 * MIB + round(steps * HORIZON_STEPS * kept)
    found = only(RULE.check(facts_of(job([kept] * 6, device_bytes=capacity), tmp_path)))
    assert found.severity == (Severity.ERROR if steps < 1 else Severity.WARNING)


@pytest.mark.parametrize(
    ("scenario", "cause"),
    [
        ("leak_kept_graph", "retained autograd graph"),
        pytest.param("leak_retained_graph", "retained autograd graph", marks=pytest.mark.slow),
        ("leak_growing_cache", "growing cache"),
        pytest.param("leak_hooks", "retained module outputs", marks=pytest.mark.slow),
        pytest.param("leak_gradients", "retained gradients", marks=pytest.mark.slow),
        pytest.param("leak_metrics", "retained small tensors", marks=pytest.mark.slow),
    ],
)
def test_the_usual_causes_are_recognized(scenario: str, cause: str, tmp_path: Path) -> None:
    found = only(RULE.check(Facts(read_trace(str(simulate(scenario).write(tmp_path))))))
    assert found.title.partition(": ")[2] == cause
    assert found.fix.code


@pytest.mark.parametrize(("after", "is_graph"), [(500, True), (40, False)])
def test_a_graph_is_named_unless_its_nodes_are_noted_to_be_as_many(
    after: int, is_graph: bool, tmp_path: Path
) -> None:
    text, file = simulate("leak_kept_graph").bytes().decode(), tmp_path / "noted.pt.trace.json"
    notes = {"came": {}, "went": {}, "history": [[21, 0], [33, 0]], "nodes": [[21, 40], [33, after]]}
    file.write_text(text.replace("{", f'{{"{KEY}": {json.dumps(notes)}, ', 1))
    found = only(RULE.check(Facts(read_trace(str(file)))))
    assert found.title.endswith("retained autograd graph") is is_graph


def test_a_leak_of_another_kind_has_no_named_cause(tmp_path: Path) -> None:
    found = only(RULE.check(Facts(read_trace(str(simulate("leak").write(tmp_path))))))
    assert ": " not in found.title


@pytest.mark.parametrize(
    "kept", [[MIB] * 23 + [0], [MIB, 0, 0] * 8, [0] * 4 + [MIB, 0] * 10, [MIB, MIB, 0, 0, 0, 0] * 4]
)
def test_growth_that_pauses_as_before_is_a_leak(kept: list[int], tmp_path: Path) -> None:
    assert only(RULE.check(facts_of(job(kept), tmp_path)))


def test_a_leak_that_ends_the_job_is_part_of_the_verdict(tmp_path: Path) -> None:
    leaking, healthy_one = (
        find_verdict(facts_of(job([kept] * 6, device_bytes=118 * MIB), tmp_path / str(kept)))
        for kept in (MIB, 0)
    )
    full = f"is full after about {number(100, 'step')}"
    assert leaking.sentence == f"GPU 0 memory grows and {full}. {healthy_one.sentence}"
    assert plain(leaking.headline) == "Memory leak on GPU 0: 1 MiB per step"
    assert healthy_one.headline == ""
    assert leaking.limiter == healthy_one.limiter
    small = find_verdict(facts_of(job([LEAST_BYTES_PER_STEP] * 6), tmp_path / "small"))
    assert (small.sentence, small.headline) == (healthy_one.sentence, "")


MODULE = "/opt/lib/python3.11/site-packages/torch/nn/modules/linear.py(125): forward"
ENGINE = "??(0): torch::autograd::Engine::evaluate_function(...)"


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("stacks", "cause"),
    [
        ([["train.py(9): keep"]], ""),
        ([["train.py(5): train", MODULE, "model.py(20): forward"]], "retained module outputs"),
        (
            [
                ["train.py(5): train", MODULE, "model.py(20): forward"],
                ["train.py(5): train", MODULE, "model.py(21): forward"],
            ],
            "retained autograd graph",
        ),
        ([["train.py(6): train", ENGINE]], "retained gradients"),
    ],
)
def test_a_snapshot_shows_the_cause_by_its_stacks(
    stacks: list[list[str]], cause: str, marked: bool, tmp_path: Path
) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(200 * MIB, at=0)
    for step in range(16):
        at = 1_000 * (step + 1)
        if marked:
            snapshot.step(step, at=at, us=1_000)
        for part in range(3):  # a sawtooth curve
            taken = snapshot.allocate(8 * MIB, at=at + 300 * part, stack=["train.py(4): train"])
            snapshot.free(taken, at=at + 300 * part + 100, stack=["train.py(4): train"])
        for i, stack in enumerate(stacks):
            snapshot.allocate(MIB, at=at + 910 + i, stack=stack)
    found = only(RULE.check(Facts(read_trace(str(snapshot.write(tmp_path))))))
    assert found.title.partition(": ")[2] == cause
    assert found.cost_bytes_per_step == len(stacks) * MIB


def test_what_repeats_replaces_steps_that_are_not_marked(tmp_path: Path) -> None:
    found = only(RULE.check(facts_of(job([MIB] * 6, mark_steps=False), tmp_path)))
    assert found.cost_bytes_per_step == MIB
    assert "1 MiB per repetition" in found.title.replace("\xa0", " ")
    assert "marks no steps" in found.summary


def test_what_repeats_without_training_is_called_no_step(tmp_path: Path) -> None:
    """It may be a batch, an epoch or a token."""
    snapshot = SnapshotBuilder()
    snapshot.segment(64 * MIB)
    for at in range(100):
        result = snapshot.allocate(
            MIB, at=100 * at, stack=["go.py(4): main", MODULE_FRAME, "model.py(9): forward"]
        )
        snapshot.allocate(64 * 1024, at=100 * at + 5, stack=["go.py(4): main", "go.py(7): keep"])
        snapshot.free(result, at=100 * at + 9)
    found = only(RULE.check(Facts(read_trace(str(snapshot.write(tmp_path))))))
    assert "64 KiB per repetition" in found.title.replace("\xa0", " ")


@pytest.mark.parametrize("change", [8, 12, 18])
def test_a_rate_that_changed_is_that_of_the_end(change: int, tmp_path: Path) -> None:
    found = only(RULE.check(facts_of(job([MIB] * change + [5 * MIB] * (24 - change)), tmp_path)))
    assert found.cost_bytes_per_step == 5 * MIB
    assert found.cost_bytes == MIB * (change - 1) + 5 * MIB * (23 - change)
    assert "another rate before" in found.summary


@pytest.mark.parametrize("seed", [0, 1, *slow(*range(2, 8))])
def test_uneven_growth_is_no_change_of_the_rate(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    kept = [draw.randrange(MIB // 2, 2 * MIB) for _ in range(24)]
    assert "another rate" not in only(RULE.check(facts_of(job(kept), tmp_path))).summary


def test_small_tensors_take_what_the_allocator_rounds_them_to(tmp_path: Path) -> None:
    snapshot = SnapshotBuilder()
    snapshot.segment(64 * MIB)
    for step in range(12):
        snapshot.step(step, at=1_000 * step, us=990)
        for i in range(100):
            snapshot.allocate(8, at=1_000 * step + i, stack=["go.py(4): main", "go.py(7): keep"])
    found = only(RULE.check(Facts(read_trace(str(snapshot.write(tmp_path))))))
    assert found.cost_bytes_per_step == 100 * 512


def _one_long_step(line: str, folder: Path, *, operator: str = "aten::relu") -> RuleAnswer:
    return RULE.check(_facts_of_one_long_step(line, folder, operator))


def _facts_of_one_long_step(line: str, folder: Path, operator: str = "aten::relu") -> Facts:
    """A sawtooth that rises for 64 ms and repeats nothing: this line keeps 64 tensors of 1 MiB."""
    trace, draw = TraceBuilder(), random.Random(3)
    main = trace.thread()
    if line.startswith("nn.Module"):
        main.frame("nn.Module: Net_0", at=0, us=64_000)
    main.frame("model.py(3): run", at=1, us=63_990)
    for tooth in range(64):
        at = 2 + 999.0 * tooth
        for part in range(3):
            name = draw.choice(["mm", "conv2d", "cat", "mul", "softmax"])
            backward = operator.startswith("autograd::")
            main.op(
                f"{operator.split()[0]} {name}Backward0" if backward else f"aten::{name}",
                at=at + 100 * part,
                us=80,
            )
            taken = main.alloc(draw.randrange(8, 64) * MIB, at=at + 100 * part + 10)
            main.free(taken, at=at + 100 * part + 60)
        main.frame(line, at=at + 500, us=100)
        main.op(operator, at=at + 510, us=50)
        main.alloc(MIB, at=at + 520)
    return facts_of(trace, folder)


@pytest.mark.parametrize(
    ("line", "operator"),
    [
        ("nn.Module: Block_0", "aten::relu"),
        ("train.py(9): fit", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
    ],
)
def test_what_one_forward_or_backward_pass_keeps_is_no_leak(line: str, operator: str, tmp_path: Path) -> None:
    answer = _one_long_step(line, tmp_path, operator=operator)
    assert isinstance(answer, CannotTell)
    assert "a leak, 3 in 10" in answer.reason


def test_without_steps_a_falling_floor_is_no_leak(tmp_path: Path) -> None:
    """Whatever a line keeps: windows of time are phases of one pass."""
    (memory,) = _facts_of_one_long_step("serve.py(9): remember", tmp_path).memory
    trend = memory.trend
    assert floor_state(memory) == "rising"
    assert trend is not None
    falling = replace(trend, per_unit=-trend.per_unit, low=-2 * trend.high, high=2 * trend.high)
    vars(memory)["trend"] = falling  # computed once
    assert floor_state(memory) != "rising"


def test_without_steps_growth_is_what_was_seen_and_no_rate(tmp_path: Path) -> None:
    found = only(_one_long_step("serve.py(9): remember", tmp_path))
    assert re.search(r"grows by 60\.0\sMiB in 59\.5\sms", found.title)
    assert "full" not in found.summary
    assert not [e for e in found.evidence if "second" in e.label + e.text]
