"""A sixth round of jobs, written by somebody who knew no rule, and before any diagnosis of them was seen:
nine mistakes that public issues tell of, and three healthy jobs that look suspicious."""

from __future__ import annotations

import copy
import functools
import inspect
import random
import tracemalloc
import typing
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.utils import parametrizations, parametrize
from torch.utils.data import DataLoader, Dataset

from tests.truth.job import job
from tests.truth.jobs.fifth_round import Indexed
from tests.truth.jobs.ranks import LATE, data_parallel, ddp
from tests.truth.jobs.sharded import WIDTH, Block
from tests.truth.parts import mlp, rows, trainer

Record = dict[str, Any]


class Annotated(Dataset[Record]):
    """Features of pictures, each with what people drew on it: boxes, outlines and names."""

    def __init__(self, deeply: bool) -> None:
        numbers = random.Random(0)
        self.copied: Callable[[Record], Record] = copy.deepcopy if deeply else copy.copy
        self.features = torch.randn(512, 512)
        self.records = [
            {"id": place, "label": place % 10, "objects": [drawn(numbers, name) for name in range(6)]}
            for place in range(512)
        ]

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Record:
        record = self.copied(self.records[index % 512])  # so that a transform may change it
        record["features"] = self.features[index % 512]
        return record


def drawn(numbers: random.Random, name: int) -> Record:
    outline = [[numbers.random(), numbers.random()] for _ in range(12)]
    return {"name": str(name), "box": [numbers.random() for _ in range(4)], "outline": outline}


def features_and_labels(records: list[Record]) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.tensor([record["label"] for record in records])
    return torch.stack([record["features"] for record in records]), labels


@job(limiters="input", rules="GD101", functions="__getitem__ deepcopy _deepcopy_dict _deepcopy_list")
def annotations_copied_deeply(fixed: bool) -> Iterator[None]:
    """Annotations of a sample are copied with `copy.deepcopy` before use; fixed: with `copy.copy`."""
    train = trainer(mlp())
    loader = DataLoader(Annotated(deeply=not fixed), batch_size=64, collate_fn=features_and_labels)
    for inputs, targets in loader:
        train(inputs, targets)
        yield


Batches = Iterator[list[torch.Tensor]]


def stacked_by_hand(samples: Batches) -> tuple[torch.Tensor, torch.Tensor]:
    found = [next(samples) for _ in range(256)]
    return torch.cat([inputs for inputs, _ in found]), torch.cat([targets for _, targets in found])


@job(
    limiters="input python",
    rules="GD101",
    functions="stacked_by_hand batches_stacked_by_hand __next__ <listcomp>",
)
def batches_stacked_by_hand(fixed: bool) -> Iterator[None]:
    """The loader gives single samples, 256 of which are put together in the loop; fixed: `batch_size=256`."""
    train = trainer(mlp(depth=2))
    loader = iter(DataLoader(Indexed(2_000_000), batch_size=256 if fixed else 1))
    while True:
        inputs, targets = next(loader) if fixed else stacked_by_hand(loader)
        train(inputs, targets)
        yield


Checked = Callable[..., torch.Tensor]
CHECKS = {"on": True}


def check_types(function: Checked, arguments: tuple[Any, ...]) -> None:
    hints = typing.get_type_hints(function)
    for name, value in inspect.signature(function).bind(*arguments).arguments.items():
        if name in hints and not isinstance(value, hints[name]):
            raise TypeError(f"{name} of {function.__name__} is a {type(value).__name__}")


def checked(function: Checked) -> Checked:
    """Check the types of the arguments in each call, as long as checks are on."""

    @functools.wraps(function)
    def call(*arguments: Any) -> torch.Tensor:
        if CHECKS["on"]:
            check_types(function, arguments)
        return function(*arguments)

    return call


