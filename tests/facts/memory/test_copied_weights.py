"""Deep copies of a real model are weights, in a trace and in a snapshot. Those of other tensors are not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.caching_allocator import MIB
from tb_gpudiag.facts.memory.memory_kinds import MemoryKind
from tb_gpudiag.trace.read import read_trace

torch = pytest.importorskip("torch")
from tests.truth.gpu_snapshot import Gpu, record, write_snapshot  # noqa: E402

pytestmark = pytest.mark.torch

LAYERS, WIDTH = 4, 256
WEIGHTS_BYTES = LAYERS * 4 * WIDTH * (WIDTH + 1)


def trains(copied: Callable[[Any], Any]) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer, kept = torch.optim.SGD(model.parameters(), lr=0.1), None
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(8, WIDTH)).square().mean().backward()
        optimizer.step()
        kept = copied(model)
    assert kept is not None


def kinds_of_both(copied: Callable[[Any], Any], folder: Path) -> list[dict[MemoryKind, int]]:
    trace, snapshot = folder / "job.pt.trace.json", folder / "job.pickle"
    record(lambda: trains(copied), trace)
    write_snapshot(trace, Gpu(64 * MIB), snapshot)
    return [memory.peak.kinds for file in (trace, snapshot) for memory in Facts(read_trace(str(file))).memory]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: copy.deepcopy(model.state_dict())])
def test_copies_of_a_model_are_weights(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    """At the peak the last copy is there beside the one before."""
    for kinds in kinds_of_both(copied, tmp_path):
        assert kinds[MemoryKind.PARAMETER] == pytest.approx(3 * WEIGHTS_BYTES, rel=0.01)


def test_copies_of_other_tensors_are_not(tmp_path: Path) -> None:
    def gradients(model: Any) -> Any:
        return copy.deepcopy({name: one.grad for name, one in model.named_parameters()})

    for kinds in kinds_of_both(gradients, tmp_path):
        assert kinds[MemoryKind.PARAMETER] == pytest.approx(WEIGHTS_BYTES, rel=0.01)
