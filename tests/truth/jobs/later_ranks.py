"""More jobs of several ranks, written with their expectations before any diagnosis of them was seen."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from tests.truth.job import job
from tests.truth.jobs.host import evaluate
from tests.truth.jobs.loading import Rows
from tests.truth.jobs.ranks import LATE, data_parallel, ddp
from tests.truth.parts import endless, mlp, rows, trainer


@job(world=4, timed=20)
def healthy_loss_averaged(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """The loss is averaged over the ranks in each step, and read in every tenth."""
    train = trainer(ddp())
    batch = rows(64)
    step = 0
    while True:
        loss = train(*batch).detach()
        dist.all_reduce(loss)
        step += 1
        if step % 10 == 0:
            print(f"step {step}: {loss.item() / world:.4f}")
        yield


@job(world=2, timed=15)
def healthy_pipeline(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Two equal stages, and eight micro-batches: all forward, then all backward."""
    stage = mlp(depth=5, classes=512)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        passed = [stage_forward(stage, rank) for _ in range(8)]
        for inputs, outputs in reversed(passed):
            gradient = torch.ones_like(outputs)
            if rank == 0:
                dist.recv(gradient, 1)
            outputs.backward(gradient)
            if rank == 1 and inputs.grad is not None:
                dist.send(inputs.grad, 0)
        optimizer.step()
        yield


def stage_forward(stage: nn.Module, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(64, 512)
    if rank == 1:
        dist.recv(inputs, 0)
    inputs.requires_grad_()
    outputs: torch.Tensor = stage(inputs)
    if rank == 0:
        dist.send(outputs.detach(), 1)
    return inputs, outputs


@job(world=2, timed=20)
def healthy_evaluation_of_all(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Both ranks evaluate their half of the validation set after every fifth step, and average the result."""
    model = mlp()
    train = trainer(nn.parallel.DistributedDataParallel(model))
    batch, validation = rows(128), rows(512)
    step = 0
    while True:
        train(*batch)
        step += 1
        if step % 5 == 0:
            right = torch.tensor(evaluate(model, *validation))
            dist.all_reduce(right)
        yield


@job(limiters=LATE, rules="GD602", functions="count_pairs metric_on_rank_zero", rank=0, world=3, timed=12)
def metric_on_rank_zero(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Outputs are gathered on rank 0, which counts a metric in Python; fixed: every hundredth step."""
    train = trainer(ddp())
    batch = rows(64)
    outputs = torch.rand(400)
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            places = [torch.empty_like(outputs) for _ in range(world)] if rank == 0 else None
            dist.gather(outputs, places)
            if places is not None:
                count_pairs(torch.cat(places).tolist())
        yield


def count_pairs(scores: list[float]) -> int:
    """Pairs in order, as for an area under a curve."""
    found = 0
    for index, score in enumerate(scores):
        for other in scores[:index:2]:
            if other < score:
                found += 1
    return found


WORD = re.compile(r"\w+")


class Texts(Rows):
    """Samples with a text each, which is split into words."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.text = "the quick brown fox jumps over the lazy dog " * words

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        split_into_words(self.text)
        return super().__getitem__(index)


def split_into_words(text: str) -> Counter[str]:
    return Counter(WORD.findall(text))


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


@job(limiters="communication mixed compute", rules="GD609 GD607", world=2, timed=12)
def reduce_each_micro_batch(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Gradients of eight micro-batches, each of which is reduced; fixed: only the last (`no_sync`)."""
    model = ddp(width=1_024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(16, 1_024)
    while True:
        optimizer.zero_grad()
        for part in range(8):
            with model.no_sync() if fixed and part < 7 else nullcontext():
                (nn.functional.cross_entropy(model(inputs), targets) / 8).backward()
        optimizer.step()
        yield


@job(limiters=LATE, rules="GD602", functions="flush_log", rank=1, world=3, timed=15, recorded=9)
def flush_every_third_step(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 sends its log away in every third step; fixed: in every hundredth."""

    def log(step: int) -> None:
        if rank == 1 and step % (100 if fixed else 3) == 2:
            flush_log()

    yield from data_parallel(rank, log)


def flush_log() -> None:
    time.sleep(0.12)


class StoredRows(Rows):
    """Samples that come from a store, which answers after a millisecond."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return read_sample(self, index)


def read_sample(data: Rows, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    time.sleep(0.001)
    return data.inputs[index], data.targets[index]


@job(limiters="input", rules="GD101", functions="__getitem__ read_sample", world=2, timed=12)
def all_ranks_read_slowly(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """All ranks wait for a store, sample by sample; fixed: samples are in memory."""
    train = trainer(ddp())
    for inputs, targets in endless(DataLoader(Rows() if fixed else StoredRows(), batch_size=64)):
        train(inputs, targets)
        yield
