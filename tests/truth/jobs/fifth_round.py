"""A fifth round of jobs, written by somebody who knew no rule, and before any diagnosis of them was seen:
nine with a fault, and five that are healthy and look suspicious."""

from __future__ import annotations

import itertools
import json
import random
import string
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from tests.truth.job import job
from tests.truth.jobs.ranks import LATE, ddp
from tests.truth.parts import mlp, rows, trainer


def edit_distance(first: str, second: str) -> int:
    before = list(range(len(second) + 1))
    for row, letter in enumerate(first, 1):
        now = [row]
        for column, other in enumerate(second, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != other)))
        before = now
    return before[-1]


def letter_errors(guesses: list[str], texts: list[str]) -> float:
    pairs = zip(guesses, texts, strict=True)
    return sum(edit_distance(guess, text) for guess, text in pairs) / sum(map(len, texts))


@job(limiters="python", rules="GD102", functions="edit_distance letter_errors edit_distances_each_step")
def edit_distances_each_step(fixed: bool) -> Iterator[None]:
    """How many letters of the transcripts are wrong is counted in each step; fixed: every hundredth."""
    train = trainer(mlp())
    batch = rows()
    letters = random.Random(0)
    texts = ["".join(letters.choices(string.ascii_lowercase, k=60)) for _ in range(32)]
    guesses = ["".join(letters.choices(string.ascii_lowercase, k=60)) for _ in range(32)]
    errors = []
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            errors.append(letter_errors(guesses, texts))
        yield


