"""Which passes a failure interrupts, and which ones hold its memory: by where they are called, and what their
backward passes let go of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.rules.shared.shortage import Shortage
from tests.rules.memory.test_failure_advice import FORWARD, fail
from tests.rules.memory.test_failure_causes import BACKWARD, TORCH, facts_at, small_model
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
    facts = facts_at(fail(snapshot, 200, [*caller, LAYER[-1]]), tmp_path)
    lost = [waste for waste in Shortage(facts.memory[0], facts).wastes if waste.name == "inference"]
    assert len(lost) == (calls > 1)
