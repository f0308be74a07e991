"""Kinds of what is alive when an allocation fails, where its pass or its update has not ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tests.facts.memory.failing import BACKWARD, CALL, INIT, TORCH, Job

FORWARD = ["train.py(5): fit", CALL, "model.py(8): forward"]
NORM = [CALL, f"{TORCH}/nn/modules/normalization.py(229): forward"]
LINEAR = [CALL, f"{TORCH}/nn/modules/linear.py(125): forward"]
FUNCTION = f"{TORCH}/nn/functional.py(2900): layer_norm"
RECOMPUTED = f"{TORCH}/utils/checkpoint.py(503): checkpoint"


@pytest.mark.parametrize(
    ("saves", "recomputes", "kind"),
    [
        (False, False, MemoryKind.TEMPORARY),
        (True, False, MemoryKind.ACTIVATION),
        (False, True, MemoryKind.ACTIVATION),
    ],
)
def test_what_layer_norms_save_shows_whether_the_first_pass_records_a_graph(
    saves: bool, recomputes: bool, kind: MemoryKind, tmp_path: Path
) -> None:
    """A graph saves a mean and a deviation of each row; blocks that are computed again save none at first."""
    job = Job()
    for layer in range(3):
        block = [*FORWARD, *[RECOMPUTED] * recomputes, f"model.py({20 + layer}): block"]
        job.make([*block, *NORM, FUNCTION], 20)
        statistics = [job.make([*block, *NORM, FUNCTION], 0.1) for _ in range(2)]
        if not saves:
            job.drop(statistics)
        job.make([*block, *LINEAR], 20)
    failure = job.fail([*FORWARD, *LINEAR], 900, tmp_path).memory[0].failure
    assert failure is not None
    assert failure.held.kinds[kind] >= 120 << 20
    assert set(failure.held.kinds) == {kind, MemoryKind.PARAMETER}


def test_state_is_no_temporary_because_earlier_optimizers_are_gone(tmp_path: Path) -> None:
    """What their updates need for a while was freed as well."""
    step = ["train.py(7): fit", f"{TORCH}/optim/adam.py(220): step"]
    makes, updates = (f"{TORCH}/optim/adam.py({line})" for line in (150, 350))
    job = Job()
    for trial in range(3):
        made = [job.make(INIT, 30), job.make(BACKWARD, 30)]
        made += [job.make([*step, f"{makes}: _init_group"], 30) for _ in range(2)]
        made.append(job.make([*step, f"{updates}: _multi_tensor_adam"], 20))
        if trial < 2:
            job.drop(made)
    failure = job.fail([*step, f"{updates}: _multi_tensor_adam"], 900, tmp_path).memory[0].failure
    assert failure is not None
    assert failure.held.kinds == {
        MemoryKind.PARAMETER: 60 << 20,
        MemoryKind.GRADIENT: 30 << 20,
        MemoryKind.OPTIMIZER_STATE: 60 << 20,
        MemoryKind.TEMPORARY: 20 << 20,
    }
