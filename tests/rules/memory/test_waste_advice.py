"""What a job that ran out of memory could do without comes first; the size of its steps after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builder import SnapshotBuilder
from tests.rules.memory.test_failure_advice import FORWARD, INIT, STEP, fail
from tests.rules.memory.test_failure_causes import (
    BACKWARD,
    TORCH,
    found_in,
    small_model,
)
from tests.rules.memory_stage import MIB

LAYER = [*FORWARD, f"{TORCH}/nn/modules/linear.py(5): forward"]
OTHER_LAYER = [*FORWARD, f"{TORCH}/nn/modules/activation.py(5): forward"]


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
    assert "Models that were made before are all still there" in found.fix.text
    assert "Shard" not in found.fix.text


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
    assert ("Models that were made before are all still there" in found.fix.text) is left
