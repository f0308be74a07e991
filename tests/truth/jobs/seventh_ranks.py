"""A seventh round of jobs of ranks, written by somebody who knew no rule, and before any diagnosis was seen:
four mistakes that public issues tell of, and one healthy job that looks suspicious."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from tests.truth.job import job
from tests.truth.jobs.ranks import LATE, ddp
from tests.truth.jobs.sharded import WIDTH, sharded
from tests.truth.parts import endless, mlp, rows, trainer


class Summed(torch.autograd.Function):
    """The sum over the ranks; so is its gradient."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        found = values.clone()
        dist.all_reduce(found)
        return found

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        found = gradient.contiguous().clone()
        dist.all_reduce(found)
        return found


class SharedNorm(nn.Module):
    """Normalization of a batch by the mean and the variance of all ranks, as SyncBatchNorm does on GPUs."""

    def __init__(self, width: int, world: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.world = world

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sums = Summed.apply(torch.stack([x.mean(dim=0), x.square().mean(dim=0)])) / self.world
        mean, variance = sums[0], sums[1] - sums[0].square()
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift


@job(limiters="communication mixed launch", rules="GD608 GD609", world=2, timed=15)
def statistics_of_each_layer_shared(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Each of 40 normalizations agrees on its mean with the other rank; fixed: a rank's batch is enough."""
    layers: list[nn.Module] = []
    for _ in range(40):
        norm = nn.BatchNorm1d(128) if fixed else SharedNorm(128, world)
        layers += [nn.Linear(128, 128), norm, nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    train = trainer(DistributedDataParallel(model, broadcast_buffers=False))
    batch = rows(128, 128)
    while True:
        train(*batch)
        yield


@job(limiters="communication mixed compute", rules="GD609 GD607", world=2, timed=15)
def frozen_weights_reduced(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Only the head is given to the optimizer, but all weights have gradients, which are reduced; fixed:
    `requires_grad_(False)`."""
    body, head = mlp(1_024, depth=4, classes=512), nn.Linear(512, 10)
    body.requires_grad_(not fixed)
    model = DistributedDataParallel(nn.Sequential(body, head))
    train = trainer(model, optimizer=torch.optim.SGD(head.parameters(), lr=0.01))
    batch = rows(32, 1_024)
    while True:
        model.zero_grad()
        train(*batch)
        yield


@job(limiters="communication mixed compute", rules="GD609 GD607", world=2, timed=8)
def units_gathered_for_each_micro_batch(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """FSDP2 gathers weights and reduces gradients for each of four micro-batches; fixed: once a step."""
    model = sharded(world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parts = [rows(32, WIDTH) for _ in range(4)]
    while True:
        optimizer.zero_grad()
        for part, (inputs, targets) in enumerate(parts):
            if fixed:
                keep_whole(model, last=part == len(parts) - 1)
            (nn.functional.cross_entropy(model(inputs), targets) / len(parts)).backward()
        optimizer.step()
        yield


def keep_whole(model: Any, last: bool) -> None:
    """Keep weights and gradients whole between the micro-batches, up to the last one."""
    model.set_reshard_after_forward(False)
    model.set_reshard_after_backward(last)
    model.set_requires_gradient_sync(last)


class Packed(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Compressed samples, some of which were cut off when they were copied: then another one is taken."""

    def __init__(self, broken: float) -> None:
        inputs, self.targets = rows(64, 16_384)
        packed = [zlib.compress(row.numpy().tobytes(), 1) for row in inputs]
        good = round(len(packed) * (1 - broken))
        self.packed = [one if place < good else one[:-8] for place, one in enumerate(packed)]

    def __len__(self) -> int:
        return 64_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        place = index % 64
        try:
            values = torch.frombuffer(bytearray(zlib.decompress(self.packed[place])), dtype=torch.float32)
        except zlib.error:
            return self[random.randrange(len(self))]
        return values[:512], self.targets[place]


@job(
    limiters=LATE,
    rules="GD602 GD101",
    functions="__getitem__ fetch <listcomp> endless broken_samples_on_a_rank",
    rank=1,
    allowed="GD101",  # fixed, all ranks still unpack samples while nothing trains
    world=3,
    timed=12,
)
def broken_samples_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Five in six of rank 1's samples are broken, as unpacking them shows; fixed: copied again."""
    train = trainer(ddp())
    data = Packed(broken=5 / 6 if rank == 1 and not fixed else 0.0)
    for inputs, targets in endless(DataLoader(data, batch_size=32)):
        train(inputs, targets)
        yield


class Sent(torch.autograd.Function):
    """Rows for each rank, changed for those that the others have for this one."""

    @staticmethod
    def forward(context: Any, given: torch.Tensor, mine: list[int], theirs: list[int]) -> torch.Tensor:
        context.mine, context.theirs = mine, theirs
        return sent(given, mine, theirs)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return sent(gradient, context.theirs, context.mine), None, None


def sent(given: torch.Tensor, mine: list[int], theirs: list[int]) -> torch.Tensor:
    found = given.new_empty(sum(theirs), given.shape[1])
    dist.all_to_all_single(found, given.contiguous(), theirs, mine)
    return found


def counts_of_others(mine: torch.Tensor) -> list[int]:
    found = torch.empty_like(mine)
    dist.all_to_all_single(found, mine)
    counts: list[int] = found.tolist()
    return counts


@job(world=2, timed=15)
def healthy_experts_of_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """A mixture of experts, one on each rank, which exchange the words, and first how many there are."""
    gate, head = nn.Linear(WIDTH, world), DistributedDataParallel(mlp(depth=1))
    expert = nn.Sequential(nn.Linear(WIDTH, 2_048), nn.GELU(), nn.Linear(2_048, WIDTH))
    optimizer = torch.optim.SGD([*expert.parameters(), *head.parameters()], lr=0.01)
    while True:
        words, targets = rows(256)
        chosen = gate(words).argmax(dim=1)
        order, counts = chosen.argsort(), chosen.bincount(minlength=world)
        mine, theirs = counts.tolist(), counts_of_others(counts)
        optimizer.zero_grad()
        done = Sent.apply(expert(Sent.apply(words[order], mine, theirs)), theirs, mine)
        nn.functional.cross_entropy(head(words[order] + done), targets[order]).backward()
        optimizer.step()
        yield
