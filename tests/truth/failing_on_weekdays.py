"""Ordinary jobs that run out of a GPU's memory, as an engineer meets them from Monday to Friday.

Training, evaluation, and the scripts and notebooks around them. Rooms were chosen by running each job as
it is, with its fixes, with expandable segments, and most of them with something else that is tempting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, failing
from tests.truth.gpu_snapshot import Gpu


class _Spectrograms(nn.Module):
    """Scores of sound events in log-mel spectrograms [rows, 1, bands, frames]."""

    def __init__(self, events: int = 20) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())
            for before, after in ((1, 16), (16, 16), (16, 16), (16, 32), (32, 48))
        )
        self.head = nn.Linear(48, events)

    def forward(self, x: Any) -> Any:
        for stage in self.stages[:2]:
            x = stage(x)
        for stage in self.stages[2:]:
            x = functional.max_pool2d(stage(x), 2)
        return self.head(x.mean((2, 3)))


@failing(Gpu(3000 * MIB, scale=32), BATCH, "shard others expandable giant inference inputs before")
def sound_events_in_spectrograms() -> None:
    """The first step of a network that tags sounds, with the batch size of a paper."""
    model = _Spectrograms()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        clips, events = torch.randn(48, 1, 64, 64), torch.rand(48, 20).round()
        loss = functional.binary_cross_entropy_with_logits(model(clips), events)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _Reranker(nn.Module):
    """One score for each question with a passage, [rows, length] of tokens."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 64), nn.Embedding(512, 64)
        self.blocks, self.score = nn.ModuleList(Block() for _ in range(blocks)), nn.Linear(64, 1)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.score(x[:, 0]).squeeze(1)


@failing(Gpu(1500 * MIB, scale=32), BATCH, "shard others expandable pad giant inference graph inputs")
def passages_that_are_longer_on_the_fifth_step() -> None:
    """A reranker is fine-tuned with batches as long as their longest passage, and one is very long."""
    model = _Reranker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for length in (48, 64, 56, 60, 256, 64):
        pairs, relevant = torch.randint(0, 1000, (16, length)), torch.rand(16).round()
        loss = functional.binary_cross_entropy_with_logits(model(pairs), relevant)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class _Demand(nn.Module):
    """The next day's demand from [rows, days, features]."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.head = nn.GRU(16, 64, batch_first=True), nn.Linear(64, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.reads(x)[0][:, -1]).squeeze(1)


@failing(Gpu(400 * MIB, scale=32), "graph metrics inference", "shard others expandable giant pad inputs")
def demand_with_a_sum_of_validation_losses() -> None:
    """Each epoch adds up the losses of its validation for early stopping, with their graphs."""
    model = _Demand()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        model.train()
        for _ in range(3):
            days, demand = torch.randn(64, 14, 16), torch.randn(64)
            optimizer.zero_grad()
            functional.mse_loss(model(days), demand).backward()
            optimizer.step()
        model.eval()
        total: Any = 0.0
        for _ in range(10):
            days, demand = torch.randn(64, 14, 16), torch.randn(64)
            total += functional.mse_loss(model(days), demand)
        print(f"validation {total / 10:.3f}")


class _Translator(nn.Module):
    def __init__(self, width: int = 256, blocks: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return x @ self.words.weight.T


# One process cannot run shard here. State of 8 bits, as it also says, takes about 180 MiB instead of 710.
@failing(Gpu(1200 * MIB, scale=32), "shard", "checkpoint accumulate others expandable giant inference inputs")
def a_translator_fine_tuned_in_full() -> None:
    """Batches of one sentence fit, and the first step of AdamW does not."""
    model = _Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(3):
        sentence = torch.randint(0, 2000, (1, 24))
        logits = model(sentence[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), sentence[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


# It is the user's call that is too large: giant (in parts) says the same as inference.
@failing(
    Gpu(300 * MIB, scale=32), "inference giant", "shard checkpoint accumulate others expandable graph pad"
)
def subscribers_all_scored_at_the_end() -> None:
    """A model of churn is trained in batches, and scores the whole table in one call."""
    table = torch.randn(12_000, 24)
    left = (table[:, 0] > 1).float()
    model = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for chosen in torch.randperm(12_000).split(500):
        loss = functional.binary_cross_entropy_with_logits(model(table[chosen]).squeeze(1), left[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(table).squeeze(1).sigmoid()
    print("churn", float(scores.mean()))


class _Polyps(nn.Module):
    """A small U-Net: a mask [rows, 1, height, width] of pictures."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.first, self.second = self._twice(3, width), self._twice(width, 2 * width)
        self.bottom, self.last = self._twice(2 * width, 2 * width), self._twice(3 * width, width)
        self.mask = nn.Conv2d(width, 1, 1)

    @staticmethod
    def _twice(before: int, after: int) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()),
            *(nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()),
        )

    def forward(self, x: Any) -> Any:
        fine = self.first(x)
        coarse = self.bottom(self.second(functional.max_pool2d(fine, 2)))
        return self.mask(self.last(torch.cat([fine, functional.interpolate(coarse, scale_factor=2.0)], 1)))


