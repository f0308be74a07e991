"""Jobs of several ranks that were written after the rules were mended for the others, and not tuned to."""

from __future__ import annotations

import fcntl
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tests.truth.job import job
from tests.truth.jobs.host import evaluate
from tests.truth.jobs.ranks import LATE, data_parallel, ddp
from tests.truth.parts import mlp, rows, trainer


@job(world=4, timed=12)
def healthy_accumulation_of_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Four micro-batches a step, of which the last one reduces the gradients (`no_sync`)."""
    model = ddp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(64)
    while True:
        optimizer.zero_grad()
        for part in range(4):
            with model.no_sync() if part < 3 else nullcontext():
                (nn.functional.cross_entropy(model(inputs), targets) / 4).backward()
        optimizer.step()
        yield


@job(world=4, timed=12)
def healthy_contrast(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Embeddings of all ranks are gathered, because the loss compares each with all others."""
    model = nn.parallel.DistributedDataParallel(mlp(classes=256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, _ = rows(128)
    mine = torch.arange(128) + 128 * rank
    while True:
        optimizer.zero_grad()
        found = nn.functional.normalize(model(inputs), dim=1)
        gathered = [torch.empty_like(found) for _ in range(world)]
        dist.all_gather(gathered, found.detach())
        gathered[rank] = found
        nn.functional.cross_entropy(found @ torch.cat(gathered).t() / 0.1, mine).backward()
        optimizer.step()
        yield


@job(world=2, timed=20)
def healthy_local_steps(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Ranks train alone, and average their weights every eighth step."""
    model = mlp(width=768)
    train = trainer(model)
    batch = rows(128, 768)
    step = 0
    while True:
        train(*batch)
        step += 1
        if step % 8 == 0:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= world
        yield


@job(limiters=LATE, rules="GD602 GD603", functions="evaluate evaluate_by_rank", rank=0, world=3, timed=12)
def one_rank_evaluates(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 evaluates the model after each step, and the others wait; fixed: every hundredth."""
    model = mlp()
    validation = rows(4_096)

    def evaluate_by_rank(step: int) -> None:
        if rank == 0 and (not fixed or step % 100 == 99):
            evaluate(model, *validation)

    yield from data_parallel(rank, evaluate_by_rank)


@job(limiters="communication python mixed launch", rules="GD608", world=4, timed=15)
def metrics_one_by_one(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Sixty metrics are averaged over the ranks one by one in each step; fixed: all at once."""
    train = trainer(ddp(width=128))
    batch = rows(32, 128)
    metrics = torch.rand(60)
    while True:
        train(*batch)
        if fixed:
            dist.all_reduce(metrics.clone())
        else:
            averaged(metrics)
        yield


def averaged(metrics: torch.Tensor) -> list[float]:
    found = []
    for metric in metrics.clone():
        dist.all_reduce(metric)
        found.append(metric.item() / dist.get_world_size())
    return found


@job(
    limiters="communication python mixed",
    rules="GD102 GD609 GD607",
    functions="share_predictions objects_gathered all_gather_object",
    world=2,
    timed=12,
)
def objects_gathered(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Predictions are gathered as Python objects in each step; fixed: every hundredth."""
    train = trainer(ddp())
    batch = rows(64)
    predictions = [{"id": index, "scores": [index / 7, index / 3]} for index in range(30_000)]
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            share_predictions(predictions, world)
        yield


def share_predictions(predictions: list[dict[str, Any]], world: int) -> int:
    found: list[Any] = [None] * world
    dist.all_gather_object(found, predictions)
    return sum(len(one) for one in found)


MEAN_ROWS = 290
"""Of batches of 16, 32, 64, … and 1,024 rows."""


@job(limiters=LATE, rules="GD602 GD603", world=4, timed=20, recorded=8)
def lengths_at_random(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Each rank draws the length of its batches by itself; fixed: all have the mean length."""
    model = mlp()
    train = trainer(nn.parallel.DistributedDataParallel(model))
    inputs, targets = rows(1_024)
    draw = torch.Generator().manual_seed(rank)
    while True:
        count = MEAN_ROWS if fixed else 2 ** int(torch.randint(4, 11, (), generator=draw))
        train(inputs[:count], targets[:count])
        yield


@job(
    limiters=LATE,
    rules="GD602 GD101 GD603",
    functions="read_batch batches_from_one_rank",
    allowed="GD102",  # fixed, each rank still waits 12 of 44 ms for its own batch
    rank=0,
    world=4,
    timed=12,
)
def batches_from_one_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 reads the batches of all ranks and sends them; fixed: each reads its own."""
    train = trainer(ddp())
    mine, targets = rows(64)
    while True:
        if fixed:
            read_batch(0.012)
        elif rank == 0:
            read_batch(0.048)
            dist.scatter(mine, [torch.randn(64, 512) for _ in range(world)], src=0)
        else:
            dist.scatter(mine, src=0)
        train(mine, targets)
        yield


def read_batch(seconds: float) -> None:
    time.sleep(seconds)


@job(
    limiters=LATE,
    rules="GD102 GD602",
    functions="append_under_lock lock_file_of_all_ranks",
    allowed="GD102 GD602",  # fixed, rank 0 still sleeps 10 ms in each step under its lock, and all wait
    world=4,
    timed=12,
)
def lock_file_of_all_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """All ranks write to one log, one after the other under its lock; fixed: rank 0 alone writes."""
    path = Path(tempfile.gettempdir()) / "gpudiag-truth-log.txt"

    def write_log(step: int) -> None:
        if rank == 0 or not fixed:
            append_under_lock(path, f"{rank} {step}\n")

    yield from data_parallel(rank, write_log)


def append_under_lock(path: Path, line: str) -> None:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line)
        file.flush()
        time.sleep(0.01)
        fcntl.flock(file, fcntl.LOCK_UN)
