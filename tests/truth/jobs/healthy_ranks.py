"""Jobs of ranks with nothing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import Schedule1F1B

from tests.truth.job import job
from tests.truth.jobs.parts import WIDTH, Block, data_parallel, ddp, mlp, pipelined, rows, trainer


@job(world=2)
def healthy_two_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Two ranks with equal work."""
    yield from data_parallel(rank)


@job(world=8, timed=12)
def healthy_eight_ranks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Eight ranks with equal work."""
    yield from data_parallel(rank, rows_of_rank=32, width=256)


@job(world=2, timed=15)
def healthy_1f1b(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Two equal stages and eight micro-batches by torch's 1F1B."""
    yield from pipelined(Schedule1F1B, rank, world, 2)


class Blocks(nn.Module):
    """Some blocks and a head."""

    def __init__(self, depth: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        found: torch.Tensor = self.head(x)
        return found


def sharded(world: int) -> Blocks:
    """Blocks under FSDP2, each a unit."""
    model, mesh = Blocks(), init_device_mesh("cpu", (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(model: nn.Module) -> Iterator[None]:
    """Train on one batch."""
    step, batch = trainer(model), rows(128, WIDTH)
    while True:
        step(*batch)
        yield


@job(world=2, timed=15)
def healthy_fully_sharded(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """FSDP2 with equal work on each rank."""
    yield from train(sharded(world))


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


@job(world=2, timed=15)
def healthy_compressed_gradients(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Gradients travel in 16 bits, by the hook that torch has for that."""
    model = ddp()
    model.register_comm_hook(None, fp16_compress_hook)
    train = trainer(model)
    batch = rows(128)
    while True:
        train(*batch)
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
