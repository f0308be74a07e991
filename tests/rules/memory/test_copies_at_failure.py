"""Whole sets of weights, models and steps that were left come before sharding; those in use do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builder import SnapshotBuilder
from tests.rules.memory.test_failure_advice import INIT, STEP, fail
from tests.rules.memory.test_failure_causes import BACKWARD, CALL, TORCH, found_in
from tests.rules.memory_stage import MIB
from tests.wording.plain import plain

SIZES = (16, 1, 12, 1)
LOAD = ["train.py(20): average", f"{TORCH}/serialization.py(1500): load"]
COPY = ["train.py(9): fit", "writer.py(4): save"]
STATE_COPY = ["train.py(9): fit", "writer.py(5): save"]


class Job(SnapshotBuilder):
    at = 0.0

    def made(self, stack: Sequence[str], sizes: Sequence[int] = SIZES) -> list[int]:
        """Allocate MiB of these sizes, later than what came last."""
        self.at += 20
        blocks = [block for segment in self.segments for block in segment.blocks]
        if not any(block.state == "inactive" and block.bytes >= sum(sizes) * MIB for block in blocks):
            self.segment(sum(sizes) * MIB, at=self.at - 1)
        return [self.allocate(mib * MIB, at=self.at + i, stack=stack) for i, mib in enumerate(sizes)]


def trained(*, updates: bool = True) -> Job:
    """A model of four tensors that an optimizer with two states of each has updated."""
    snapshot = Job()
    snapshot.made(["train.py(3): main", INIT])
    if updates:
        snapshot.made(["train.py(6): fit", BACKWARD])
        snapshot.made(["train.py(7): fit", STEP], [mib for mib in SIZES for _ in range(2)])
    return snapshot


@pytest.mark.parametrize("times", [2, 3])
def test_checkpoints_loaded_several_times_come_before_sharding(times: int, tmp_path: Path) -> None:
    """They take far more than the model's own weights."""
    snapshot = trained(updates=False)
    for _ in range(2 * times):
        snapshot.made(LOAD)
    found = found_in(fail(snapshot, 60, LOAD), tmp_path)
    assert "What torch.load() put on the GPU is still there beside the model" in found.fix.text
    assert "Shard" not in found.fix.text


def test_a_model_that_was_loaded_beside_a_head_is_no_checkpoint(tmp_path: Path) -> None:
    snapshot = trained(updates=False)
    snapshot.made(LOAD, [90, 3, 50, 3])
    assert "torch.load()" not in found_in(fail(snapshot, 60, LOAD), tmp_path).fix.text


def copies_named(snapshot: SnapshotBuilder, folder: Path) -> bool:
    return "Copies of weights" in found_in(fail(snapshot, 20, COPY), folder).fix.text


@pytest.mark.parametrize("sets", [1, 2])
def test_one_copy_of_the_weights_may_be_in_use_and_several_are_not(sets: int, tmp_path: Path) -> None:
    snapshot = trained()
    for _ in range(sets):
        snapshot.made(COPY)
    assert copies_named(snapshot, tmp_path) is (sets > 1)


def test_a_copy_of_the_optimizers_state_is_for_a_checkpoint(tmp_path: Path) -> None:
    """Nothing averages an optimizer's state. The copy of the weights belongs to it."""
    snapshot = trained()
    snapshot.made(COPY)
    snapshot.made(STATE_COPY, [mib for mib in SIZES for _ in range(2)])
    assert copies_named(snapshot, tmp_path)


def test_other_tensors_than_the_models_are_no_copies(tmp_path: Path) -> None:
    snapshot = trained()
    for _ in range(2):
        snapshot.made(COPY, SIZES[::-1])
    assert not copies_named(snapshot, tmp_path)


ENCODE = ["serve.py(4): encode", CALL, "encoder.py(8): forward"]
DRAW = ["serve.py(6): draw", CALL, "denoiser.py(8): forward"]


@pytest.mark.parametrize(
    ("results", "again", "idle"),
    [(3, DRAW, True), (0, DRAW, False), (3, ["eval.py(2): run", *ENCODE[1:]], False)],
)
def test_a_model_whose_results_wait_for_the_newest_is_idle(
    results: int, again: Sequence[str], idle: bool, tmp_path: Path
) -> None:
    """A teacher that was only tried out is called again, and so is one that another line calls since then."""
    snapshot = trained(updates=False)
    for i in range(3):
        (result,) = snapshot.made(ENCODE, [2])
        if i >= results:
            snapshot.free(result, at=snapshot.at + 5)
    snapshot.made(["serve.py(5): main", INIT], [9, 1, 7, 1])
    snapshot.made(again, [2])
    found = found_in(fail(snapshot, 20, DRAW), tmp_path)
    assert ("Models that ran before the newest one" in found.fix.text) is idle


MAKES_STATE = [STEP, f"{TORCH}/optim/adam.py(150): _init_group"]


