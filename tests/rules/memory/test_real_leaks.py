"""Leaks of real jobs, recorded on the CPU if torch is installed."""

from __future__ import annotations

import gc
import inspect
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.answer import CannotTell, Finding
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.training.noting_tensors import NotingTensors
from tests.rules.memory_stage import only
from tests.rules.stage import is_clear

pytestmark = pytest.mark.slow

WIDTH, ROWS, STEPS = 64, 32, 6
FLOAT = 4
OUTPUT_BYTES = ROWS * WIDTH * FLOAT  # per layer


class Job:
    """A small training job. Leaks go into `kept`."""

    def __init__(self, torch: Any) -> None:
        self.torch, nn = torch, torch.nn
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = torch.rand(ROWS, WIDTH)
        self.kept: list[Any] = []
        self.cache = torch.zeros(WIDTH, WIDTH)
        self.total = torch.zeros(())
        self.filled = [torch.rand(256, 256) for _ in range(64)]
        self.ring, self.at = deque((torch.rand(256, 256) for _ in range(64)), maxlen=64), 0

    def train(self, **backward: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.model(self.batch).square().mean()
        loss.backward(**backward)
        self.optimizer.step()
        return loss


def keeps_graph(job: Job) -> None:
    job.train()
    job.kept.append(job.model(job.batch).square().mean())


def retains_graph(job: Job) -> None:
    job.kept.append(job.train(retain_graph=True))


def keeps_gradients(job: Job) -> None:
    job.train()
    job.kept.append([parameter.grad for parameter in job.model.parameters()])


def grows_cache(job: Job) -> None:
    job.train()
    job.cache = job.torch.cat([job.cache, job.torch.zeros(ROWS, WIDTH)])


def keeps_metrics(job: Job) -> None:
    job.train()
    with job.torch.no_grad():
        job.kept.append(job.torch.mm(job.batch.T, job.batch))


def keeps_maps(job: Job) -> None:
    job.train()
    with job.torch.no_grad():
        job.kept.append(job.torch.mm(job.batch.T, job.batch).softmax(-1))


def keeps_counts(job: Job) -> None:
    job.train()
    numbers = job.torch.randint(WIDTH, (512,))
    job.kept.append(job.torch.bincount(numbers, minlength=WIDTH * WIDTH))


def remembers(job: Job) -> None:
    """Keep a tensor that no module allocated and that is too large for a metric."""
    job.train()
    job.kept.append(job.torch.rand(256, 256).exp())


def keeps_penalties(job: Job) -> None:
    """Keep gradient penalties, which have a graph of the forward and of the backward pass."""
    job.train()
    batch = job.torch.rand(ROWS, WIDTH, requires_grad=True)
    (gradient,) = job.torch.autograd.grad(job.model(batch).sum(), batch, create_graph=True)
    job.kept.append((gradient.norm(dim=1) - 1).square().mean())


def keeps_an_output_and_its_gradient(job: Job) -> None:
    """As hooks for maps of activations do: there is no graph."""
    hidden = job.model[0](job.batch)
    hidden.register_hook(job.kept.append)
    job.model[1:](hidden).square().mean().backward()
    job.kept.append(hidden.detach())


def keeps_state_of_a_module(job: Job) -> None:
    """It has one for each step."""

    class Shifted(job.torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, inputs: Any) -> Any:
            job.kept.append(inputs.new_zeros(WIDTH, WIDTH))
            return inputs + job.kept[-1][0]

    Shifted()(job.batch)


def keeps_outputs_of_a_closure(job: Job) -> None:
    """Train like Lightning, inside optimizer.step()."""

    def closure() -> Any:
        output = job.model(job.batch)
        job.kept.append(output.detach().clone())
        job.optimizer.zero_grad()
        loss = output.square().mean()
        loss.backward()
        return loss

    job.optimizer.step(closure)


def replaces_the_oldest(job: Job) -> None:
    """Keep the last 64 results in a buffer that was full before the recording."""
    job.train()
    job.kept = [*(job.kept or [job.torch.rand(256, 256) for _ in range(64)])[1:], job.torch.rand(256, 256)]


def takes_larger_batches(job: Job) -> None:
    """Keep only the last batch."""
    job.batch = job.torch.rand(len(job.batch) + ROWS, WIDTH)
    job.train()


def keeps_nothing(job: Job) -> None:
    job.train()


def keeps_numbers(job: Job) -> None:
    job.kept.append(job.train().item())


def keeps_the_last_two(job: Job) -> None:
    job.train()
    job.kept = [*job.kept[-1:], job.torch.rand(256, 256)]


def sums_losses(job: Job) -> None:
    """Keep one number with the graphs of all steps."""
    job.train()
    job.total = job.total + job.model(job.batch).square().mean()


def keeps_the_last_of_a_deque(job: Job) -> None:
    """Keep the last 64 results in a deque that was full before the recording."""
    job.train()
    job.ring.append(job.torch.rand(256, 256))


def deletes_the_oldest(job: Job) -> None:
    """Keep the last 64 results in a list that was full before the recording. `del` is no call."""
    job.train()
    job.filled.append(job.torch.rand(256, 256))
    del job.filled[0]


def assigns_to_a_ring(job: Job) -> None:
    job.train()
    job.filled[job.at % 64] = job.torch.rand(256, 256)
    job.at += 1


def keeps_optimizers(job: Job) -> None:
    """Keep an optimizer of each step, and with it its state."""
    job.optimizer = job.torch.optim.Adam(job.model.parameters())
    job.train()
    job.kept.append(job.optimizer)


def makes_cycles(job: Job) -> None:
    """Leave a tensor in a reference cycle, which goes when Python's collector runs."""
    job.train()
    cycle: list[Any] = [job.torch.rand(256, 256)]
    cycle.append(cycle)


def keeps_sequences(job: Job) -> None:
    """Keep a result of another length in each step."""
    job.train()
    job.at += 1
    job.kept.append(job.torch.rand(200 + job.at * 37 % 50, WIDTH))


def pops_the_oldest(job: Job) -> None:
    """Keep the last 64 results in a list that was full before the recording."""
    job.train()
    job.filled.append(job.torch.rand(256, 256))
    job.filled.pop(0)


def line_of(function: Callable[..., None]) -> int:
    return function.__code__.co_firstlineno


def recorded(
    torch: Any,
    step: Callable[[Job], None],
    folder: Path,
    *,
    skip: int = 2,
    hook: bool = False,
    noting: bool = False,
) -> Facts:
    """Facts of STEPS recorded steps, after `skip` unrecorded ones."""
    torch.set_num_threads(1)  # more of them spin while they wait for each other: two thirds of the CPU time
    job = Job(torch)
    if hook:
        job.model[0].register_forward_hook(lambda _module, _inputs, output: job.kept.append(output.detach()))
    profiler = torch.profiler
    schedule = profiler.schedule(wait=0, warmup=skip, active=STEPS, repeat=1)
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=NotingTensors(schedule) if noting else schedule,
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder)),
        profile_memory=True,
        with_stack=True,
    ) as recording:
        for _ in range(skip + STEPS):
            step(job)
            recording.step()
    (file,) = folder.iterdir()
    return Facts(read_trace(str(file)))


