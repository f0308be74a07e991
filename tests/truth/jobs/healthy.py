"""Jobs with nothing wrong: their time is their arithmetic. With `fixed` they are the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.truth.job import job
from tests.truth.parts import endless, mlp, rows, trainer


@job()
def healthy_mlp(fixed: bool) -> Iterator[None]:
    """A perceptron on large batches."""
    train = trainer(mlp(width=1_024))
    batch = rows(256, 1_024)
    while True:
        train(*batch)
        yield


@job()
def healthy_convolutions(fixed: bool) -> Iterator[None]:
    """Convolutions with batch normalization and residuals."""
    block = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    train = trainer(nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), block, block, head))
    batch = torch.randn(16, 3, 48, 48), torch.randint(10, (16,))
    while True:
        train(*batch)
        yield


class Recurrent(nn.Module):
    """The last output of an LSTM."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layer = kind(128, 256, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.layer(inputs)[0][:, -1])
        return found


@job()
def healthy_lstm(fixed: bool) -> Iterator[None]:
    """An LSTM over 64 time steps."""
    train = trainer(Recurrent(nn.LSTM))
    batch = torch.randn(64, 64, 128), torch.randint(10, (64,))
    while True:
        train(*batch)
        yield


@job(allowed="GD102")
def healthy_gru(fixed: bool) -> Iterator[None]:
    """A GRU with gradients clipped by torch, which runs it as 7,000 small operators: a finding may say so."""
    model = Recurrent(nn.GRU)
    optimizer = torch.optim.Adam(model.parameters())
    inputs, targets = torch.randn(64, 64, 128), torch.randint(10, (64,))
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield


@job()
def healthy_transformer(fixed: bool) -> Iterator[None]:
    """Two layers of a transformer with AdamW."""
    layer = nn.TransformerEncoderLayer(256, 8, 512, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    train = trainer(model, nn.functional.mse_loss, torch.optim.AdamW(model.parameters()))
    inputs = torch.randn(8, 128, 256)
    while True:
        train(inputs, inputs)
        yield


@job()
def healthy_loader(fixed: bool) -> Iterator[None]:
    """A loader that is fast enough."""
    train = trainer(mlp(width=1_024))
    data = TensorDataset(*rows(8_192, 1_024))
    for inputs, targets in endless(DataLoader(data, batch_size=256, shuffle=True, num_workers=1)):
        train(inputs, targets)
        yield


@job()
def healthy_accumulation(fixed: bool) -> Iterator[None]:
    """Gradients of four micro-batches in each step."""
    model = mlp(width=1_024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(128, 1_024)
    while True:
        optimizer.zero_grad()
        for _ in range(4):
            (nn.functional.cross_entropy(model(inputs), targets) / 4).backward()
        optimizer.step()
        yield


@job()
def healthy_embeddings(fixed: bool) -> Iterator[None]:
    """Embeddings of a recommender, and a perceptron over them."""
    bags = nn.EmbeddingBag(20_000, 512, mode="mean")
    head = mlp(width=512)
    optimizer = torch.optim.SGD([*bags.parameters(), *head.parameters()], lr=0.01)
    words, targets = torch.randint(20_000, (512, 40)), torch.randint(10, (512,))
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(bags(words)), targets).backward()
        optimizer.step()
        yield


@job()
def healthy_inference(fixed: bool) -> Iterator[None]:
    """A model that answers, without gradients."""
    model = mlp(width=1_024, depth=8).eval()
    inputs, _ = rows(256, 1_024)
    while True:
        with torch.inference_mode():
            model(inputs)
        yield


@job()
def healthy_checkpointing(fixed: bool) -> Iterator[None]:
    """Activations are computed again in the backward pass, as asked for."""
    layers = [mlp(width=768, depth=2, classes=768) for _ in range(3)]
    head = nn.Linear(768, 10)
    parameters = [p for layer in [*layers, head] for p in layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    inputs, targets = rows(256, 768)
    while True:
        optimizer.zero_grad()
        found = inputs
        for layer in layers:
            found = torch.utils.checkpoint.checkpoint(layer, found, use_reentrant=False)
        nn.functional.cross_entropy(head(found), targets).backward()
        optimizer.step()
        yield


@job()
def healthy_log_every_tenth(fixed: bool) -> Iterator[None]:
    """The loss is read every tenth step."""
    train = trainer(mlp(width=1_024))
    batch = rows(256, 1_024)
    step, total = 0, 0.0
    while True:
        loss = train(*batch)
        step += 1
        if step % 10 == 0:
            total += loss.item()
        yield
