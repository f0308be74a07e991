"""Which passes a failure interrupts, and which ones hold its memory: by where they are called, and what their
backward passes let go of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.waste import WasteKind
from tests.rules.memory.test_failure_advice import FORWARD, fail
from tests.rules.memory.test_failure_causes import BACKWARD, CALL, TORCH, facts_at, found_in, small_model
from tests.rules.memory.test_waste_advice import LAYER, steps
from tests.rules.memory_stage import MIB

ENGINE = ["train.py(6): fit", BACKWARD]


def test_an_evaluation_at_a_line_of_its_own_is_compared_with_the_training(tmp_path: Path) -> None:
    validates = ["train.py(20): validate", *LAYER[1:]]
    found = found_in(fail(steps(3, gradients_mib=10), 90, validates), tmp_path)
    assert "seems to need no gradients" in found.fix.text


@pytest.mark.parametrize("retains", [True, False])
def test_graphs_that_their_backward_passes_keep_are_retained(retains: bool, tmp_path: Path) -> None:
    snapshot = small_model()
    for step in range(4):
        at = 10 + 10 * step
        snapshot.segment(42 * MIB, at=at)
        made = [snapshot.allocate(20 * MIB, at=at + 1 + i, stack=LAYER) for i in range(2)]
        snapshot.allocate(512, at=at + 4, stack=ENGINE)
        for address in [] if retains else made:
            snapshot.free(address, at=at + 5)
    (memory,) = facts_at(fail(snapshot, 60, LAYER), tmp_path).memory
    retained = [waste.bytes for waste in memory.shortage.waste if waste.kind is WasteKind.RETAINED]
    assert retained == ([160 * MIB] if retains else [])


@pytest.mark.parametrize("calls", [1, 4])
def test_equal_layers_of_one_pass_are_no_passes(calls: int, tmp_path: Path) -> None:
    """A pass in another function waits for its first backward pass: four graphs wait for none."""
    snapshot = small_model()
    snapshot.segment(300 * MIB, at=2)
    trained = snapshot.allocate(10 * MIB, at=10, stack=LAYER)
    snapshot.allocate(512, at=11, stack=ENGINE)
    snapshot.free(trained, at=12)
    caller = ["train.py(30): tune", *FORWARD[1:]]
    for call in range(calls):
        for layer in range(4):
            snapshot.allocate(10 * MIB, at=20 + 10 * call + layer, stack=[*caller, LAYER[-1]])
        snapshot.allocate(MIB, at=28 + 10 * call, stack=[*caller, f"{TORCH}/nn/modules/loss.py(5): forward"])
    (memory,) = facts_at(fail(snapshot, 200, [*caller, LAYER[-1]]), tmp_path).memory
    lost = [waste for waste in memory.shortage.waste if waste.kind is WasteKind.LOST_PASSES]
    assert len(lost) == (calls > 1)


@pytest.mark.parametrize(("passes", "accumulates", "lost"), [(2, False, 1), (1, False, 0), (2, True, 0)])
def test_two_passes_that_begin_beside_gradients_train_nothing(
    passes: int, accumulates: bool, lost: int, tmp_path: Path
) -> None:
    """Steps of the training free them first, unless they accumulate them: then two passes may be a step."""
    snapshot = small_model()
    snapshot.segment(300 * MIB, at=2)
    gradients = list[int]()
    for step in range(3):
        at = 10 + 10 * step
        for address in [] if accumulates else gradients:
            snapshot.free(address, at=at)
        made = [
            snapshot.allocate(5 * MIB, at=at + 1, stack=LAYER),
            snapshot.allocate(512, at=at + 2, stack=ENGINE),
        ]
        gradients = [snapshot.allocate(10 * MIB, at=at + 3)]
        for address in made:
            snapshot.free(address, at=at + 4)
    tunes = [["train.py(30): tune", CALL, f"model.py({layer}): forward"] for layer in range(4)]
    for number in range(passes):
        for layer in range(4):
            snapshot.allocate(10 * MIB, at=50 + 10 * number + layer, stack=tunes[layer])
        snapshot.allocate(512, at=55 + 10 * number, stack=["train.py(31): tune"])
    (memory,) = facts_at(fail(snapshot, 400, tunes[0]), tmp_path).memory
    assert [waste.kind for waste in memory.shortage.waste].count(WasteKind.LOST_PASSES) == lost


@pytest.mark.parametrize("frozen", [True, False])
def test_what_no_earlier_pass_saved_at_a_line_is_temporary(frozen: bool, tmp_path: Path) -> None:
    """A frozen tower lets go of its results before the backward pass."""
    tower = ["train.py(4): fit", CALL, f"{TORCH}/nn/modules/linear.py(125): forward"]
    snapshot = small_model()
    snapshot.segment(300 * MIB, at=2)
    for step in range(2):
        at = 10 + 10 * step
        passing = snapshot.allocate(20 * MIB, at=at, stack=tower)
        if frozen:
            snapshot.free(passing, at=at + 1)
        saved = snapshot.allocate(20 * MIB, at=at + 2, stack=LAYER)
        snapshot.allocate(512, at=at + 3, stack=ENGINE)
        for address in [saved] if frozen else [passing, saved]:
            snapshot.free(address, at=at + 4)
    snapshot.allocate(100 * MIB, at=50, stack=tower)
    failure = facts_at(fail(snapshot, 400, tower), tmp_path).memory[0].failure
    assert failure is not None
    assert failure.held.kinds[MemoryKind.TEMPORARY if frozen else MemoryKind.ACTIVATION] == 100 * MIB


@pytest.mark.parametrize(
    ("count", "caller", "follows", "elsewhere"),
    [
        (3, "train.py(20): main", False, True),
        (2, "train.py(20): main", False, False),
        (3, "train.py(20): main", True, False),
        (3, LAYER[0], False, False),
    ],
)
def test_a_larger_pass_where_nothing_was_trained_is_an_evaluation(
    count: int, caller: str, follows: bool, elsewhere: bool, tmp_path: Path
) -> None:
    """After several steps, and first of all since the last one: what comes later is a part of a step."""
    snapshot = steps(count)
    if follows:
        snapshot.allocate(MIB, at=800, stack=LAYER)
    found = found_in(fail(snapshot, 90, [caller, *LAYER[1:]]), tmp_path)
    assert ("it is called where nothing was trained" in found.fix.text) is elsewhere
    assert ("accumulate their gradients" in found.fix.text) is not elsewhere