@failing(Gpu(900 * MIB, scale=16), "inference graph", "shard others expandable giant pad hooks accumulate")
def polyps_validated_in_eval_mode_only() -> None:
    """After some steps, a validation with larger batches calls eval(), and records a graph all the same."""
    model = _Polyps()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        pictures, masks = torch.randn(2, 3, 96, 96), torch.rand(2, 1, 96, 96).round()
        loss = functional.binary_cross_entropy_with_logits(model(pictures), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    dice = []
    for _ in range(3):
        pictures, masks = torch.randn(8, 3, 96, 96), torch.rand(8, 1, 96, 96).round()
        found = (model(pictures) > 0).float()
        dice.append(float(2 * (found * masks).sum() / (found.sum() + masks.sum())))
    print("dice", sum(dice) / len(dice))


@failing(Gpu(560 * MIB, scale=64), "other hooks inference", "shard checkpoint others expandable giant pad")
def products_embedded_for_a_search() -> None:
    """The features of a catalogue are listed on the GPU, batch after batch, without gradients."""
    encoder = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 512)),
    ).eval()
    features = []
    with torch.inference_mode():
        for _ in range(90):
            pictures = torch.randn(64, 3, 32, 32)
            features.append(functional.normalize(encoder(pictures), dim=1))
    index = torch.cat(features)
    print("index", tuple(index.shape))


# Nothing but this call is in the recording: it may be the first step of a training as well. So what fixes a
# training is accepted too.
@failing(Gpu(1200 * MIB, scale=32), f"inference graph {BATCH}", "shard others expandable giant pad inputs")
def tickets_sorted_in_the_first_call() -> None:
    """A script classifies a batch of tickets in eval mode, and records a graph in its very first call."""
    model = _Reranker(4)
    model.eval()
    for _ in range(3):
        tickets = torch.randint(0, 1000, (48, 64))
        urgent = model(tickets).sigmoid() > 0.5
        print("urgent", int(urgent.sum()))


@failing(Gpu(900 * MIB, scale=32), "models before", "checkpoint accumulate others expandable giant inference")
def three_widths_in_three_cells() -> None:
    """A notebook trains one model in each cell, and keeps every model with its optimizer."""
    runs: dict[int, Any] = {}
    images, labels = torch.randn(32, 400), torch.randint(0, 10, (32,))
    for width in (512, 640, 768):
        model = nn.Sequential(
            *(nn.Linear(400, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, 10),
        )
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        runs[width] = (model, optimizer)


# inference says it too: in parts.
@failing(
    Gpu(440 * MIB, scale=8), "giant inference", "shard checkpoint accumulate others expandable pad inputs"
)
def colours_of_a_photo_by_k_means() -> None:
    """A script subtracts every centre from every pixel at once."""
    pixels = torch.rand(40_000, 3)
    centres = pixels[torch.randperm(40_000)[:64]].clone()
    for _ in range(3):
        distances = (pixels[:, None] - centres[None]).square().sum(2)
        nearest = distances.argmin(1)
        for i in range(64):
            centres[i] = pixels[nearest == i].mean(0)


@failing(
    Gpu(900 * MIB, scale=32), "inputs", "shard checkpoint accumulate others expandable giant inference graph"
)
def fields_seen_from_space_put_on_the_gpu() -> None:
    """A notebook moves its arrays of satellite pictures to the GPU, split after split, before it trains."""
    random = np.random.default_rng(0)
    tensors = {}
    for split, pictures in (("train", 600), ("valid", 200), ("test", 200)):
        bands = random.integers(0, 255, (pictures, 10, 32, 32), dtype=np.uint8)
        tensors[split] = torch.tensor(bands, dtype=torch.float32)
    model = nn.Sequential(nn.Conv2d(10, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for chosen in torch.randperm(600)[:64].split(16):
        optimizer.zero_grad()
        model(tensors["train"][chosen]).square().mean().backward()
        optimizer.step()


@failing(
    Gpu(300 * MIB, scale=32), "hooks other", "shard checkpoint accumulate others expandable giant inputs"
)
def activations_watched_while_they_learn() -> None:
    """A hook appends what each ReLU gives to a list, in every step of an autoencoder, for plots."""
    model = nn.Sequential(
        *(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32), nn.ReLU()),
        *(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64)),
    )
    seen: list[Any] = []
    for layer in model:
        if isinstance(layer, nn.ReLU):
            layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(24):
        readings = torch.randn(256, 64)
        loss = functional.mse_loss(model(readings), readings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
