"""What a job that ran out of memory could do without comes first; the size of its steps after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.memory.waste import WasteKind
from tb_gpudiag.rules.memory.memory_peak import RULE
from tests.builder import SnapshotBuilder
from tests.rules.memory.test_failure_advice import FORWARD, INIT, STEP, fail
from tests.rules.memory.test_failure_causes import (
    BACKWARD,
    CALL,
    TORCH,
    facts_at,
    found_in,
    small_model,
)
from tests.rules.memory_stage import MIB, only
from tests.wording.plain import plain

LAYER = [*FORWARD, f"{TORCH}/nn/modules/linear.py(5): forward"]
OTHER_LAYER = [*FORWARD, f"{TORCH}/nn/modules/activation.py(5): forward"]


def steps(count: int, *, kept_mib: int = 0, gradients_mib: int = 0) -> SnapshotBuilder:
    """Steps with activations of 60 MiB, of which each keeps something, and gradients that the next one frees
    first."""
    snapshot = small_model()
    snapshot.segment((62 + gradients_mib) * MIB, at=2)
    gradients: int | None = None
    for step in range(count):
        at = 100 + 100 * step
        if gradients is not None:
            snapshot.free(gradients, at=at)
        made = [snapshot.allocate(30 * MIB, at=at + 1 + i, stack=LAYER) for i in range(2)]
        if kept_mib:
            snapshot.segment(kept_mib * MIB, at=at + 4)
            snapshot.allocate(kept_mib * MIB, at=at + 5, stack=["train.py(9): fit", "log.py(3): note"])
        made.append(snapshot.allocate(512, at=at + 10, stack=["train.py(6): fit", BACKWARD]))
        if gradients_mib:
            gradients = snapshot.allocate(gradients_mib * MIB, at=at + 11)
        for address in made:
            snapshot.free(address, at=at + 12)
    return snapshot


def test_what_was_kept_since_a_step_of_the_same_size_fitted_is_why(tmp_path: Path) -> None:
    snapshot = steps(3, kept_mib=40)
    snapshot.allocate(30 * MIB, at=801, stack=LAYER)
    snapshot.allocate(20 * MIB, at=802, stack=["train.py(9): fit", "log.py(3): note"])
    found = found_in(fail(snapshot, 30, LAYER), tmp_path)
    text = found.fix.text
    assert "An earlier step got as much at this point. Since then, 120 MiB have come" in plain(found.summary)
    assert "What earlier steps made still holds 120" in text
    assert "Shard" not in text
    assert "smaller batches" not in text


def test_a_step_that_has_grown_is_why_whatever_the_weights_take(tmp_path: Path) -> None:
    snapshot = steps(2)
    snapshot.segment(300 * MIB, at=3)
    snapshot.allocate(300 * MIB, at=4, stack=["train.py(2): main", INIT])
    found = found_in(fail(snapshot, 90, LAYER), tmp_path)
    assert "The request is 3× what earlier steps got at this point." in plain(found.summary)
    assert "Use smaller batches" in found.fix.text
    assert "Shard" not in found.fix.text


def test_what_a_step_itself_keeps_for_its_backward_pass_is_no_waste(tmp_path: Path) -> None:
    """Layers that were frozen record no graph in the first steps, and ask for as much."""
    snapshot = small_model()
    snapshot.segment(95 * MIB, at=2)
    for step in range(3):
        at = 10 + 20 * step
        for layer in range(4):
            passing = snapshot.allocate(30 * MIB, at=at + 2 * layer, stack=LAYER)
            snapshot.free(passing, at=at + 2 * layer + 1)
        saved = snapshot.allocate(MIB, at=at + 10, stack=OTHER_LAYER)
        snapshot.allocate(512, at=at + 11, stack=["train.py(6): fit", BACKWARD])
        snapshot.free(saved, at=at + 12)
    for layer in range(3):
        snapshot.allocate(30 * MIB, at=100 + layer, stack=LAYER)
    found = found_in(fail(snapshot, 30, LAYER, free_mib=0), tmp_path)
    assert "earlier steps" not in found.fix.text


def test_a_larger_pass_that_does_not_begin_as_a_step_is_an_evaluation(tmp_path: Path) -> None:
    """Gradients of the last step are there, which steps of the training free first."""
    found = found_in(fail(steps(3, gradients_mib=10), 90, LAYER), tmp_path)
    assert "seems to need no gradients" in found.fix.text


def test_results_that_calls_without_a_graph_left_are_moved_to_the_host(tmp_path: Path) -> None:
    """Their sizes differ: no request is like one before."""
    snapshot = small_model()
    snapshot.segment(30 * MIB, at=2)
    for call in range(6):
        at = 100 + 100 * call
        hidden = [snapshot.allocate((5 + call) * MIB, at=at, stack=LAYER) for _ in range(3)]
        snapshot.segment((30 + call) * MIB, at=at + 1)
        snapshot.allocate((30 + call) * MIB, at=at + 2, stack=OTHER_LAYER)
        for address in hidden:
            snapshot.free(address, at=at + 3)
        snapshot.allocate(512, at=at + 4, stack=["train.py(5): fit"])
    found = found_in(fail(snapshot, 100, LAYER), tmp_path)
    assert "Results of modules from earlier steps" in found.fix.text
    assert "checkpoint" not in found.fix.code


def test_data_older_than_the_model_comes_before_its_state(tmp_path: Path) -> None:
    """It was there before the model."""
    snapshot = SnapshotBuilder()
    snapshot.segment(300 * MIB, at=0)
    snapshot.allocate(200 * MIB, at=1, stack=["train.py(2): main", "data.py(7): load"])
    snapshot.allocate(30 * MIB, at=3, stack=["train.py(3): main", INIT])
    snapshot.allocate(20 * MIB, at=5, stack=["train.py(5): fit", CALL, "model.py(8): forward"])
    found = found_in(fail(snapshot, 60, ["train.py(7): fit", STEP]), tmp_path)
    assert "Data that was put on the GPU before the first step holds 200" in found.fix.text
    assert "Shard" not in found.fix.text


def test_a_model_that_training_has_left_behind_comes_before_sharding(tmp_path: Path) -> None:
    """The second model is another one, and has gradients of its own. Those of the first are still there."""
    snapshot = SnapshotBuilder()
    snapshot.segment(200 * MIB, at=0)
    for i, mib in enumerate((40, 20)):
        at = 10 + 100 * i
        snapshot.allocate(mib * MIB, at=at, stack=[f"train.py({3 + i}): main", INIT])
        snapshot.allocate(mib * MIB, at=at + 2, stack=["train.py(6): main", BACKWARD])
        if not i:
            snapshot.allocate(2 * mib * MIB, at=at + 4, stack=["train.py(7): main", STEP])
    found = found_in(fail(snapshot, 20, ["train.py(8): main", STEP]), tmp_path)
    assert "Models that were trained before are still there" in found.fix.text
    assert "Shard" not in found.fix.text


@pytest.mark.parametrize(
    ("sizes", "replaces", "grows"),
    [((70, 80, 90, 100), True, True), ((80, 70, 90, 100), True, False), ((70, 80, 90, 100), False, False)],
)
def test_a_tensor_that_a_line_makes_anew_and_larger_is_joined_on_the_host(
    sizes: tuple[int, ...], replaces: bool, grows: bool, tmp_path: Path
) -> None:
    """Sizes go up and down with the length of a batch. And a line may make what stays, larger each time."""
    snapshot, line, old = small_model(), ["score.py(5): main", "score.py(9): collect"], 0
    for i, mib in enumerate(sizes):
        snapshot.segment(mib * MIB, at=10 + 3 * i)
        made = snapshot.allocate(mib * MIB, at=11 + 3 * i, stack=line)
        if old and replaces:
            snapshot.free(old, at=12 + 3 * i)
        old = made
    facts = facts_at(fail(snapshot, 110, line), tmp_path)
    assert (WasteKind.GROWN in {waste.kind for waste in facts.memory[0].shortage.waste}) is grows
    assert ("makes one tensor anew and larger each time" in only(RULE.check(facts)).fix.text) is grows


@pytest.mark.parametrize(("trained", "left"), [((20,), True), ((20, 40), False)])
def test_a_model_whose_gradients_were_freed_is_left_behind_all_the_same(
    trained: tuple[int, ...], left: bool, tmp_path: Path
) -> None:
    """Its optimizer's state is older than the second model, which alone has gradients. Layers that are added
    to a model are trained with it."""
    snapshot = SnapshotBuilder()
    snapshot.segment(160 * MIB, at=0)
    snapshot.allocate(40 * MIB, at=10, stack=["train.py(3): main", INIT])
    gradients = snapshot.allocate(40 * MIB, at=12, stack=["train.py(6): main", BACKWARD])
    snapshot.allocate(80 * MIB, at=14, stack=["train.py(7): main", STEP])
    snapshot.free(gradients, at=15)
    snapshot.allocate(20 * MIB, at=20, stack=["train.py(4): main", INIT])
    for mib in trained:
        snapshot.segment(mib * MIB, at=21)
        snapshot.allocate(mib * MIB, at=22, stack=["train.py(8): main", BACKWARD])
    found = found_in(fail(snapshot, 40, ["train.py(9): main", STEP]), tmp_path)
    assert ("Models that were trained before are still there" in found.fix.text) is left
