"""Jobs of several ranks on gloo that train the same model with DistributedDataParallel."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.truth.job import job
from tests.truth.jobs.loading import Rows
from tests.truth.parts import endless, mlp, rows, trainer

LATE = "communication input python compute mixed"
"""Limiters that are right for a job that waits for one rank: the job's, or the reason of the late one."""


def ddp(width: int = 512, **options: bool | int) -> DistributedDataParallel:
    return DistributedDataParallel(mlp(width=width), **options)


def data_parallel(
    rank: int, before: Callable[[int], None] | None = None, rows_of_rank: int = 64, width: int = 512
) -> Iterator[None]:
    """Train, and call `before` with the step's number first."""
    train = trainer(ddp(width))
    batch = rows(rows_of_rank, width)
    step = 0
    while True:
        if before:
            before(step)
        train(*batch)
        step += 1
        yield


@job(world=2)
def healthy_two_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Two ranks with equal work."""
    yield from data_parallel(rank)


@job(world=4, timed=20)
def healthy_four_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Four ranks with equal work."""
    yield from data_parallel(rank)


@job(world=8, timed=12)
def healthy_eight_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Eight ranks with equal work."""
    yield from data_parallel(rank, rows_of_rank=32, width=256)


@job(world=4, timed=20)
def healthy_ranks_with_loaders(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Four ranks with a loader each that is fast enough."""
    train = trainer(ddp())
    for inputs, targets in endless(DataLoader(Rows(), batch_size=64)):
        train(inputs, targets)
        yield


class SlowRows(Rows):
    """Samples that take a millisecond and a half each."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.0015)
        return super().__getitem__(index)


@job(
    limiters=LATE,
    rules="GD602 GD101",
    functions="__getitem__ slow_loader_of_a_rank",
    rank=2,
    world=4,
    timed=12,
)
def slow_loader_of_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 2 reads from a slow disk."""
    train = trainer(ddp())
    data = SlowRows() if rank == 2 and not fixed else Rows()
    for inputs, targets in endless(DataLoader(data, batch_size=64)):
        train(inputs, targets)
        yield


@job(limiters=LATE, rules="GD602", functions="pause_of_rank", rank=3, world=4, timed=15)
def sleeping_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 3 pauses for 54 ms in each step."""

    def pause_of_rank(step: int) -> None:
        if rank == 3 and not fixed:
            time.sleep(0.054)

    yield from data_parallel(rank, pause_of_rank)


@job(limiters=LATE, rules="GD603 GD602", rank=1, world=4, timed=12)
def heavy_batches_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 gets five times as many rows as the others; fixed: all get the same, and as many in all."""
    mine = 128 if fixed else 320 if rank == 1 else 64
    yield from data_parallel(rank, rows_of_rank=mine)


@job(limiters=LATE, rules="GD602 GD603", world=4, timed=15, recorded=8)
def sleep_in_turn(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """In each step another rank pauses."""

    def pause_in_turn(step: int) -> None:
        if step % world == rank and not fixed:
            time.sleep(0.05)

    yield from data_parallel(rank, pause_in_turn)


@job(limiters=LATE, rules="GD602", functions="save_by_rank", rank=0, world=4, timed=15)
def one_rank_saves(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 writes a checkpoint in each step; fixed: every hundredth."""
    state = mlp(width=1_024, depth=8).state_dict()
    path = Path(tempfile.mkdtemp()) / "checkpoint.pt"

    def save_by_rank(step: int) -> None:
        if rank == 0 and (not fixed or step % 100 == 99):
            torch.save(state, path)

    yield from data_parallel(rank, save_by_rank)


@job(limiters=LATE, rules="GD602", functions="collect_by_rank", rank=5, world=8, timed=10)
def one_rank_collects_garbage(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 5 has many objects and collects garbage in each step."""
    kept = [{"index": index} for index in range(400_000)] if rank == 5 and not fixed else []

    def collect_by_rank(step: int) -> None:
        if kept:
            gc.collect()

    yield from data_parallel(rank, collect_by_rank, rows_of_rank=32, width=256)


class Late(torch.autograd.Function):
    """The identity; its gradient comes late."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, seconds: float) -> torch.Tensor:
        context.seconds = seconds
        return inputs.view_as(inputs)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(context.seconds)
        return gradient, None


class LateInBackward(nn.Module):
    """A model whose backward pass waits in the middle."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.first, self.second = mlp(classes=512, depth=2), mlp(depth=2)
        self.seconds = seconds

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = self.first(inputs)
        if self.seconds:
            found = Late.apply(found, self.seconds)
        answer: torch.Tensor = self.second(found)
        return answer


@job(limiters=LATE, rules="GD602", functions="backward", rank=1, world=3, timed=8)
def late_inside_backward(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 loses 200 ms inside its backward pass, after the all-reduce of an earlier bucket."""
    model = LateInBackward(0.2 if rank == 1 and not fixed else 0.0)
    train = trainer(DistributedDataParallel(model, bucket_cap_mb=1))
    batch = rows(64)
    while True:
        train(*batch)
        yield


@job(world=2, allowed="GD606", later=2)
def ranks_record_other_steps(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 records two steps later than rank 0; nothing is wrong with the job."""
    yield from data_parallel(rank)


@job(world=2, allowed="GD606 GD106")
def late_once(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 is late once, when recording begins; nothing is wrong with the job."""

    def pause_once(step: int) -> None:
        if rank == 1 and step == FIRST_RECORDED:
            time.sleep(0.3)

    yield from data_parallel(rank, pause_once)


FIRST_RECORDED = 36
"""Steps before the first recorded one (child.py): to warm up, timed, and those that the profiler skips."""
