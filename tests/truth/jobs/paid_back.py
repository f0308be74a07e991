"""Jobs with one fault each, whose fixes are timed to learn how much of a promise comes back."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from itertools import count

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from tests.truth.job import job
from tests.truth.jobs.parts import (
    BATCH,
    HOST,
    LATE,
    WIDTH,
    Rows,
    Sample,
    ddp,
    endless,
    mlp,
    rows,
    trainer,
)


def confusion(outputs: torch.Tensor, targets: torch.Tensor) -> list[list[int]]:
    found = [[0] * 10 for _ in range(10)]
    for row, target in zip(outputs, targets, strict=True):
        found[int(target.item())][int(row.argmax().item())] += 1
    return found


@job(limiters=HOST, rules="GD102 GD301 GD201 GD202", functions="confusion")
def confusion_by_row(fixed: bool) -> Iterator[None]:
    """A confusion matrix is counted row by row in each step; fixed: by one call."""
    train, batch = trainer(mlp()), rows()
    outputs, targets = rows(1_024, 10)
    while True:
        train(*batch)
        if fixed:
            torch.bincount(10 * targets + outputs.argmax(dim=1), minlength=100)
        else:
            confusion(outputs, targets)
        yield


def histograms(model: nn.Module) -> dict[str, list[int]]:
    return {
        name: np.histogram(weight.detach().numpy(), bins=64)[0].tolist()
        for name, weight in model.named_parameters()
    }


@job(limiters="python compute", rules="GD102", functions="histograms", timed=40)
def histograms_each_step(fixed: bool) -> Iterator[None]:
    """Histograms of all weights in each step; fixed: in every 20th."""
    model, batch = mlp(), rows()
    train = trainer(model)
    for step in count():
        train(*batch)
        if not fixed or step % 20 == 0:
            histograms(model)
        yield


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [weight.grad for weight in model.parameters() if weight.grad is not None]


def gradient_norms(model: nn.Module) -> float:
    return sum(
        float(weight.grad.norm().item()) ** 2 for weight in model.parameters() if weight.grad is not None
    )


@job(limiters=HOST, rules="GD102 GD301 GD201 GD202", functions="gradient_norms")
def norms_one_by_one(fixed: bool) -> Iterator[None]:
    """The gradients' norm is added up in Python over 200 small layers; fixed: by one call."""
    model = nn.Sequential(
        *(layer for _ in range(200) for layer in (nn.Linear(16, 16), nn.ReLU())), nn.Linear(16, 10)
    )
    train, batch = trainer(model), rows(32, 16)
    while True:
        train(*batch)
        if fixed:
            nn.utils.get_total_norm(gradients(model))
        else:
            gradient_norms(model)
        yield


@job(limiters="python", rules="GD102", functions="log_line")
def log_flushed_to_disk(fixed: bool) -> Iterator[None]:
    """Each step's metrics are written and flushed to the disk; fixed: written only."""
    train, batch = trainer(mlp()), rows()
    file = tempfile.NamedTemporaryFile("w", suffix=".jsonl")  # noqa: SIM115

    def log_line(step: int, loss: float) -> None:
        for key in range(20):
            file.write(json.dumps({"step": step, "key": key, "loss": loss}) + "\n")
            if not fixed:
                file.flush()
                os.fsync(file.fileno())

    for step in count():
        log_line(step, float(train(*batch)))
        yield


class PackedRows(Rows):
    """Samples that are unpacked each time."""

    def __init__(self) -> None:
        super().__init__()
        noise = np.random.default_rng(0).integers(0, 40, (16, 150_000), np.uint8)
        self.packed = [zlib.compress(row.tobytes()) for row in noise]

    def __getitem__(self, index: int) -> Sample:
        row = np.frombuffer(zlib.decompress(self.packed[index % 16]), np.uint8)[:WIDTH]
        return torch.from_numpy(row.astype(np.float32) / 40), self.targets[index]


@job(limiters="input", rules="GD101", functions="__getitem__")
def unpacked_while_training(fixed: bool) -> Iterator[None]:
    """Samples are decompressed in the training process; fixed: by a worker, beside the training."""
    train = trainer(mlp(depth=10))
    loader = DataLoader(PackedRows(), batch_size=BATCH, num_workers=int(fixed), persistent_workers=fixed)
    for batch in endless(loader):
        train(*batch)
        yield


class ScaledRows(Rows):
    """Samples that are scaled with NumPy, one by one."""

    def __getitem__(self, index: int) -> Sample:
        row = self.inputs[index].numpy().astype(np.float64)
        for _ in range(20):
            row = np.clip((row - row.mean()) / (row.std() + 1e-6), -3, 3)
        return torch.from_numpy(row.astype(np.float32)), self.targets[index]


@job(limiters="input", rules="GD101", functions="__getitem__")
def scaled_by_sample(fixed: bool) -> Iterator[None]:
    """Samples are scaled in `__getitem__` in each epoch; fixed: they are kept scaled."""
    train, data = trainer(mlp()), Rows() if fixed else ScaledRows()
    for batch in endless(DataLoader(data, batch_size=BATCH)):
        train(*batch)
        yield


