"""Jobs that run out of memory as in threads on forums, and as their answers explain it: training, inference.

What helps was written down, and run in the same room, before any of them was diagnosed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, Language, failing
from tests.truth.gpu_snapshot import Gpu


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList((nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)))

    def forward(self, x: Any) -> Any:
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(x + self.norms[1](self.second(inner)))


def _residual_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        _Residual(16),
        _Residual(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        _Residual(32),
        _Residual(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 100),
    )


@failing(Gpu(6000 * MIB, scale=256), BATCH, "shard others expandable pad giant inference")
def species_of_birds_in_a_doubled_batch() -> None:
    """A residual network trained with twice the batch that used to fit."""
    model = _residual_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for _ in range(2):
        images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 100, (32,))
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()


# Padded to the longest of the batch, the texts fit: `pad` shows that. No recording tells padding from words.
@failing(Gpu(2000 * MIB, scale=64), f"pad {BATCH}", "shard others expandable giant inference")
def poems_padded_to_the_longest_that_the_model_takes() -> None:
    """A small GPT is fine-tuned, and each text is padded to the model's limit."""
    model, limit = Language(4), 256
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for step in range(3):
        longest = 40 + 8 * step
        tokens = torch.zeros(8, limit, dtype=torch.long)
        tokens[:, :longest] = torch.randint(1, 256, (8, longest))
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class _Volumes(nn.Module):
    """A U-Net for volumes, with two levels."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.enters, self.goes_down, self.deep = self._twice(1, 8), nn.MaxPool3d(2), self._twice(8, 16)
        self.goes_up = nn.ConvTranspose3d(16, 8, 2, stride=2)
        self.leaves, self.head = self._twice(16, 8), nn.Conv3d(8, classes, 1)

    @staticmethod
    def _twice(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv3d(before, after, 3, padding=1),
            nn.BatchNorm3d(after),
            nn.ReLU(),
            nn.Conv3d(after, after, 3, padding=1),
            nn.BatchNorm3d(after),
            nn.ReLU(),
        )

    def forward(self, x: Any) -> Any:
        shallow = self.enters(x)
        deep = self.deep(self.goes_down(shallow))
        return self.head(self.leaves(torch.cat([shallow, self.goes_up(deep)], 1)))


@failing(Gpu(2700 * MIB, scale=64), BATCH, "shard others expandable pad giant inference")
def neurons_in_stacks_of_a_microscope() -> None:
    """A three-dimensional U-Net labels six stacks at a time."""
    model = _Volumes()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        stacks, labels = torch.randn(6, 1, 16, 32, 32), torch.randint(0, 5, (6, 16, 32, 32))
        optimizer.zero_grad()
        functional.cross_entropy(model(stacks), labels).backward()
        optimizer.step()


class _OwnCell(nn.Module):
    """A recurrent layer with noise, written as a loop in Python."""

    def __init__(self, entering: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Parameter(torch.randn(hidden, 2 * hidden) / 16)
        self.from_input = nn.Parameter(torch.randn(entering, hidden) / 16)
        self.from_noise = nn.Parameter(torch.randn(hidden, hidden) / 16)

    def forward(self, sequence: Any, hidden: Any) -> Any:
        outputs = []
        for x in sequence.unbind(0):
            mean, spread = torch.mm(hidden, self.encoder).chunk(2, 1)
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
            hidden = torch.tanh(torch.mm(x, self.from_input) + torch.mm(z, self.from_noise))
            outputs.append(hidden)
        return torch.stack(outputs), hidden


@failing(Gpu(3400 * MIB, scale=256), BATCH, "shard others expandable pad giant inference")
def spikes_predicted_by_an_own_recurrent_layer() -> None:
    """Backpropagation goes through a long window of a recurrent layer that is a loop."""
    layer, head = _OwnCell(32, 64), nn.Linear(64, 32)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()])
    for _ in range(2):
        spikes = torch.rand(121, 64, 32)
        optimizer.zero_grad()
        outputs, _ = layer(spikes[:-1], torch.zeros(64, 64))
        functional.mse_loss(head(outputs), spikes[1:]).backward()
        optimizer.step()


@failing(Gpu(1400 * MIB, scale=128), "graph", "shard others expandable pad giant inference")
def a_novel_read_with_retain_graph() -> None:
    """An LSTM's state goes from window to window with its graph, and retain_graph=True hides the error."""
    embed, reads, head = nn.Embedding(128, 64), nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 128)
    weights = [*embed.parameters(), *reads.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights)
    for _ in range(2):
        chapter = torch.randint(0, 128, (16, 12 * 24 + 1))
        state = torch.zeros(1, 16, 64), torch.zeros(1, 16, 64)
        for begin in range(0, 12 * 24, 24):
            window = chapter[:, begin : begin + 25]
            read, state = reads(embed(window[:, :-1]), state)
            loss = functional.cross_entropy(head(read).flatten(0, 1), window[:, 1:].flatten())
            loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()


class _Sentences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(256, 64), nn.Sequential(*(Block() for _ in range(4)))

    def forward(self, tokens: Any) -> Any:
        return functional.normalize(self.blocks(self.embed(tokens)).mean(1), dim=-1)


@failing(Gpu(3000 * MIB, scale=64), "inference", "shard others expandable checkpoint accumulate")
def sentences_encoded_in_one_call() -> None:
    """All sentences of a collection go through an encoder at once, without gradients."""
    encoder = _Sentences().eval()
    with torch.no_grad():
        question = encoder(torch.randint(0, 256, (1, 32)))
        sentences = encoder(torch.randint(0, 256, (1000, 32)))
        (question @ sentences.T).topk(5)


@failing(
    Gpu(3000 * MIB, scale=128), "graph inference hooks other", "shard others expandable giant accumulate"
)
def rain_removed_from_a_video() -> None:
    """Each frame of a video is cleaned with autograd on, and kept to be saved at the end."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 3, 3, padding=1),
    ).eval()
    cleaned = []
    for _ in range(80):
        frame = torch.randint(0, 256, (1, 3, 48, 64), dtype=torch.uint8)
        pixels = frame.float() / 255
        cleaned.append((pixels - model(pixels)).clamp(0, 1))
