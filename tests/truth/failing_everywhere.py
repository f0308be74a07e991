"""Jobs that run out of a GPU's memory beside training: evaluation, features, explanations, serving.

What helps was written down, and tried in the same memory, before any of them was diagnosed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, failing
from tests.truth.gpu_snapshot import Gpu


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Any) -> Any:
        inner = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(x + self.second_norm(self.second(inner)))


class Backbone(nn.Module):
    """Feature maps of images, at a quarter of their size."""

    def __init__(self, width: int = 16, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, stride=2, padding=2)
        self.early = nn.Sequential(*(Residual(width) for _ in range(blocks)))
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.late = nn.Sequential(*(Residual(2 * width) for _ in range(blocks)))

    def forward(self, images: Any) -> Any:
        return self.late(functional.relu(self.down(self.early(functional.relu(self.stem(images))))))


class Classifier(nn.Module):
    def __init__(self, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.backbone, self.head = Backbone(width), nn.Linear(2 * width, classes)

    def forward(self, images: Any) -> Any:
        return self.head(self.backbone(images).mean((2, 3)))


@failing(
    Gpu(800 * MIB, scale=64), "other inference", "shard checkpoint accumulate graph others expandable giant"
)
def features_of_the_whole_data_set() -> None:
    """Feature maps of all images wait on the GPU, to be concatenated and saved."""
    backbone = Backbone().eval()
    features = []
    with torch.no_grad():
        for _ in range(40):
            images = torch.randn(8, 3, 64, 64)
            features.append(backbone(images))
    torch.cat(features)


@failing(Gpu(2000 * MIB, scale=32), "inference graph", "shard checkpoint others expandable giant")
def accuracy_of_the_whole_test_set() -> None:
    """After an epoch in batches, the model gets all test images in one call, with autograd on."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    test_images, test_labels = torch.randn(128, 3, 64, 64), torch.randint(0, 10, (128,))
    for _ in range(6):
        images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    model.eval()
    predictions = model(test_images).argmax(1)
    (predictions == test_labels).float().mean().item()