def by_hand(x: torch.Tensor) -> torch.Tensor:
    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))


class Activated(nn.Module):
    """Layers with an activation that is written out, or built in."""

    def __init__(self, built_in: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(4))
        self.classes, self.built_in = nn.Linear(256, 10), built_in

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            x = nn.functional.gelu(x, approximate="tanh") if self.built_in else by_hand(x)
        found: torch.Tensor = self.classes(x)
        return found


@job(limiters=f"{HOST} memory", rules="GD505 GD202 GD201", functions="by_hand forward")
def activation_by_hand(fixed: bool) -> Iterator[None]:
    """An activation of eight operators; fixed: the one that torch has."""
    train, batch = trainer(Activated(built_in=fixed)), rows(256, 256)
    while True:
        train(*batch)
        yield


class Heads(nn.Module):
    """Attention head by head, or of all heads at once."""

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.project, self.classes, self.together = nn.Linear(128, 384), nn.Linear(128, 10), together

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [part.unflatten(2, (16, 8)).transpose(1, 2) for part in self.project(x).chunk(3, dim=2)]
        found = nn.functional.scaled_dot_product_attention(*heads) if self.together else head_by_head(*heads)
        classes: torch.Tensor = self.classes(found.transpose(1, 2).flatten(2).mean(dim=1))
        return classes


def head_by_head(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    found = []
    for row in range(query.shape[0]):
        for head in range(query.shape[1]):
            scores = query[row, head] @ key[row, head].T / 8**0.5
            found.append(scores.softmax(dim=1) @ value[row, head])
    return torch.stack(found).reshape(query.shape)


@job(limiters=HOST, rules="GD201 GD202 GD102", functions="head_by_head")
def attention_head_by_head(fixed: bool) -> Iterator[None]:
    """Attention is computed in a loop over rows and heads; fixed: by one operator."""
    train, batch = trainer(Heads(fixed)), (torch.randn(8, 32, 128), torch.randint(10, (8,)))
    while True:
        train(*batch)
        yield


def words_of(step: int) -> list[int]:
    text = " ".join(f"word{(step * 31 + index) % 977}" for index in range(6_000))
    return [hash(word) % 5_000 for word in text.lower().split()]


@job(limiters="python input", rules="GD102 GD101", functions="words_of")
def words_hashed_each_step(fixed: bool) -> Iterator[None]:
    """Text is split and hashed in each step; fixed: it was before the first one."""
    train = trainer(nn.EmbeddingBag(5_000, 256))
    kept = words_of(0)
    for step in count():
        words = torch.tensor(kept if fixed else words_of(step)).reshape(60, 100)
        train(words, torch.randint(10, (60,)))
        yield


@job(limiters="communication python mixed launch", rules="GD608 GD609 GD607", world=2, timed=20)
def gradients_sent_one_by_one(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Each of 122 gradients is reduced by itself; fixed: all in one tensor."""
    model = mlp(width=64, depth=60)
    train, batch = trainer(model), rows(64, 64)
    while True:
        train(*batch)
        found = gradients(model)
        for gradient in [torch.cat([each.flatten() for each in found])] if fixed else found:
            dist.all_reduce(gradient)
        yield


@job(limiters=LATE, rules="GD602 GD603", functions="replayed", rank=1, world=2, timed=20)
def one_rank_samples_in_python(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 weighs its samples in Python in each step; fixed: it does not."""

    def replayed(step: int) -> float:
        return sum((index * 7919 + step) % 1_013 / 1_013 for index in range(150_000))

    train, batch = trainer(ddp()), rows(64)
    for step in count():
        if rank == 1 and not fixed:
            replayed(step)
        train(*batch)
        yield


@job(limiters=LATE, rules="GD603 GD602", rank=0, world=2, timed=20)
def rows_shared_unevenly(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 gets three times as many rows as rank 1; fixed: both get as many."""
    train, batch = trainer(ddp()), rows(128 if fixed else (192, 64)[rank])
    while True:
        train(*batch)
        yield


@job(limiters=f"{LATE} input", rules="GD101", functions="__getitem__", world=2, timed=20)
def all_ranks_scale_samples(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """On both ranks, samples are scaled in `__getitem__` in each epoch; fixed: they are kept scaled."""
    train, data = trainer(ddp()), Rows() if fixed else ScaledRows()
    for batch in endless(DataLoader(data, batch_size=BATCH)):
        train(*batch)
        yield


@job(limiters=f"{LATE} input", rules="GD602 GD101", rank=1, world=2, timed=20)
def one_rank_unpacks(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 1 decompresses samples while it trains; fixed: it has them as rank 0 does."""
    train, data = trainer(ddp()), Rows() if fixed or rank == 0 else PackedRows()
    for batch in endless(DataLoader(data, batch_size=BATCH)):
        train(*batch)
        yield
