"""More jobs that run out of memory as in threads on forums: inference, scripts and notebooks."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from tests.truth.failing import MIB, failing
from tests.truth.gpu_snapshot import Gpu


class _Pixels(nn.Module):
    """Attention between all positions of a picture, written out."""

    def __init__(self, channels: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(4, channels)
        self.qkv, self.joins = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        rows, channels, height, width = x.shape
        split = self.qkv(self.norm(x)).reshape(rows, 3, self.heads, channels // self.heads, height * width)
        q, k, v = split.transpose(-1, -2).unbind(1)
        scores = q @ k.transpose(-1, -2) * (channels // self.heads) ** -0.5
        found = torch.softmax(scores, -1) @ v
        return x + self.joins(found.transpose(-1, -2).reshape(rows, channels, height, width))


@failing(Gpu(1500 * MIB, scale=24), "attention giant", "shard others expandable checkpoint accumulate")
def a_wallpaper_drawn_by_diffusion() -> None:
    """A sampler that draws small pictures is asked for a larger one; its attention is written out."""
    entering, attends, leaving = nn.Conv2d(4, 32, 3, padding=1), _Pixels(), nn.Conv2d(32, 4, 3, padding=1)

    def draw(side: int, steps: int = 3) -> Any:
        latents = torch.randn(1, 4, side, side)
        for _ in range(steps):
            without, wanted = leaving(attends(entering(torch.cat([latents, latents])))).chunk(2)
            latents = latents - 0.1 * (without + 7.5 * (wanted - without))
        return latents

    with torch.no_grad():
        draw(20)
        draw(40)


def _segmenter() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 6, 1),
    )


# Two passes with a graph are dropped before the third fails: nothing waits for a backward pass.
@failing(
    Gpu(1000 * MIB, scale=128),
    "graph inference",
    "shard others expandable giant accumulate checkpoint",
)
def streets_validated_at_full_size_with_autograd() -> None:
    """Trained on crops; in validation each photo has its own size, and nobody wrote no_grad."""
    model = _segmenter()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        labels = torch.randint(0, 6, (4, 32, 32))
        functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), labels).backward()
        optimizer.step()
    model.eval()
    losses = []
    for height, width in ((64, 64), (80, 96), (128, 192)):
        labels = torch.randint(0, 6, (1, height, width))
        losses.append(functional.cross_entropy(model(torch.randn(1, 3, height, width)), labels).item())


@failing(Gpu(800 * MIB, scale=64), "expandable", "shard others checkpoint accumulate")
def a_service_that_answers_documents_of_any_length() -> None:
    """Documents of all lengths; what a session may ask about next is kept for the last sessions only."""
    read, answer = nn.Linear(64, 512), nn.Linear(512, 64)
    sessions: dict[int, Any] = {}
    lengths = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for request in range(60):
            length = int(torch.randint(200, 1600, (), generator=lengths))
            hidden = functional.gelu(read(torch.randn(length, 64)))
            sessions[request] = answer(hidden)
            sessions.pop(request - 12, None)
            del hidden


@failing(
    Gpu(1600 * MIB, scale=64), "models before", "others expandable giant accumulate checkpoint inference"
)
def a_table_of_models_trained_in_turn() -> None:
    """A script trains one model after another, and a dictionary keeps each with its optimizer."""
    trained: dict[str, Any] = {}
    for name in ("baseline", "deeper", "no dropout", "dropout", "cosine"):
        depth = 4 if name == "deeper" else 3
        model = nn.Sequential(*(nn.Linear(384, 384) for _ in range(depth)))
        optimizer = torch.optim.Adam(model.parameters())
        trained[name] = {"model": model, "optimizer": optimizer}
        for _ in range(3):
            optimizer.zero_grad()
            functional.mse_loss(model(torch.randn(16, 384)), torch.randn(16, 384)).backward()
            optimizer.step()


class _Learner:
    def __init__(self, depth: int, width: int) -> None:
        self.model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def fit(self, batches: int, rows: int, width: int) -> None:
        for _ in range(batches):
            loss = functional.mse_loss(self.model(torch.randn(rows, width)), torch.randn(rows, width))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


@failing(
    Gpu(1150 * MIB, scale=64), "before models", "others expandable giant accumulate checkpoint inference"
)
def a_second_learner_in_the_same_notebook() -> None:
    """A later cell trains a new learner under a new name; the first one stays in its variable."""
    learner = _Learner(4, 384)
    learner.fit(3, 16, 384)
    losses = torch.stack([(weight**2).mean().detach() for weight in learner.model.parameters()])
    print(losses.mean().item() > 0)
    larger_learner = _Learner(3, 512)
    larger_learner.fit(3, 16, 512)


class _Photos(Dataset[Any]):
    """As its author wrote it, to spare the copies in the loop: each photo waits on the GPU."""

    def __init__(self, count: int) -> None:
        self.photos = []
        for _ in range(count):
            photo = torch.randint(0, 256, (3, 48, 48), dtype=torch.uint8)
            self.photos.append(photo.float() / 255)
        self.labels = torch.randint(0, 10, (count,))

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, number: int) -> Any:
        return self.photos[number], self.labels[number]


@failing(
    Gpu(1000 * MIB, scale=64), "inputs other", "shard others expandable giant accumulate checkpoint inference"
)
def photos_preloaded_by_their_data_set() -> None:
    """A data set moves all its photos to the GPU when it is made."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 23 * 23, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for photos, labels in DataLoader(_Photos(700), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(photos), labels).backward()
        optimizer.step()


def _speaker() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)))


def _published() -> io.BytesIO:
    file = io.BytesIO()
    torch.save(_speaker().state_dict(), file)
    file.seek(0)
    return file


@failing(Gpu(640 * MIB, scale=64), "load", "shard others expandable giant accumulate checkpoint inference")
def published_weights_read_onto_the_gpu() -> None:
    """The model is on the GPU already when torch.load puts the file's weights beside it."""
    file = _published()
    model = _speaker()
    weights = torch.load(file)
    model.load_state_dict(weights)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 512))