class Indexed(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows that are in memory."""

    def __init__(self, count: int = 30_000) -> None:
        self.inputs, self.targets = rows(512)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index % 512], self.targets[index % 512]


class OfLikeLength(Sampler[list[int]]):
    """Batches of texts that are about as long as each other."""

    def __init__(self, lengths: list[int], size: int, sort_once: bool) -> None:
        self.lengths, self.size = lengths, size
        self.sorted = self.by_length() if sort_once else None
        self.random = random.Random(0)

    def by_length(self) -> list[int]:
        return sorted(range(len(self.lengths)), key=lambda index: (self.lengths[index], index))

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            ordered = self.sorted or self.by_length()
            start = self.random.randrange(len(ordered) - self.size)
            yield ordered[start : start + self.size]


@job(
    limiters="input python",
    rules="GD101 GD102",
    functions="by_length <lambda> __iter__ sampler_sorts_for_each_batch",
)
def sampler_sorts_for_each_batch(fixed: bool) -> Iterator[None]:
    """A sampler sorts all texts by their length to choose one batch; fixed: it sorts them once."""
    train = trainer(mlp())
    lengths = random.Random(1).choices(range(5, 2_000), k=30_000)
    sampler = OfLikeLength(lengths, size=128, sort_once=fixed)
    for inputs, targets in DataLoader(Indexed(), batch_sampler=sampler):
        train(inputs, targets)
        yield


class Boxes(Dataset[dict[str, Any]]):
    """Features of a picture, and the boxes and names of what is in it."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, Any]:
        features = torch.full((512,), index / 1_000_000)
        return {"features": features, "boxes": [torch.full((4,), place / 10) for place in range(3)]}


Pictures = list[dict[str, Any]]


def as_they_are(pictures: Pictures) -> Pictures:
    return pictures


def stacked(pictures: Pictures) -> list[torch.Tensor]:
    boxes = torch.cat([torch.stack(picture["boxes"]) for picture in pictures])
    return [torch.stack([picture["features"] for picture in pictures]), boxes]


@job(limiters="input", rules="GD101", timed=20)
def many_tensors_through_workers(fixed: bool) -> Iterator[None]:
    """A worker hands over 256 small tensors for a batch, each in a file of its own; fixed: two large ones."""
    model = mlp(classes=12)
    train = trainer(model, nn.functional.mse_loss)
    collate = stacked if fixed else as_they_are
    for batch in DataLoader(Boxes(), batch_size=64, num_workers=1, collate_fn=collate):
        features, boxes = batch if fixed else stacked(batch)
        train(features, boxes.reshape(64, 12))
        yield


def accuracy_by_class(predicted: torch.Tensor, targets: torch.Tensor, classes: int) -> list[float]:
    found = []
    for number in range(classes):
        of_class = targets == number
        if of_class.any():
            found.append((predicted[of_class] == number).float().mean().item())
        else:
            found.append(0.0)
    return found


def accuracy_at_once(predicted: torch.Tensor, targets: torch.Tensor, classes: int) -> list[float]:
    right = torch.bincount(targets[predicted == targets], minlength=classes)
    answer: list[float] = (right / torch.bincount(targets, minlength=classes).clamp(min=1)).tolist()
    return answer


@job(
    limiters="python launch compute",
    rules="GD102 GD301 GD201 GD202",
    functions="accuracy_by_class accuracy_of_each_class",
)
def accuracy_of_each_class(fixed: bool) -> Iterator[None]:
    """The accuracy of each of 2,000 classes is computed with a mask of its own; fixed: all by counting."""
    model = mlp(depth=2, classes=2_000)
    inputs, targets = rows(64, classes=2_000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    measure = accuracy_at_once if fixed else accuracy_by_class
    while True:
        optimizer.zero_grad()
        scores = model(inputs)
        nn.functional.cross_entropy(scores, targets).backward()
        optimizer.step()
        measure(scores.detach().argmax(dim=1), targets, 2_000)
        yield


def penalty_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """How fast the output changes with the input, as a loss that has a gradient itself."""
    inputs = inputs.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    return slope.square().sum(dim=1).mean()


def smooth(width: int = 512, depth: int = 4) -> nn.Module:
    """A perceptron whose output changes smoothly."""
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.SiLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


@job(limiters="compute", rules="")
def penalty_with_weight_zero(fixed: bool) -> Iterator[None]:
    """A penalty of gradients is computed although its weight has fallen to zero; fixed: it is left out."""
    model = smooth()
    inputs, targets = rows(256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weight = 0.0
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if weight > 0 or not fixed:
            loss = loss + weight * penalty_of(model, inputs)
        loss.backward()
        optimizer.step()
        yield


@job(timed=15)
def healthy_line_search(fixed: bool) -> Iterator[None]:
    """L-BFGS, whose step computes the loss a few times, and reads it to decide how far to go."""
    model = mlp()
    inputs, targets = rows(256)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=4, history_size=4)

    def loss_again() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    while True:
        optimizer.step(loss_again)
        yield


@job(timed=20)
def healthy_lengths_that_vary(fixed: bool) -> Iterator[None]:
    """Texts of 64 to 160 words, so that steps differ by the factor three; nothing is compiled or padded."""
    layer = nn.TransformerEncoderLayer(256, nhead=4, dim_feedforward=1_024, dropout=0.0, batch_first=True)
    train = trainer(layer, nn.functional.mse_loss)
    lengths = random.Random(2)
    while True:
        texts = torch.randn(8, lengths.randrange(64, 161, 16), 256)
        train(texts, texts)
        yield


class FromAStore(Indexed):
    """Rows that come from a store after half a millisecond each."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.0005)
        return super().__getitem__(index)


@job(timed=20)
def healthy_workers_with_slack(fixed: bool) -> Iterator[None]:
    """A store takes long for a batch, but two workers wait for it, and training waits for none of them."""
    model = mlp(depth=6)
    train = trainer(model)
    loader = DataLoader(FromAStore(1_000_000), batch_size=48, num_workers=2, prefetch_factor=4)
    for inputs, targets in loader:
        train(inputs.repeat(10, 1), targets.repeat(10))
        yield


class Bank(nn.Module):
    """Compares features with those of earlier samples, which it keeps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(classes=512)
        self.register_buffer("bank", nn.functional.normalize(torch.randn(16_384, 512), dim=1))
        self.place = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = nn.functional.normalize(self.body(inputs), dim=1)
        compared: torch.Tensor = found @ self.bank[:16_384:16].t()
        return compared

    def keep(self, inputs: torch.Tensor) -> None:
        self.bank[self.place : self.place + len(inputs)] = inputs
        self.place = (self.place + len(inputs)) % 16_384


@job(limiters="communication mixed", rules="GD609 GD607", world=2, timed=15)
def bank_broadcast_as_a_buffer(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """A memory bank is a buffer, which DDP broadcasts before each step; fixed: `broadcast_buffers=False`."""
    bank = Bank()
    options = {"broadcast_buffers": False} if fixed else {}
    train = trainer(DistributedDataParallel(bank, **options))
    inputs, targets = rows(64, classes=1_024)
    while True:
        train(inputs, targets)
        bank.keep(inputs)
        yield


class Exchange(torch.autograd.Function):
    """Rows go to the ranks in these counts, and come from them; their gradients go back."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        context.sent, context.received = sent, received
        found = inputs.new_empty(sum(received), inputs.shape[1])
        dist.all_to_all_single(found, inputs.contiguous(), received, sent)
        return found

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        found = gradient.new_empty(sum(context.sent), gradient.shape[1])
        dist.all_to_all_single(found, gradient.contiguous(), context.sent, context.received)
        return found, None, None


@job(limiters=LATE, rules="GD603 GD602", rank=1, world=2, timed=12)
def experts_out_of_balance(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Of two experts, one on each rank, that of rank 1 gets 15 of 16 rows; fixed: half of them."""
    shared = DistributedDataParallel(nn.Linear(512, 512))
    expert = mlp(depth=4, classes=512)
    sent = [128, 128] if fixed else [16, 240]
    received = [sent[rank]] * world
    optimizer = torch.optim.SGD([*shared.parameters(), *expert.parameters()], lr=0.01)
    inputs = torch.randn(256, 512)
    while True:
        optimizer.zero_grad()
        mine = Exchange.apply(shared(inputs), sent, received)
        answers = Exchange.apply(expert(mine), received, sent)
        nn.functional.mse_loss(answers, inputs).backward()
        optimizer.step()
        yield


def decoded(line: str) -> tuple[torch.Tensor, torch.Tensor]:
    found = json.loads(line)
    return torch.tensor(found["values"]), torch.tensor(found["label"])


class Share(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """A rank's share of a stream of lines: every third one, if there are three ranks."""

    def __init__(self, lines: list[str], rank: int, world: int) -> None:
        self.lines, self.rank, self.world = lines, rank, world

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for place, line in enumerate(itertools.cycle(self.lines)):
            sample = decoded(line)
            if place % self.world == self.rank:
                yield sample


class DecodedShare(Share):
    """The same, decoded once."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return itertools.cycle([decoded(line) for line in self.lines[self.rank :: self.world]])


@job(
    limiters="input python",
    rules="GD101 GD102",
    functions="decoded __iter__ loads decode raw_decode",
    world=3,
    timed=12,
)
def each_rank_decodes_all(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Each rank decodes the samples of all ranks in each epoch, and drops most; fixed: its own ones, once."""
    numbers = random.Random(3)
    lines = [
        json.dumps({"values": [numbers.random() for _ in range(512)], "label": place % 10})
        for place in range(96)
    ]
    share = (DecodedShare if fixed else Share)(lines, rank, world)
    train = trainer(ddp())
    for inputs, targets in DataLoader(share, batch_size=32):
        train(inputs, targets)
        yield


def look_for_nan(gradient: torch.Tensor) -> None:
    for value in gradient.flatten().tolist():  # no generator: with stacks, its trace has 1.9 GB
        if value != value:
            raise ValueError("a gradient is not a number")


@job(
    limiters=LATE,
    rules="GD602 GD102",
    functions="look_for_nan",
    rank=2,
    world=3,
    timed=12,
)
def gradients_searched_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 2 looks for NaN in Python, in a hook of each weight, since it had one; fixed: no longer."""
    model = mlp()
    if rank == 2 and not fixed:
        for parameter in model.parameters():
            parameter.register_hook(look_for_nan)
    train = trainer(DistributedDataParallel(model))
    batch = rows(64)
    while True:
        train(*batch)
        yield


@job(world=2, timed=15)
def healthy_sharded_optimizer(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Each rank keeps Adam's state of half of the weights, and broadcasts them when they have changed."""
    model = ddp()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.001)
    train, batch = trainer(model, optimizer=optimizer), rows(512)
    while True:
        train(*batch)
        yield


@job(world=2, timed=20)
def healthy_lengths_agreed(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Batches of 64 to 256 rows, of as many on both ranks, which draw their number from the same seed."""
    train = trainer(ddp())
    sizes = random.Random(4)
    while True:
        train(*rows(sizes.randrange(64, 257, 32)))
        yield