@failing(Gpu(2000 * MIB, scale=32), "giant", "shard checkpoint accumulate others expandable graph")
def nearest_neighbours_by_broadcasting() -> None:
    """A k-NN classifier subtracts all training features from all test features."""
    encoder = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64))

    def encode(rows: int) -> Any:
        return torch.cat([encoder(torch.randn(100, 128)) for _ in range(rows // 100)])

    with torch.no_grad():
        bank, labels = encode(1000), torch.randint(0, 10, (1000,))
        queries = encode(400)
        distances = (queries[:, None, :] - bank[None, :, :]).pow(2).sum(-1)
        labels[distances.topk(5, largest=False).indices].mode(1)


@failing(
    Gpu(1400 * MIB, scale=32), "accumulate checkpoint precision", "shard inference graph others expandable"
)
def integrated_gradients_of_all_steps() -> None:
    """All images between a baseline and the picture are explained in one batch."""
    model = Classifier().eval()
    for steps in (8, 64):
        picture = torch.randn(1, 3, 64, 64)
        along = torch.linspace(0, 1, steps).view(-1, 1, 1, 1)
        images = (along * picture).requires_grad_()
        score = model(images)[:, 3].sum()
        (gradient,) = torch.autograd.grad(score, images)
        (gradient.mean(0) * picture[0]).abs().sum(0)


@failing(Gpu(1150 * MIB, scale=32), "checkpoint precision", "shard inference graph others expandable giant")
def style_of_a_large_picture() -> None:
    """Style transfer: the weights are frozen, and the picture is what Adam changes."""

    def convolved(before: int, after: int) -> Any:
        return nn.Conv2d(before, after, 3, padding=1), nn.ReLU()

    layers = nn.ModuleList(
        nn.Sequential(*convolved(before, after), *convolved(after, after), *convolved(after, after))
        for before, after in ((3, 16), (16, 16), (16, 32), (32, 32))
    ).requires_grad_(requires_grad=False)

    def grams(picture: Any) -> Any:
        found, x = [], picture
        for i, layer in enumerate(layers):
            x = layer(functional.avg_pool2d(x, 2) if i == 2 else x)
            flat = x.flatten(2)
            found.append(flat @ flat.transpose(1, 2) / flat.shape[-1])
        return found

    with torch.no_grad():
        wanted = grams(torch.randn(1, 3, 64, 64))
    picture = torch.randn(1, 3, 256, 256, requires_grad=True)
    optimizer = torch.optim.Adam([picture], lr=0.05)
    for _ in range(2):
        optimizer.zero_grad()
        found = grams(picture)
        sum(functional.mse_loss(a, b) for a, b in zip(found, wanted, strict=True)).backward()
        optimizer.step()


@failing(Gpu(700 * MIB, scale=32), "inference graph", "shard checkpoint accumulate others expandable giant")
def text_sampled_with_autograd() -> None:
    """A character model writes text, and each hidden state has the graph of all before it."""
    embed, cell, head = nn.Embedding(96, 128), nn.GRUCell(128, 256), nn.Linear(256, 96)
    character, hidden = torch.zeros(32, dtype=torch.long), torch.zeros(32, 256)
    written = []
    for _ in range(200):
        hidden = cell(embed(character), hidden)
        chances = torch.softmax(head(hidden) / 0.8, -1)
        character = torch.multinomial(chances, 1).squeeze(1)
        written.append(character)
    torch.stack(written, 1)


class Upscaler(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 12, 3, padding=1)
        self.body = nn.Sequential(*(Residual(width) for _ in range(3)))

    def forward(self, image: Any) -> Any:
        x = self.first(image)
        return functional.pixel_shuffle(self.last(x + self.body(x)), 2)


@failing(
    Gpu(1700 * MIB, scale=32), "inference giant precision", "shard checkpoint graph others expandable inputs"
)
def photo_upscaled_in_one_piece() -> None:
    """Super-resolution works for thumbnails; then comes the photo of a camera."""
    model = Upscaler().eval()
    with torch.no_grad():
        for side in (64, 96, 384):
            image = torch.rand(1, 3, side, side)
            model(image).clamp(0, 1)


@failing(Gpu(1200 * MIB, scale=64), "inputs giant", "shard checkpoint accumulate graph others expandable")
def frames_of_a_video_as_floats() -> None:
    """All frames of a video are put on the GPU and turned into floats, and then go through in clips."""
    model = Backbone(8, 1).eval()
    frames = np.random.default_rng(0).integers(0, 256, (240, 3, 64, 64), dtype=np.uint8)
    video = torch.tensor(frames)
    with torch.no_grad():
        video = (video.float() / 255 - 0.45) / 0.225
        scores = [model(clip).mean((2, 3)).max() for clip in video.split(8)]
    torch.stack(scores).argmax()


class Listener(nn.Module):
    """A speech encoder with attention as in a paper's listing."""

    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.hear = nn.Conv1d(1, width, 16, stride=8)
        self.attends = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.head = nn.Linear(width, 32)

    def forward(self, sound: Any) -> Any:
        x = functional.gelu(self.hear(sound)).transpose(1, 2)
        for attend in self.attends:
            rows, length, width = x.shape
            q, k, v = attend(x).view(rows, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            chances = torch.softmax(q @ k.transpose(-1, -2) / 4, -1)
            x = x + (chances @ v).transpose(1, 2).reshape(rows, length, width)
        return self.head(x)


@failing(
    Gpu(1500 * MIB, scale=8),
    "attention giant inference",
    "shard checkpoint accumulate graph others expandable",
)
def recording_of_an_hour() -> None:
    """A transcriber of short clips gets a long recording in one piece."""
    model = Listener().eval()
    with torch.no_grad():
        for samples in (2000, 4000, 20000):
            model(torch.randn(1, 1, samples)).argmax(-1)
