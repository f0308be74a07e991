"""Jobs of several ranks whose collectives are what is wrong, or that share work in another way than DDP."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.truth.job import job
from tests.truth.jobs.ranks import LATE
from tests.truth.parts import mlp, rows, trainer


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


def reduce_flat(gradients: list[torch.Tensor]) -> None:
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    pieces = flat.split([gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))


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


@job(limiters="communication", rules="GD609 GD607", world=2, timed=10)
def no_overlap(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Large gradients are reduced after the backward pass; fixed: in half the bytes, as bfloat16."""
    model = mlp(width=2_048, depth=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(16, 2_048)
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            if fixed:
                half = parameter.grad.bfloat16()
                dist.all_reduce(half)
                parameter.grad.copy_(half)
            else:
                dist.all_reduce(parameter.grad)
        optimizer.step()
        yield


@job(limiters="communication mixed python compute", rules="", world=4, timed=10)
def parameter_server(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Gradients are sent to rank 0, which updates and sends the weights back; all-reduce is no faster."""
    model = mlp(width=768)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(32, 768)
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        for gradient in gradients_of(model):
            if fixed:
                dist.all_reduce(gradient)
            else:
                sum_on_server(gradient, rank, world)
        if fixed or rank == 0:
            optimizer.step()
        if not fixed:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)
        yield


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def sum_on_server(gradient: torch.Tensor, rank: int, world: int) -> None:
    if rank > 0:
        dist.send(gradient, 0)
        return
    received = torch.empty_like(gradient)
    for other in range(1, world):
        dist.recv(received, other)
        gradient += received


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


def forward(stage: nn.Module, rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(64, 512)
    if rank > 0:
        dist.recv(inputs, rank - 1)
    inputs.requires_grad_()
    outputs = stage(inputs)
    if rank < world - 1:
        dist.send(outputs.detach(), rank + 1)
    return inputs, outputs


def backward(inputs: torch.Tensor, outputs: torch.Tensor, rank: int, world: int) -> None:
    gradient = torch.ones_like(outputs)
    if rank < world - 1:
        dist.recv(gradient, rank + 1)
    outputs.backward(gradient)
    if rank > 0 and inputs.grad is not None:
        dist.send(inputs.grad, rank - 1)


@job(world=2, timed=12)
def healthy_tensor_parallel(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """A perceptron whose columns and rows are shared out by DTensor."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = nn.Sequential(nn.Linear(1_024, 4_096), nn.ReLU(), nn.Linear(4_096, 1_024))
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train = trainer(model, nn.functional.mse_loss)
    inputs = torch.randn(256, 1_024)
    while True:
        train(inputs, inputs)
        yield


@job(world=2, timed=12)
def healthy_sharded(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """FSDP on gloo, with enough rows that its gathers are small beside the arithmetic."""
    from torch.distributed.fsdp import fully_shard

    model = mlp(width=512, depth=3)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    train = trainer(model)
    batch = rows(1_024)
    while True:
        train(*batch)
        yield
