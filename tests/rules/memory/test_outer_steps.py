"""Real steps that are parts of a longer one keep their graphs until the optimizer runs: no leak for sure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.rules.memory.host_memory_leak import RULE
from tests.rules.memory.test_real_leaks import Job, recorded
from tests.rules.memory_stage import only

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


@pytest.mark.parametrize("step", [learner(40), learner(40, done=37), learner(4), summer(3)])
def test_graphs_of_inner_steps_are_no_leak(step: Step, tmp_path: Path, torch: Any) -> None:
    assert not isinstance(RULE.check(recorded(torch, step, tmp_path, noting=True)), list)


def test_graphs_that_outlive_the_optimizer_are_a_leak(tmp_path: Path, torch: Any) -> None:
    found = only(RULE.check(recorded(torch, learner(1, keeps=True), tmp_path, skip=20, noting=True)))
    assert found.title.endswith("retained autograd graph")