@checked
def scaled(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return x * factor


@checked
def shifted(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return x + by


@checked
def mixed_in(x: torch.Tensor, other: torch.Tensor, share: float) -> torch.Tensor:
    return torch.lerp(x, other, share)


class CheckedBlock(nn.Module):
    """A layer whose small functions are checked."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.factor, self.by = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return mixed_in(x, shifted(scaled(torch.relu(self.layer(x)), self.factor), self.by), 0.5)


@job(
    limiters="python",
    rules="GD102",
    functions="check_types call get_type_hints signature bind _bind signatures_checked_each_call",
    allowed="GD102",  # fixed, small operators are most of it: compiled, a step takes less than half as long
)
def signatures_checked_each_call(fixed: bool) -> Iterator[None]:
    """A decorator checks the types of a function's arguments in each call; fixed: checks are off."""
    CHECKS["on"] = not fixed
    blocks = [CheckedBlock(64) for _ in range(60)]
    train = trainer(nn.Sequential(*blocks, nn.Linear(64, 10)))
    batch = rows(64, 64)
    while True:
        train(*batch)
        yield


class Recurrent(nn.Module):
    """A recurrent layer whose weights are kept orthogonal, so that its gradients neither grow nor vanish."""

    def __init__(self, cached: bool, width: int = 96) -> None:
        super().__init__()
        self.input = nn.Linear(width, width)
        self.state = parametrizations.orthogonal(nn.Linear(width, width, bias=False))
        self.cached = cached

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(texts.shape[0], texts.shape[2])
        with parametrize.cached() if self.cached else nullcontext():
            for place in range(texts.shape[1]):
                state = torch.tanh(self.input(texts[:, place]) + self.state(state))
        return state


@job(limiters="compute launch", rules="")
def weight_made_at_each_time_step(fixed: bool) -> Iterator[None]:
    """An orthogonal weight is made anew at each of 16 time steps; fixed: once (`parametrize.cached`)."""
    train = trainer(Recurrent(cached=fixed), nn.functional.mse_loss)
    texts, targets = torch.randn(256, 16, 96), torch.randn(256, 96)
    while True:
        train(texts, targets)
        yield


class Denoiser(nn.Module):
    """Says which noise is in a picture, given how much of it there is."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(128, 512), nn.SiLU())
        self.body = mlp(depth=4, classes=512)

    def forward(self, noisy: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.logspace(0, 3, 64)
        found: torch.Tensor = self.body(noisy + self.time(torch.cat([angles.sin(), angles.cos()], dim=1)))
        return found


@job()
def healthy_diffusion(fixed: bool) -> Iterator[None]:
    """Diffusion: noise is drawn for each batch, and the model learns to find it."""
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    pictures = torch.randn(512, 512)
    while True:
        clean = pictures[torch.randint(512, (256,))]
        time, noise = torch.rand(256), torch.randn_like(clean)
        noisy = (1 - time)[:, None] * clean + time[:, None] * noise
        optimizer.zero_grad()
        nn.functional.mse_loss(model(noisy, time), noise).backward()
        optimizer.step()
        yield


def average_gradients(model: nn.Module, world: int) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


@job(limiters="communication mixed", rules="GD608 GD609 GD607", world=2, timed=15)
def averaged_twice(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """DDP averages gradients, and then the loop of an old tutorial does so again; fixed: only DDP."""
    model = ddp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(64)
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        if not fixed:
            average_gradients(model, world)
        optimizer.step()
        yield


@job(limiters=f"{LATE} launch", rules="GD602 GD603", rank=1, world=2, timed=12)
def allocations_traced_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 still runs `tracemalloc`, with which somebody looked for a leak; fixed: no longer."""
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()) for _ in range(120)]
    train = trainer(nn.parallel.DistributedDataParallel(nn.Sequential(*blocks, nn.Linear(64, 10))))
    batch = rows(16, 64)
    if rank == 1 and not fixed:
        tracemalloc.start(25)
    while True:
        train(*batch)
        yield


def histogram_of(values: torch.Tensor) -> tuple[list[float], list[float]]:
    return torch.histc(values, bins=64).tolist(), torch.quantile(values, torch.linspace(0, 1, 9)).tolist()


@job(
    limiters=LATE,
    rules="GD602 GD603",
    functions="histogram_of keep_histograms",
    rank=0,
    world=4,
    timed=12,
)
def histograms_on_rank_zero(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 makes histograms of all weights in each step, for a board; fixed: every hundredth."""
    histograms: list[tuple[list[float], list[float]]] = []
    weights = [torch.randn(256_000) for _ in range(8)]  # of a part that is not trained

    def keep_histograms(step: int) -> None:
        if rank == 0 and (not fixed or step % 100 == 99):
            histograms[:] = [histogram_of(weight) for weight in weights]

    yield from data_parallel(rank, keep_histograms)


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


def passed_on(sent: torch.Tensor, rank: int, world: int) -> tuple[torch.Tensor, list[dist.Work]]:
    """What the rank before sends, once the returned requests are done."""
    received = torch.empty_like(sent)
    asked = [
        dist.P2POp(dist.isend, sent, (rank + 1) % world),
        dist.P2POp(dist.irecv, received, (rank - 1) % world),
    ]
    return received, dist.batch_isend_irecv(asked)


@job(world=4, timed=15)
def healthy_ring_of_keys(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Attention to long texts: keys go round the ranks, while those that are there are compared."""
    layer = nn.Linear(128, 256)
    queries, texts = torch.randn(512, 128), torch.randn(512, 128)
    while True:
        with torch.no_grad():
            kept, weights = torch.zeros_like(queries), torch.zeros(512, 1)
            held = layer(texts)
            for turn in range(world):
                coming, requests = passed_on(held, rank, world) if turn < world - 1 else (held, [])
                keys, values = held.split(128, dim=1)
                scores = (queries @ keys.t() / 128**0.5).exp()
                kept, weights = kept + scores @ values, weights + scores.sum(dim=1, keepdim=True)
                for request in requests:
                    request.wait()
                held = coming
            queries = nn.functional.normalize(queries + kept / weights)
        yield


@job(world=2, timed=20)
def healthy_join(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """DDP's `join`, for ranks that may run out of inputs, asks in each step whether all have some."""
    model = ddp()
    train, batch = trainer(model), rows(256)
    with model.join():
        while True:
            train(*batch)
            yield