@pytest.mark.parametrize(
    ("step", "cause", "least_bytes"),
    [
        (keeps_graph, "retained autograd graph", 2 * OUTPUT_BYTES),
        (retains_graph, "retained autograd graph", 2 * OUTPUT_BYTES),
        (keeps_gradients, "retained gradients", 2 * (WIDTH + 1) * WIDTH * FLOAT),
        (grows_cache, "growing cache", OUTPUT_BYTES),
        (keeps_metrics, "retained small tensors", WIDTH * WIDTH * FLOAT),
        (keeps_maps, "", WIDTH * WIDTH * FLOAT),
        (keeps_counts, "retained small tensors", WIDTH * WIDTH * 8),
        (takes_larger_batches, "growing tensors", OUTPUT_BYTES),
        (remembers, "", 256 * 256 * FLOAT),
        (keeps_penalties, "retained autograd graph", 5 * OUTPUT_BYTES),
        (keeps_outputs_of_a_closure, "retained small tensors", OUTPUT_BYTES),
        (sums_losses, "retained autograd graph", 2 * OUTPUT_BYTES),
        (
            keeps_an_output_and_its_gradient,
            "retained module outputs and retained gradients",
            2 * OUTPUT_BYTES,
        ),
        (keeps_state_of_a_module, "", WIDTH * WIDTH * FLOAT),
    ],
)
def test_a_real_leak_is_found_with_size_line_and_cause(
    step: Callable[[Job], None], cause: str, least_bytes: int, tmp_path: Path, torch: Any
) -> None:
    found = only(RULE.check(recorded(torch, step, tmp_path, skip=20, noting=True)))
    assert least_bytes <= found.cost_bytes_per_step <= 1.5 * least_bytes
    assert found.title.partition(": ")[2] == cause
    assert _is_at(found, step)


