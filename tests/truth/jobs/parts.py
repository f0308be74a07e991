"""Models and training steps that several jobs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

Train = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def mlp(width: int = 512, depth: int = 4, classes: int = 10) -> nn.Module:
    """A perceptron that takes rows of `width` numbers. A step on 128 rows takes some 10 ms on one core."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def trainer(
    model: nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = nn.functional.cross_entropy,
    optimizer: torch.optim.Optimizer | None = None,
) -> Train:
    """Return a function that trains `model` on one batch and returns the loss."""
    chosen = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)

    def train(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        chosen.zero_grad()
        found = loss(model(inputs), targets)
        found.backward()
        chosen.step()
        return found

    return train


def rows(count: int = 128, width: int = 512, classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs and targets of one batch."""
    return torch.randn(count, width), torch.randint(classes, (count,))


def endless(loader: Iterable[list[torch.Tensor]]) -> Iterable[list[torch.Tensor]]:
    """Epoch after epoch."""
    while True:
        yield from loader


SAMPLES, BATCH = 4_096, 32

Sample = tuple[torch.Tensor, torch.Tensor]


class Rows(Dataset[Sample]):
    """Samples in memory."""

    def __init__(self) -> None:
        self.inputs, self.targets = rows(SAMPLES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Sample:
        return self.inputs[index], self.targets[index]


HOST = "python launch compute"
"""Limiters that are right where a processor spends its time on the cost of calls: no GPU waits for them."""


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


BATCHES = 8


WIDTH = 512


class Block(nn.Module):
    """Two layers with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return found


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
