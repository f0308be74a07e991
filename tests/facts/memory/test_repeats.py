"""Steps that are inferred from allocations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.repeats import MOST_MICRO_BATCHES
from tb_gpudiag.trace.read import read_trace
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.facts import facts_of
from tests.with_each import with_each

MB = 1 << 20
TRAIN = "train.py(3): main"
MODULE = "/opt/lib/python3.11/site-packages/torch/nn/modules/module.py(1): _call_impl"
BACKWARD = "/opt/lib/python3.11/site-packages/torch/_tensor.py(560): backward"
ZERO_GRAD = "/opt/lib/python3.11/site-packages/torch/optim/optimizer.py(1049): zero_grad"
OPTIMIZER = "/opt/lib/python3.11/site-packages/torch/optim/adamw.py(220): step"


class Job:
    """A job whose allocations are 10 µs apart."""

    def __init__(self) -> None:
        self.snapshot = SnapshotBuilder()
        self.snapshot.segment(1 << 34, at=0)
        self._at = 10
        self.cache = list[int]()

    def take(self, size: int, *stack: str) -> int:
        self._at += 10
        return self.snapshot.allocate(size, at=self._at, stack=[TRAIN, *stack])

    def free(self, *addresses: int, stack: str = TRAIN) -> None:
        for address in addresses:
            self._at += 1
            self.snapshot.free(address, at=self._at, stack=[TRAIN, stack])

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


def accumulating_until_gradients_are_freed(job: Job, step: int) -> None:
    gradient = job.take(MB, "train.py(12): fit")
    for _ in range(4):
        job.backward(job.forward())
    job.free(gradient, stack=ZERO_GRAD)


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


def evaluating_every_other_time(job: Job, step: int) -> None:
    plain(job, step)
    if step % 2:
        job.free(*job.forward(), *(job.take(MB, f"train.py({line}): evaluate") for line in range(14, 24)))


def generating(job: Job, step: int) -> None:
    job.free(*job.forward(1), job.take(MB, "data.py(5): load"))
    cache = [job.take((step + 4) * MB, "train.py(15): attend") for _ in range(3)]
    job.free(*job.cache)
    job.cache = cache


def inference(job: Job, step: int) -> None:
    batch = job.take(MB, "data.py(5): load")
    job.free(batch, *job.forward())


@pytest.mark.slow
@with_each(
    "step",
    [
        plain,
        without_optimizer_memory,
        accumulating,
        accumulating_without_optimizer_memory,
        accumulating_until_gradients_are_freed,
        two_optimizers,
        changing_sizes,
        evaluating_now_and_then,
        evaluating_every_other_time,
        inference,
    ],
)
@with_each("kept", [4096, 64 * MB])
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


def test_a_cache_that_is_replaced_by_a_larger_one_hides_no_steps() -> None:
    job = Job()
    for step in range(10):
        generating(job, step)
    assert job.memory.floors.periods.word == "repetition"
    assert len(job.memory.floors) == 9


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


OF_WEIGHTS = [
    ["model.py(12): __init__"],
    ["/opt/lib/python3.11/site-packages/torch/nn/modules/module.py(900): _apply"],
    ["/opt/lib/python3.11/site-packages/torch/nn/modules/module.py(2500): load_state_dict"],
    ["/opt/lib/python3.11/site-packages/safetensors/torch.py(300): load_file"],
    ["/opt/lib/python3.11/site-packages/transformers/modeling_utils.py(4000): from_pretrained"],
    ["/opt/lib/python3.11/site-packages/torch/serialization.py(1300): load"],
]


@pytest.mark.parametrize("stack", OF_WEIGHTS)
def test_weights_are_no_steps(stack: list[str]) -> None:
    job = Job()
    for _ in range(250):
        job.take(MB, *stack)
        job.free(job.take(MB, *stack))
    assert not job.memory.floors.periods.inferred


def test_steps_are_found_behind_the_loading_of_weights() -> None:
    job = Job()
    for _ in range(50):
        job.take(MB, *OF_WEIGHTS[3])
    for number in range(10):
        plain(job, number)
        job.take(4096, "train.py(7): keep")
    trend = job.memory.trend
    assert trend is not None
    assert (trend.unit, trend.per_unit) == ("step", 4096)


def test_what_the_engine_allocates_without_frames_is_one_place_whatever_its_size() -> None:
    job = Job()
    for number in range(8):
        kept = job.forward()
        job._at += 10
        gradients = [job.snapshot.allocate(MB + 512 * (7 * number + i), at=job._at + i) for i in range(5)]
        job._at += 5
        job.free(*kept, *gradients)
        job.take(MB, "train.py(7): keep")
    trend = job.memory.trend
    assert trend is not None
    assert (trend.unit, trend.per_unit) == ("step", MB)


def test_each_call_of_the_model_is_a_step_where_nothing_trains() -> None:
    trace = TraceBuilder()
    main = trace.thread()
    for request in range(8):
        at = 1_000 * request
        main.frame("nn.Module: Net_0", at=at, us=900)
        for layer in range(6):
            main.frame(f"nn.Module: Linear_{layer}", at=at + 10 + 100 * layer, us=90)
            main.op("aten::addmm", at=at + 20 + 100 * layer, us=50)
            taken = main.alloc(MB, at=at + 30 + 100 * layer)
            if layer < 5:  # the last layer's output is kept
                main.free(taken, at=at + 60 + 100 * layer)
    (memory,) = facts_of(trace).memory
    trend = memory.trend
    assert trend is not None
    assert memory.floors.periods.inferred
    assert (trend.unit, trend.per_unit) == ("step", MB)


def test_steps_without_a_model_are_no_single_operators_of_a_line() -> None:
    """A line that computes allocates several times, as often as any other or more."""
    job, joined = Job(), list[int]()
    for step in range(10):
        points = [job.take(MB, "map.py(4): scan") for _ in range(2)]
        job.free(*(job.take(4096, "map.py(5): turn") for _ in range(60 + step)))
        larger = job.take((step + 1) * MB, "map.py(6): join")
        job.free(*joined, *points)
        joined = [larger]
    trend = job.memory.trend
    assert trend is not None
    assert (trend.word, trend.per_unit, trend.steps) == ("repetition", MB, 8)


def test_weights_that_the_jobs_own_code_loads_are_no_steps() -> None:
    """A loop that only keeps what it allocates, and one that ends long before the recording does."""
    loads = Job()
    for _ in range(80):
        loads.free(loads.take(MB, "weights.py(4): read"))
        loads.take(MB, "weights.py(5): read")
    assert not loads.memory.floors.periods.inferred
    runs = Job()
    for _ in range(80):
        runs.free(*(runs.take(MB, "weights.py(4): read") for _ in range(3)))
        runs.take(MB, "weights.py(5): read")
    for line in range(200):
        runs.free(runs.take(MB, MODULE, f"model.py({line}): layer"))
    assert not runs.memory.floors.periods.inferred


@pytest.mark.parametrize(("passes", "steps"), [(12, False), (MOST_MICRO_BATCHES + 4, True)])
def test_micro_batches_before_their_backward_pass_are_no_steps(passes: int, steps: bool) -> None:
    """They keep their activations on purpose. So many of them are no micro-batches."""
    job = Job()
    for _ in range(passes):
        batch = job.take(MB, "data.py(5): load")
        job.forward()
        job.free(batch)
    assert job.memory.floors.periods.inferred is steps
