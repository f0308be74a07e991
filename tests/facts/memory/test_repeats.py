"""Steps that are inferred from allocations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder

MB = 1 << 20
TRAIN = "train.py(3): main"
MODULE = "/opt/lib/python3.11/site-packages/torch/nn/modules/module.py(1): _call_impl"
BACKWARD = "/opt/lib/python3.11/site-packages/torch/_tensor.py(560): backward"
OPTIMIZER = "/opt/lib/python3.11/site-packages/torch/optim/adamw.py(220): step"


class Job:
    """A job whose allocations are 10 µs apart."""

    def __init__(self) -> None:
        self.snapshot = SnapshotBuilder()
        self.snapshot.segment(1 << 34, at=0)
        self._at = 10

    def take(self, size: int, *stack: str) -> int:
        self._at += 10
        return self.snapshot.allocate(size, at=self._at, stack=[TRAIN, *stack])

    def free(self, *addresses: int) -> None:
        for address in addresses:
            self._at += 1
            self.snapshot.free(address, at=self._at, stack=[TRAIN])

    def forward(self, layers: int = 4, size: int = MB) -> list[int]:
        return [
            self.take(size, MODULE, f"model.py({20 + part}): layer") for _ in range(layers) for part in (0, 1)
        ]

    def backward(self, kept: list[int]) -> None:
        gradient = self.take(MB, "train.py(9): fit", BACKWARD)
        self.free(*kept, gradient)

    def update(self, line: int = 10) -> None:
        self.free(self.take(MB, f"train.py({line}): fit", OPTIMIZER))

    @property
    def memory(self) -> DeviceMemory:
        with tempfile.TemporaryDirectory() as folder:
            (memory,) = Facts(read_trace(str(self.snapshot.write(Path(folder))))).memory
        return memory


def plain(job: Job, step: int) -> None:
    job.backward(job.forward())
    job.update()


def without_optimizer_memory(job: Job, step: int) -> None:
    job.backward(job.forward())


def accumulating(job: Job, step: int) -> None:
    for _ in range(4):
        job.backward(job.forward())
    job.update()


def accumulating_without_optimizer_memory(job: Job, step: int) -> None:
    for _ in range(4):
        job.backward(job.forward())
    job.free(job.take(MB, "train.py(12): clip"))


def two_optimizers(job: Job, step: int) -> None:
    for line in (10, 11):
        job.backward(job.forward(layers=line - 8))
        job.update(line)


def changing_sizes(job: Job, step: int) -> None:
    job.backward(job.forward(size=MB * (1 + step * 7 % 5)))
    job.update()


def evaluating_now_and_then(job: Job, step: int) -> None:
    plain(job, step)
    if step % 4 == 3:
        job.free(*job.forward(), job.take(MB, "train.py(14): evaluate"))


def inference(job: Job, step: int) -> None:
    batch = job.take(MB, "data.py(5): load")
    job.free(batch, *job.forward())


@pytest.mark.parametrize(
    "step",
    [
        plain,
        without_optimizer_memory,
        accumulating,
        accumulating_without_optimizer_memory,
        two_optimizers,
        changing_sizes,
        evaluating_now_and_then,
        inference,
    ],
)
@pytest.mark.parametrize("kept", [4096, 64 * MB])
def test_a_step_is_found_whatever_it_consists_of(step: Callable[[Job, int], None], kept: int) -> None:
    """The slope per step is what each step retains, so one period is one step."""
    job = Job()
    for number in range(10):
        step(job, number)
        job.take(kept, "train.py(7): keep")
    memory = job.memory
    assert memory.floors.periods.inferred
    assert memory.trend is not None
    assert (memory.trend.unit, memory.trend.per_unit) == ("step", kept)


@pytest.mark.parametrize("layers", [12, 48])
def test_layers_of_one_forward_pass_are_not_steps(layers: int) -> None:
    job = Job()
    job.forward(layers)
    assert len(job.memory.floors) == 0


def test_layers_of_too_few_training_steps_are_not_steps() -> None:
    job = Job()
    for _ in range(2):
        plain(job, 0)
    job.forward(24)
    assert not job.memory.floors.periods.inferred


def test_an_engine_without_frames_borders_steps() -> None:
    """With its default settings, torch records no frames of the threads that run backward."""
    job = Job()
    for _ in range(8):
        kept = job.forward()
        job._at += 10
        gradient = job.snapshot.allocate(MB, at=job._at)
        job.free(*kept, gradient)
        job.take(MB, "train.py(7): keep")
    trend = job.memory.trend
    assert trend is not None
    assert (trend.unit, trend.per_unit) == ("step", MB)
