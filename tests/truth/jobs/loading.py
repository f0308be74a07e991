"""Batches that come too slowly: data sets, collation, samplers and workers."""

from __future__ import annotations

import re
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    SequentialSampler,
    TensorDataset,
)

from tests.truth.job import job
from tests.truth.jobs.parts import BATCH, SAMPLES, WIDTH, Rows, Sample, endless, mlp, rows, trainer


class ParsedRows(Rows):
    """Samples that are parsed from text each time."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = [" ".join(f"{value:.4f}" for value in row.tolist()) for row in self.inputs[:64]]

    def __getitem__(self, index: int) -> Sample:
        values = []
        for word in self.texts[index % 64].split():
            values.append(float(word))
        for _ in range(3):
            values = [
                0.5 * value + 0.5 * other for value, other in zip(values, reversed(values), strict=True)
            ]
        return torch.tensor(values), self.targets[index]


def fast_loader() -> DataLoader[list[torch.Tensor]]:
    """Batches that are cut out of the whole at once: next to no time, even beside a small model."""
    data = TensorDataset(*rows(SAMPLES))
    return DataLoader(data, sampler=BatchSampler(SequentialSampler(data), BATCH, False), batch_size=None)


@job(limiters="input", rules="GD101", functions="__getitem__")
def slow_getitem(fixed: bool) -> Iterator[None]:
    """Samples are parsed from text in `__getitem__`, in the training process."""
    train = trainer(mlp(depth=6))
    loader = fast_loader() if fixed else DataLoader(ParsedRows(), batch_size=BATCH)
    for inputs, targets in endless(loader):
        train(inputs, targets)
        yield


def augmented(images: torch.Tensor) -> torch.Tensor:
    found = images.reshape(-1, 1, 16, 32)
    for _ in range(12):
        found = torch.nn.functional.avg_pool2d(found, 3, stride=1, padding=1)
        found = found + 0.01 * torch.randn_like(found)
        found = torch.flip(found, [3]).clamp(-3, 3)
    return found.reshape(-1, WIDTH)


class AugmentedRows(Rows):
    """Samples that are augmented one by one."""

    def __getitem__(self, index: int) -> Sample:
        return augmented(self.inputs[index][None])[0], self.targets[index]


@job(limiters="input", rules="GD101", functions="__getitem__ augmented")
def augmentation_per_sample(fixed: bool) -> Iterator[None]:
    """Augmentation sample by sample; fixed: once for the batch."""
    train = trainer(mlp())
    slow = DataLoader(AugmentedRows(), batch_size=BATCH)
    for inputs, targets in endless(fast_loader() if fixed else slow):
        train(augmented(inputs) if fixed else inputs, targets)
        yield


@job(limiters="input", rules="GD101", functions="new_iterator_each_step", timed=6)
def new_iterator_each_step(fixed: bool) -> Iterator[None]:
    """A new iterator, and so new workers, in each step."""
    torch.set_num_threads(1)  # the worker has a core of its own
    train = trainer(mlp(depth=12))
    loader = DataLoader(Rows(), batch_size=BATCH, num_workers=1)
    batches = iter(endless(loader))
    while True:
        inputs, targets = next(batches) if fixed else next(iter(loader))
        train(inputs, targets)
        yield


class StoredRows(Rows):
    """Samples from a store that answers after some milliseconds."""

    def __getitem__(self, index: int) -> Sample:
        time.sleep(0.004)
        return super().__getitem__(index)


@job(limiters="input", rules="GD101")
def too_few_workers(fixed: bool) -> Iterator[None]:
    """One worker waits for a store; fixed: sixteen do."""
    torch.set_num_threads(1)
    train = trainer(mlp(depth=12))
    loader = DataLoader(StoredRows(), batch_size=BATCH, num_workers=16 if fixed else 1)
    for inputs, targets in endless(loader):
        train(inputs, targets)
        yield


class Files(Rows):
    """Samples in a file each."""

    def __init__(self, compressed: bool) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.compressed = compressed
        for index in range(256):
            bytes_ = np.tile(self.inputs[index].numpy(), 256).tobytes()
            (self.folder / f"{index}").write_bytes(zlib.compress(bytes_) if compressed else bytes_)

    def __getitem__(self, index: int) -> Sample:
        found = (self.folder / f"{index % 256}").read_bytes()
        if self.compressed:
            found = zlib.decompress(found)
        values = np.frombuffer(found, np.float32).reshape(256, WIDTH)
        return torch.from_numpy(values.mean(axis=0)), self.targets[index]


@job(limiters="input", rules="GD101", functions="__getitem__ read_bytes")
def file_per_sample(fixed: bool) -> Iterator[None]:
    """A file is opened and read for each sample."""
    train = trainer(mlp())
    slow = DataLoader(Files(False), batch_size=BATCH)
    for inputs, targets in endless(fast_loader() if fixed else slow):
        train(inputs, targets)
        yield


TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 40


WORD = re.compile(r"\w+|[^\w\s]")


def tokenize(texts: list[tuple[str, int]]) -> list[torch.Tensor]:
    numbers: dict[str, int] = {}
    found = []
    for text, _ in texts:
        words = [word.lower() for word in WORD.findall(text)]
        tokens = [numbers.setdefault(word, len(numbers)) for word in words][:WIDTH]
        found.append([float(token) for token in tokens] + [0.0] * (WIDTH - len(tokens)))
    return [torch.tensor(found), torch.tensor([target for _, target in texts])]


@job(limiters="input", rules="GD101", functions="tokenize")
def tokenize_while_training(fixed: bool) -> Iterator[None]:
    """Texts are tokenized when a batch is collated; fixed: before the training."""
    train = trainer(mlp())
    texts = [(TEXT, index % 10) for index in range(SAMPLES)]
    once = tokenize(texts[:BATCH])
    for batch in (
        endless(DataLoader(texts, batch_size=BATCH, collate_fn=tokenize))
        if not fixed
        else iter(lambda: once, 0)
    ):
        train(batch[0], batch[1])
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


@job(
    limiters="input mixed compute",
    rules="GD101 GD106",
    functions="__iter__ _get_iterator __init__ start endless _shutdown_workers workers_started_each_epoch",
)
def workers_started_each_epoch(fixed: bool) -> Iterator[None]:
    """An epoch has five steps, and each starts two new workers; fixed: `persistent_workers=True`."""
    train = trainer(mlp(depth=8))
    data = torch.utils.data.Subset(Rows(), range(5 * 64))
    loader = DataLoader(
        data,
        batch_size=64,
        shuffle=True,
        num_workers=2,
        persistent_workers=fixed,
        multiprocessing_context="fork",  # as Python did by itself before 3.14: a few ms for each worker
    )
    for inputs, targets in endless(loader):
        train(inputs, targets)
        yield