RINGS = [
    replaces_the_oldest,
    deletes_the_oldest,
    assigns_to_a_ring,
    keeps_the_last_of_a_deque,
    pops_the_oldest,
]


@pytest.mark.parametrize("step", RINGS)
def test_a_real_buffer_that_was_full_is_no_leak_if_tensors_are_noted(
    step: Callable[[Job], None], tmp_path: Path, torch: Any
) -> None:
    assert is_clear(RULE.check(recorded(torch, step, tmp_path, noting=True)))


@pytest.mark.parametrize("step", [replaces_the_oldest, deletes_the_oldest, assigns_to_a_ring, keeps_metrics])
def test_a_real_list_may_be_a_full_buffer(step: Callable[[Job], None], tmp_path: Path, torch: Any) -> None:
    """torch's CPU profiler drops the frees of the old entries, and `del` on a list is no call."""
    answer = RULE.check(recorded(torch, step, tmp_path))
    assert isinstance(answer, CannotTell) or not only(answer).sure


@pytest.mark.parametrize("step", [keeps_the_last_of_a_deque, pops_the_oldest])
def test_a_real_ring_buffer_is_no_sure_leak(step: Callable[[Job], None], tmp_path: Path, torch: Any) -> None:
    assert not isinstance(RULE.check(recorded(torch, step, tmp_path)), list)


def test_the_state_of_a_real_optimizer_that_is_kept_is_a_leak(tmp_path: Path, torch: Any) -> None:
    """Only L-BFGS has a state that grows by itself."""
    found = only(RULE.check(recorded(torch, keeps_optimizers, tmp_path, noting=True)))
    assert found.cost_bytes_per_step >= 2 * 2 * WIDTH * WIDTH * FLOAT  # two moments of two layers


def test_real_reference_cycles_are_no_leak(tmp_path: Path, torch: Any) -> None:
    """Notes are taken after a collection. If the job has turned the collector off, nothing frees them."""
    threshold = gc.get_threshold()
    gc.set_threshold(10**6)
    try:
        assert not isinstance(RULE.check(recorded(torch, makes_cycles, tmp_path / "on", noting=True)), list)
        gc.disable()
        kept = RULE.check(recorded(torch, makes_cycles, tmp_path / "off", noting=True))
        assert _is_at(only(kept), makes_cycles)
    finally:
        gc.enable()
        gc.set_threshold(*threshold)


def test_real_sequences_of_any_length_are_a_leak(tmp_path: Path, torch: Any) -> None:
    answer = RULE.check(recorded(torch, keeps_sequences, tmp_path, skip=10, noting=True))
    assert _is_at(only(answer), keeps_sequences)


def test_a_real_leaking_hook_is_found(tmp_path: Path, torch: Any) -> None:
    found = only(RULE.check(recorded(torch, keeps_nothing, tmp_path, hook=True, noting=True)))
    assert found.cost_bytes_per_step == OUTPUT_BYTES
    assert found.title.endswith("retained module outputs")


@pytest.mark.parametrize("step", [keeps_nothing, keeps_numbers, keeps_the_last_two])
@pytest.mark.parametrize("skip", [0, 2])
def test_a_real_job_that_keeps_nothing_is_clear(
    step: Callable[[Job], None], skip: int, tmp_path: Path, torch: Any
) -> None:
    """Recorded from the first step, which allocates the optimizer state, and from a later one."""
    assert is_clear(RULE.check(recorded(torch, step, tmp_path, skip=skip)))


def _is_at(found: Finding, step: Callable[..., None]) -> bool:
    """Whether the first place is in the step's function, or in Job.train, which it calls."""
    lines = {line_of(Job.train), *(line_of(step) + i for i in range(len(inspect.getsourcelines(step)[0])))}
    return found.places[0].file.endswith("test_real_leaks.py") and found.places[0].line in lines
