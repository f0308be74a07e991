"""Jobs of one process with nothing wrong."""

from __future__ import annotations

import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.truth.job import job
from tests.truth.jobs.parts import endless, mlp, rows, trainer


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
def healthy_prefetching_thread(fixed: bool) -> Iterator[None]:
    """A thread makes the next batch while this one is trained on."""
    train = trainer(mlp(width=1_024))
    batches: queue.Queue[tuple[torch.Tensor, torch.Tensor]] = queue.Queue(maxsize=2)

    def prefetch() -> None:
        while True:
            time.sleep(0.002)
            batches.put(rows(256, 1_024))

    threading.Thread(target=prefetch, daemon=True).start()
    while True:
        train(*batches.get())
        yield


@job()
def healthy_checkpoint_now_and_then(fixed: bool) -> Iterator[None]:
    """A checkpoint every fiftieth step, one of which is recorded."""
    model = mlp(width=1_024)
    train = trainer(model)
    batch = rows(256, 1_024)
    path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
    step = 0
    while True:
        train(*batch)
        step += 1
        if step % 50 == 40:
            torch.save(model.state_dict(), path)
        yield


@job()
def healthy_progress_bar(fixed: bool) -> Iterator[None]:
    """A progress bar with the loss, drawn once a step."""
    train = trainer(mlp(width=1_024))
    batch = rows(256, 1_024)
    step = 0
    while True:
        loss = train(*batch)
        step += 1
        done = "#" * (step % 40)
        sys.stderr.write(f"\r{step:6} [{done:40}] loss {loss.item():.4f}")
        yield


@job()
def healthy_adversaries(fixed: bool) -> Iterator[None]:
    """A generator and a discriminator that learn by turns."""
    maker, judge = mlp(width=768, classes=768), mlp(width=768, classes=1)
    makes = torch.optim.Adam(maker.parameters(), foreach=True)
    judges = torch.optim.Adam(judge.parameters(), foreach=True)
    real = torch.randn(256, 768)
    loss = nn.functional.binary_cross_entropy_with_logits
    yes, no = torch.ones(256, 1), torch.zeros(256, 1)
    while True:
        made = maker(torch.randn(256, 768))
        judges.zero_grad()
        (loss(judge(real), yes) + loss(judge(made.detach()), no)).backward()
        judges.step()
        makes.zero_grad()
        loss(judge(made), yes).backward()
        makes.step()
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
