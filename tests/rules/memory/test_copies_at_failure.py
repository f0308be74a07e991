"""Whole sets of weights and models that were left come before sharding; those in use do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.builder import SnapshotBuilder
from tests.rules.memory.test_failure_advice import INIT, STEP, fail
from tests.rules.memory.test_failure_causes import BACKWARD, TORCH, found_in
from tests.rules.memory_stage import MIB

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


def test_checkpoints_loaded_several_times_come_before_sharding(tmp_path: Path) -> None:
    """They take more than the model's own weights."""
    snapshot = trained(updates=False)
    for _ in range(4):
        snapshot.made(LOAD)
    found = found_in(fail(snapshot, 60, LOAD), tmp_path)
    assert "What torch.load() put on the GPU is still there beside the model" in found.fix.text
    assert "Shard" not in found.fix.text


def test_a_model_that_was_loaded_beside_a_head_is_no_checkpoint(tmp_path: Path) -> None:
    snapshot = trained(updates=False)
    snapshot.made(LOAD, [90, 3, 50, 3])
    assert "torch.load()" not in found_in(fail(snapshot, 60, LOAD), tmp_path).fix.text
