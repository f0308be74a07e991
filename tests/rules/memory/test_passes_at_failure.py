"""Which passes a failure interrupts, and which ones hold its memory: by where they are called, and what their
backward passes let go of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.facts.memory.waste import WasteKind
from tests.rules.memory.test_failure_advice import FORWARD, fail
from tests.rules.memory.test_failure_causes import BACKWARD, CALL, TORCH, facts_at, small_model
from tests.rules.memory.test_waste_advice import LAYER
from tests.rules.memory_stage import MIB

ENGINE = ["train.py(6): fit", BACKWARD]


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