@pytest.mark.parametrize(("models", "turns", "idle"), [(1, False, True), (2, False, False), (1, True, False)])
def test_an_optimizer_that_another_one_replaces_is_let_go_of(
    models: int, turns: bool, idle: bool, tmp_path: Path
) -> None:
    """Two models of the same sizes have an optimizer each, and two optimizers may step in turns."""
    pretrain, finetune = (["train.py(7): main", *MAKES_STATE], ["train.py(9): main", *MAKES_STATE])
    snapshot = trained(updates=False)
    for _ in range(models - 1):
        snapshot.made(["train.py(3): main", INIT])
    state = [mib for mib in SIZES for _ in range(2)]
    snapshot.made(pretrain, state)
    snapshot.made(finetune, state[:-3])
    if turns:
        for address in snapshot.made(pretrain[:-1], [4]):
            snapshot.free(address, at=snapshot.at + 5)
    found = found_in(fail(snapshot, 12, finetune), tmp_path)
    assert ("made at train.py:7 in main): unless it steps again" in plain(found.fix.text)) is idle


@pytest.mark.parametrize(
    ("calls", "sizes", "base", "replaced"),
    [
        (3, SIZES[:3], 1, True),
        (1, SIZES[:3], 1, False),
        (3, (9, 1, 7), 1, False),
        (3, SIZES[:3], 100, False),
    ],
)
def test_a_model_that_has_run_is_let_go_of_before_its_new_version(
    calls: int, sizes: Sequence[int], base: int, replaced: bool, tmp_path: Path
) -> None:
    """One that was only tried out, or has other sizes, may be another part of the job, and a small part of a
    large model may be an adapter."""
    snapshot = Job()
    snapshot.made(["serve.py(2): main", INIT], [base])
    snapshot.made(["serve.py(3): answer"], [1])
    snapshot.free(snapshot.made(ENCODE, [2])[0], at=snapshot.at + 5)
    snapshot.made(["serve.py(9): read", INIT])
    for _ in range(calls):
        snapshot.free(snapshot.made(ENCODE, [2])[0], at=snapshot.at + 5)
        snapshot.made(["serve.py(5): answer"], [1])
    snapshot.made(["serve.py(9): read", INIT], sizes)
    found = found_in(fail(snapshot, 1, ["serve.py(9): read", INIT]), tmp_path)
    assert ("while a new one of the same sizes is made" in found.fix.text) is replaced


@pytest.mark.parametrize("ran", [True, False])
def test_a_model_that_was_trained_is_let_go_of_before_the_next_trial(ran: bool, tmp_path: Path) -> None:
    """A teacher is made before the model of its sizes that learns from it, and has not run."""
    snapshot, makes = Job(), ["train.py(4): main", "search.py(9): trial", INIT]
    snapshot.made(["train.py(3): main", INIT], (5, 3))
    snapshot.free(snapshot.made(ENCODE, [2])[0], at=snapshot.at + 5)
    if ran:
        snapshot.made(makes, (16, 1, 1, 12))
    for _ in range(3):
        result = snapshot.made(["train.py(5): fit", CALL, "model.py(8): forward"], [2])
        gradient = snapshot.made(["train.py(6): fit", BACKWARD], [1])
        for address in result + gradient:
            snapshot.free(address, at=snapshot.at + 5)
    if not ran:
        snapshot.made(makes, (16, 1, 1, 12))
    snapshot.made(makes, (16, 1, 1))
    found = found_in(fail(snapshot, 12, makes), tmp_path)
    assert ("while a new one of the same sizes is made" in found.fix.text) is ran


LAYERS = [["train.py(5): fit", CALL, f"layer.py({line}): forward"] for line in range(4)]


def step(snapshot: Job, *, passes: int = 1, stopped: bool = False) -> None:
    """One training step, with a batch for each pass."""
    alive = list[int]()
    for _ in range(passes):
        alive += snapshot.made(["train.py(4): fit", "data.py(3): batch"], [1])
        for layer in LAYERS:
            alive += snapshot.made(layer, [10])
    if not stopped:
        alive += snapshot.made(["train.py(6): fit", BACKWARD], [1])
        snapshot.at += 20
        for i, address in enumerate(alive):
            snapshot.free(address, at=snapshot.at + i)


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize(("passes", "later", "stopped"), [(1, 0, True), (2, 0, False)])
def test_a_step_that_an_error_stopped_is_let_go_of(
    passes: int, later: int, stopped: bool, in_backward: bool, tmp_path: Path
) -> None:
    """Two passes in each step are how the job computes. The next one fails in its forward or backward one."""
    snapshot = trained(updates=False)
    for _ in range(2):
        step(snapshot, passes=passes)
    step(snapshot, stopped=True)
    for _ in range(later):
        step(snapshot, passes=passes)
    snapshot.made(["train.py(4): fit", "data.py(3): batch"], [1])
    for layer in LAYERS[: 4 if in_backward else 1]:
        snapshot.made(layer, [10])
    if in_backward:
        snapshot.made(["train.py(6): fit", BACKWARD], [1])
    found = found_in(fail(snapshot, 35, () if in_backward else LAYERS[1]), tmp_path)
    assert ("its traceback keeps them" in found.fix.text) is stopped
