"""Ranks of which one is late, and what makes it so."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.truth.job import job
from tests.truth.jobs.parts import LATE, Rows, data_parallel, ddp, endless, mlp, pipelined, rows, trainer


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


FIRST_RECORDED = 36
"""Steps before the first recorded one (child.py): to warm up, timed, and those that the profiler skips."""


@job(world=2, allowed="GD606 GD106")
def late_once(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 is late once, when recording begins; nothing is wrong with the job."""

    def pause_once(step: int) -> None:
        if rank == 1 and step == FIRST_RECORDED:
            time.sleep(0.3)

    yield from data_parallel(rank, pause_once)


def flush_log() -> None:
    time.sleep(0.12)


@job(limiters=LATE, rules="GD602", functions="flush_log", rank=1, world=3, timed=15, recorded=9)
def flush_every_third_step(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 sends its log away in every third step; fixed: in every hundredth."""

    def log(step: int) -> None:
        if rank == 1 and step % (100 if fixed else 3) == 2:
            flush_log()

    yield from data_parallel(rank, log)


WORD = re.compile(r"\w+")


def split_into_words(text: str) -> Counter[str]:
    return Counter(WORD.findall(text))


class Texts(Rows):
    """Samples with a text each, which is split into words."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.text = "the quick brown fox jumps over the lazy dog " * words

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        split_into_words(self.text)
        return super().__getitem__(index)


@job(
    limiters=LATE,
    rules="GD602 GD101 GD603",
    functions="__getitem__ split_into_words",
    allowed="GD101",  # fixed, loading takes 1.6 of 9.2 ms of a rank's CPU time, without the profiler
    rank=2,
    world=4,
    timed=12,
)
def long_texts_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """The shard of rank 2 has the long texts, which take long to split; fixed: as short as the others'."""
    train = trainer(ddp())
    data = Texts(1_000 if rank == 2 and not fixed else 10)
    for inputs, targets in endless(DataLoader(data, batch_size=64)):
        train(inputs, targets)
        yield


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


@job(limiters="compute communication mixed", rules="GD603 GD602", rank=1, world=2, timed=10)
def heavy_stage_of_1f1b(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """1F1B whose second stage has three times the layers of the first; fixed: equal stages."""
    yield from pipelined(Schedule1F1B, rank, world, 2 if fixed else (1, 3)[rank])
