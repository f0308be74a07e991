"""Jobs of several ranks on gloo that share out the model: FSDP2, tensor-parallel layers, pipelines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.truth.job import job
from tests.truth.jobs.ranks import LATE
from tests.truth.parts import rows, trainer

WIDTH = 512
BATCHES = 8


class Block(nn.Module):
    """Two layers with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return found


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


@job(limiters=LATE, rules="GD602", functions="before_gather", rank=1, world=2, timed=15)
def one_unit_gathered_late(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """FSDP2 whose rank 1 sleeps before it gathers one unit; fixed: it does not."""
    model = sharded(world)
    if rank == 1 and not fixed:
        model.layers[2].register_forward_pre_hook(before_gather, prepend=True)
    yield from train(model)


def before_gather(module: nn.Module, inputs: Any) -> None:
    time.sleep(0.2)


@job(world=2, timed=15)
def healthy_tensor_parallel(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Blocks whose layers are split over the ranks."""
    model, mesh = Blocks(), init_device_mesh("cpu", (world,))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    yield from train(model)


@job(world=2, timed=15)
def healthy_gpipe(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Two equal stages and eight micro-batches by torch's GPipe."""
    yield from pipelined(ScheduleGPipe, rank, world, 2)


@job(world=2, timed=15)
def healthy_1f1b(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Two equal stages and eight micro-batches by torch's 1F1B."""
    yield from pipelined(Schedule1F1B, rank, world, 2)


@job(limiters="compute communication mixed", rules="GD603 GD602", rank=1, world=2, timed=10)
def heavy_stage_of_1f1b(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """1F1B whose second stage has three times the layers of the first; fixed: equal stages."""
    yield from pipelined(Schedule1F1B, rank, world, 2 if fixed else (1, 3)[rank])


def pipelined(schedule: Callable[..., Any], rank: int, world: int, depth: int) -> Iterator[None]:
    """Train a stage of this many blocks."""
    module = nn.Sequential(*(Block() for _ in range(depth)))
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    run = schedule(stage, n_microbatches=BATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    inputs, targets = torch.randn(256, WIDTH), torch.randn(256, WIDTH)
    while True:
        optimizer.zero_grad()
        if rank == 0:
            run.step(inputs)
        else:
            run.step(target=targets)
        optimizer.step()
        yield
