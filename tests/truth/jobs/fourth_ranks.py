"""A fourth round of jobs of ranks, written before any diagnosis of them was seen: two faults of one rank that
so far only jobs of one process had, and two healthy jobs that look like faults of others."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

from tests.truth.job import job
from tests.truth.jobs.ranks import LATE, data_parallel, ddp
from tests.truth.parts import mlp, rows, trainer


@job(limiters=LATE, rules="GD602 GD107", rank=1, world=3, timed=12)
def anomaly_mode_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 was left with `set_detect_anomaly` on, and so notes who called each operator; fixed: off."""
    torch.autograd.set_detect_anomaly(rank == 1 and not fixed)
    layers = (nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128)) for _ in range(30))
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    train = trainer(model, nn.functional.mse_loss)
    inputs = torch.randn(64, 128)
    while True:
        train(inputs, inputs)
        yield


@job(limiters=f"{LATE} compile", rules="GD602 GD104", rank=2, world=3, timed=8)
def one_rank_recompiles(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 2 scores batches of another size in each step, for each of which the scorer is compiled; fixed: of
    one size."""
    torch._dynamo.config.cache_size_limit = 1_000
    torch._dynamo.config.accumulated_cache_size_limit = 10_000
    scorer = torch.compile(mlp(depth=6), backend="aot_eager", dynamic=False)

    def score_batch(step: int) -> None:
        with torch.no_grad():
            scorer(torch.randn(64 if fixed or rank != 2 else 64 + step, 512))

    yield from data_parallel(rank, score_batch)


@job(world=3, timed=15)
def healthy_average_of_weights(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Each rank keeps an average of its weights, which are equal, by one call for all of them."""
    model = ddp()
    train, batch = trainer(model), rows(128)
    weights = [parameter.detach() for parameter in model.parameters()]
    average = [weight.clone() for weight in weights]
    while True:
        train(*batch)
        torch._foreach_lerp_(average, weights, 0.01)
        yield


@job(world=3, timed=15)
def healthy_broadcast_of_a_setting(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 decides on a learning rate for each step, and broadcasts that one number."""
    train, batch = trainer(ddp()), rows(128)
    rate = torch.tensor(0.01)
    while True:
        rate *= 0.999
        dist.broadcast(rate, 0)
        train(*batch)
        yield
