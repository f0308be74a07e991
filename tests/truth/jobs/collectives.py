"""Collectives that are too many, too large, or needless."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

from tests.truth.job import job
from tests.truth.jobs.parts import LATE, WIDTH, Block, ddp, mlp, rows, trainer


@job(limiters="communication mixed", rules="GD605", world=2, timed=15)
def mismatched_broadcast(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 broadcasts 2,048 values; rank 1 receives into 4,096."""
    model = DistributedDataParallel(mlp())
    train = trainer(model)
    batch = rows(64)
    values = torch.zeros(2_048 if fixed or rank == 0 else 4_096)
    while True:
        dist.broadcast(values, 0)
        train(*batch)
        yield


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def reduce_flat(gradients: list[torch.Tensor]) -> None:
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    pieces = flat.split([gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))


@job(
    limiters="communication python mixed launch",
    rules="GD608",
    allowed="GD102",  # fixed, small operators of 120 layers still take a third of the time
    world=2,
    timed=15,
)
def tiny_collectives(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Gradients are reduced parameter by parameter; fixed: in one flat tensor."""
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(120)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
    inputs = torch.randn(32, 16)
    while True:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        gradients = gradients_of(model)
        if fixed:
            reduce_flat(gradients)
        else:
            for gradient in gradients:
                dist.all_reduce(gradient)
        optimizer.step()
        yield


@job(limiters="communication", rules="GD609 GD607", world=2, timed=12)
def needless_gathers(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """All outputs of all ranks are gathered in each step for a metric; fixed: every hundredth."""
    train = trainer(DistributedDataParallel(mlp()))
    batch = rows(64)
    outputs = torch.randn(8_000_000)
    places = [torch.empty_like(outputs) for _ in range(world)]
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            dist.all_gather(places, outputs)
        yield


def backward(inputs: torch.Tensor, outputs: torch.Tensor, rank: int, world: int) -> None:
    gradient = torch.ones_like(outputs)
    if rank < world - 1:
        dist.recv(gradient, rank + 1)
    outputs.backward(gradient)
    if rank > 0 and inputs.grad is not None:
        dist.send(inputs.grad, rank - 1)


def forward(stage: nn.Module, rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(64, 512)
    if rank > 0:
        dist.recv(inputs, rank - 1)
    inputs.requires_grad_()
    outputs = stage(inputs)
    if rank < world - 1:
        dist.send(outputs.detach(), rank + 1)
    return inputs, outputs


@job(limiters=LATE, rules="GD602 GD603", rank=1, world=3, timed=10)
def pipeline_with_a_heavy_stage(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """A pipeline by send and receive whose second stage has four times the layers; fixed: even stages."""
    depth = 4 if fixed else 8 if rank == 1 else 2
    stage = mlp(width=512, depth=depth, classes=512)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        passed = [forward(stage, rank, world) for _ in range(4)]
        for inputs, outputs in reversed(passed):
            backward(inputs, outputs, rank, world)
        optimizer.step()
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


@job(limiters="communication mixed", rules="GD609 GD608 GD607", world=2, timed=12)
def weights_broadcast_each_step(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 broadcasts all weights after each step, to be sure that they stay equal; fixed: not."""
    model = mlp(width=1_024)
    train = trainer(nn.parallel.DistributedDataParallel(model))
    batch = rows(32, 1_024)
    while True:
        train(*batch)
        if not fixed:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)
        yield


@job(limiters="communication mixed compute", rules="GD610", world=2, timed=10)
def one_batch_in_the_pipeline(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Two equal stages get each batch in one piece, so that one always waits; fixed: in four pieces."""
    module = nn.Sequential(*(Block() for _ in range(2)))
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    run = ScheduleGPipe(stage, n_microbatches=4 if fixed else 1, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    inputs, targets = torch.randn(512, WIDTH), torch.randn(512, WIDTH)
    while True:
        optimizer.zero_grad()
        if rank == 0:
            run.step(inputs)
        else:
            run.step(target=targets)
        optimizer.step()
        yield


@job(
    limiters="communication python mixed launch",
    rules="GD608",
    allowed="GD102",  # fixed, at most 3.3 of the 7.7 ms that its layers take without FSDP are arithmetic
    world=2,
    timed=12,
)
def each_layer_a_unit(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """FSDP2 gathers each of 96 narrow layers by itself; fixed: the model in two pieces."""
    layers = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(96)]
    halves = [nn.Sequential(*layers[:48]), nn.Sequential(*layers[48:])]
    model, mesh = nn.Sequential(*halves), init_device_mesh("cpu", (world,))
    for unit in halves if fixed else layers:
        fully_shard(unit, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train, (inputs, _) = trainer(model, nn.functional.mse_loss), rows(64, 64)
    while True:
        train(inputs, inputs)
        yield
