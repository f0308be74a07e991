"""Real steps that are parts of a longer one keep their graphs until the optimizer runs: no leak for sure."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tb_gpudiag.rules.shared.outer_step import may_end_with_update
from tb_gpudiag.trace.read import read_trace
from tb_gpudiag.training.noting_tensors import KEY
from tests.builder import SnapshotBuilder, TraceBuilder
from tests.rules.memory.test_leak_judged import BACKWARD, MODULE
from tests.rules.memory.test_real_leaks import Job, recorded
from tests.rules.memory_stage import MIB, only, steps_of, unsure
from tests.rules.noted_stage import noted
from tests.rules.stage import facts_of

Step = Callable[[Job], None]


def learner(outer: int, *, done: int = 0, keeps: bool = False) -> Step:
    """An inner step of a meta-learner. Each outer step takes so many. done: before the first one. keeps: all
    of their graphs are kept."""

    def adapts(job: Job) -> None:
        model, functional_call = job.model, job.torch.func.functional_call
        weights = job.kept.pop() if job.kept else dict(model.named_parameters())
        loss = functional_call(model, weights, job.batch).square().mean()
        gradients = job.torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        pairs = zip(weights.items(), gradients, strict=True)
        weights = {name: value - 0.1 * gradient for (name, value), gradient in pairs}
        job.at += 1
        if (done + job.at) % outer:
            job.kept.append(weights)
            return
        job.optimizer.zero_grad()
        functional_call(model, weights, job.batch).square().mean().backward(retain_graph=keeps)
        job.optimizer.step()
        if keeps:
            job.total = job.total + functional_call(model, weights, job.batch).square().mean()

    return adapts


def summer(batches: int) -> Step:
    """The losses of so many batches have one backward pass."""

    def sums(job: Job) -> None:
        job.total = job.total + job.model(job.batch).square().mean()
        job.at += 1
        if job.at % batches == 0:
            job.optimizer.zero_grad()
            job.total.backward()
            job.optimizer.step()
            job.total = job.torch.zeros(())

    return sums


@pytest.mark.parametrize("noting", [False, True])
@pytest.mark.parametrize("step", [learner(40), learner(40, done=37), learner(4), summer(3)])
def test_graphs_of_inner_steps_are_no_leak(step: Step, noting: bool, tmp_path: Path, torch: Any) -> None:
    assert not isinstance(RULE.check(recorded(torch, step, tmp_path, noting=noting)), list)


@pytest.mark.parametrize("done", [0, 37])
def test_the_optimizer_is_what_would_tell(done: int, tmp_path: Path, torch: Any) -> None:
    """It ran in no recorded step, or in the first."""
    found = unsure(RULE.check(recorded(torch, learner(40, done=done), tmp_path, noting=True)))
    assert "the optimizer ran in" in found.reason
    assert "prof.step()" in found.how_to_record


def test_without_an_optimizer_no_graph_waits_for_its_step(tmp_path: Path, torch: Any) -> None:
    """Test-time training with create_graph=True."""
    weights = list[Any]()

    def step(job: Job) -> None:
        job.optimizer = None
        weights[:] = weights or [job.torch.rand(64, 64, requires_grad=True) for _ in range(2)]
        loss = ((job.batch @ weights[0]).tanh() @ weights[1]).square().mean()
        gradients = job.torch.autograd.grad(loss, weights, create_graph=True)
        weights[:] = [one - 0.1 * gradient for one, gradient in zip(weights, gradients, strict=True)]

    gc.collect()
    gc.freeze()  # optimizers of other tests
    found = only(RULE.check(recorded(torch, step, tmp_path, noting=True)))
    assert found.title.endswith("retained autograd graph")


def test_graphs_that_outlive_the_optimizer_are_a_leak(tmp_path: Path, torch: Any) -> None:
    found = only(RULE.check(recorded(torch, learner(1, keeps=True), tmp_path, noting=True)))
    assert found.title.endswith("retained autograd graph")


@pytest.mark.parametrize(
    ("every", "mib", "found"),
    [
        (4, [3, 6, 9, 12, 20], True),
        (4, [12, 12, 12, 12, 20], False),  # it has grown since the twelfth step only
        (6, [3, 6, 9, 12, 20], False),  # the 17 steps noted are not three times as long
        (8, [3, 6, 9, 12, 20], False),  # a single one is no interval
    ],
)
def test_graphs_were_noted_to_outlive_the_optimizer(
    every: int, mib: list[int], found: bool, tmp_path: Path
) -> None:
    """It ran in one of so many of the eight recorded steps. mib: at the third step of the job, and so on."""
    steps, written = [3, 6, 9, 12, 20], noted({MIB: 8}, {}, older=12, steps=20)
    written["history"] = [[step, count * MIB] for step, count in zip(steps, mib, strict=True)]
    written |= {"nodes": [[step, 9 * step] for step in steps], "attached": {str(MIB): 8}}
    trace = TraceBuilder(top_level={KEY: written})
    trace.recording.memory_start[None] = 16 * MIB
    for number, (main, at) in enumerate(steps_of(trace, first=12, built=False)):
        main.frame("train.py(7): keep", at=at + 5, us=60).op("aten::log", at=at + 10, us=5)
        main.alloc(MIB, at=at + 12, device=None)
        if number % every == 1:
            main.op("Optimizer.step#SGD.step", at=at + 80, us=5)
    answer = RULE.check(facts_of(trace, tmp_path))
    if found:
        assert only(answer).title.endswith("retained autograd graph")
    else:
        assert "the optimizer ran in" in unsure(answer).reason


@pytest.mark.parametrize("frees", [True, False])
def test_a_snapshot_shows_updates_by_the_frames_of_what_frees(frees: bool, tmp_path: Path) -> None:
    """SGD allocates nothing. Without such frames, nothing is known of it."""
    snapshot, stack = SnapshotBuilder(), ["train.py(3): main"]
    snapshot.segment(64 << 20, at=0)
    for step in range(8):
        at = 100 * step
        for i in range(3):
            snapshot.allocate(1 << 20, at=at + i, stack=[*stack, f"train.py({i}): fit", MODULE])
        snapshot.allocate(1 << 20, at=at + 10, stack=[*stack, BACKWARD])
        passing = snapshot.allocate(1 << 20, at=at + 11, stack=[*stack, BACKWARD])
        snapshot.free(passing, at=at + 12, stack=stack if frees else [])
    (memory,) = Facts(read_trace(str(snapshot.write(tmp_path)))).memory
    assert memory.shows_updates is frees
    assert may_end_with_update(memory) is frees
