"""Models that are compiled or traced again and again."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.truth.job import job
from tests.truth.jobs.parts import mlp, rows, trainer


@job(limiters="compile", rules="GD104", timed=6)
def recompile_each_step(fixed: bool) -> Iterator[None]:
    """Each batch has another size, and the model is compiled for fixed shapes; fixed: one size."""
    torch._dynamo.config.cache_size_limit = 1_000
    torch._dynamo.config.accumulated_cache_size_limit = 10_000
    model = torch.compile(mlp(depth=8), backend="aot_eager", dynamic=False)
    train = trainer(model)
    size = 64
    while True:
        size += 0 if fixed else 1
        train(*rows(size))
        yield


@job(limiters="compile python", rules="GD104 GD102", functions="trace_each_step", timed=12)
def trace_each_step(fixed: bool) -> Iterator[None]:
    """`torch.jit.trace` inside the loop; fixed: before it."""
    model = mlp(width=256, depth=20)
    inputs, _ = rows(64, 256)
    once = torch.jit.trace(model, inputs)
    while True:
        traced = once if fixed else torch.jit.trace(model, inputs, check_trace=False)
        with torch.no_grad():
            traced(inputs)
        yield


def noisy(outputs: torch.Tensor) -> torch.Tensor:
    for _ in range(300):
        torch._dynamo.graph_break()
        outputs = outputs + 1e-6
    return outputs


@job(limiters="python compute launch", rules="GD102 GD104 GD201 GD202")
def graph_breaks(fixed: bool) -> Iterator[None]:
    """A compiled function that breaks its graph three hundred times a step; fixed: not compiled in pieces."""
    model = mlp()
    work = torch.compile(lambda x: noisy(model(x)), backend="eager")
    inputs, _ = rows(64)
    while True:
        with torch.no_grad():
            if fixed:
                model(inputs) + 300 * 1e-6
            else:
                work(inputs)
        yield
