"""Seventeen jobs that run out of memory in the ways that are most usual, written without the rules.

Before the first diagnosis each was run with its fixes in the same memory: what helps made it fit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


class Residual(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.skip = nn.Conv2d(channels, out, 1, bias=False)

    def forward(self, x: Any) -> Any:
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.skip(x))


def fit_classifier(rows: int = 96) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        Residual(16, 16),
        nn.MaxPool2d(2),
        Residual(16, 32),
        nn.MaxPool2d(2),
        Residual(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 100),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(2):
        images, labels = torch.randn(rows, 3, 32, 32), torch.randint(0, 100, (rows,))
        loss = functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(1850 * MIB, scale=32), BATCH, "shard others expandable pad giant inference graph")
def resnet_with_a_batch_too_large() -> None:
    """A residual network's first batch does not fit."""
    fit_classifier()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 96), nn.Parameter(torch.zeros(1, 64, 96))
        layer = nn.TransformerEncoderLayer(96, 4, 384, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(96, 5)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.encoder(self.words(tokens) + self.places).mean(1))


def finetune(rows: int = 64) -> None:
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for step in range(3):
        batch = torch.randint(0, 1000, (8 if step < 1 else rows, 64))
        loss = functional.cross_entropy(model(batch), torch.randint(0, 5, (len(batch),)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@failing(Gpu(1100 * MIB, scale=16), BATCH, "shard others expandable pad giant inference graph")
def encoder_with_a_batch_too_large() -> None:
    """A text classifier is warmed up with a small batch; the real one does not fit."""
    finetune()


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(500, 64)
        self.lstm = nn.LSTM(64, 128, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(256, 12)

    def forward(self, tokens: Any) -> Any:
        return self.tags(self.lstm(self.words(tokens))[0])


def tag(rows: int = 16, longest: int = 128) -> None:
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters())
    for length in (24, 32, 20, longest):
        tokens = torch.randint(0, 500, (rows, length))
        optimizer.zero_grad()
        tags = model(tokens)
        functional.cross_entropy(tags.transpose(1, 2), torch.randint(0, 12, tokens.shape)).backward()
        optimizer.step()


@failing(Gpu(2450 * MIB, scale=32), "accumulate precision", "shard others giant inference graph")
def lstm_with_a_long_sentence() -> None:
    """A tagger of sentences meets one that is four times as long."""
    tag()


def double(inside: int, out: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, out, 3, padding=1),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = double(1, 8), double(8, 16), double(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1, self.out = double(32, 16), double(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        x = self.join2(torch.cat([second, self.up2(bottom)], 1))
        return self.out(self.join1(torch.cat([first, self.up1(x)], 1)))


def segment(rows: int = 8) -> None:
    net = UNet()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4)
    for side in (64, 160):
        scans, masks = torch.randn(rows, 1, side, side), torch.randint(0, 2, (rows, side, side))
        predicted = net(scans)
        chance = predicted.softmax(1)[:, 1]
        dice = 1 - 2 * (chance * masks).sum() / (chance.sum() + masks.sum())
        optimizer.zero_grad(set_to_none=True)
        (functional.cross_entropy(predicted, masks) + dice).backward()
        optimizer.step()


@failing(Gpu(2000 * MIB, scale=16), BATCH, "shard others expandable pad inference graph")
def unet_with_large_scans() -> None:
    """Scans of 64 pixels fit; those of full size do not."""
    segment()


class Messages(nn.Module):
    """Each edge's message is of both of its ends, as in a graph network written by hand."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.says = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any, source: Any, target: Any) -> Any:
        said = self.says(torch.cat([x[source], x[target]], -1))
        return x + self.norm(torch.zeros_like(x).index_add_(0, target, said.to(x.dtype)))


def classify_nodes(edges: int = 24_000) -> None:
    features, labels = torch.randn(2000, 32), torch.randint(0, 7, (2000,))
    source, target = torch.randint(0, 2000, (2, edges))
    layers, head = nn.ModuleList(Messages(32) for _ in range(3)), nn.Linear(32, 7)
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=0.01)
    for _ in range(3):
        x = features
        for layer in layers:
            x = layer(x, source, target)
        optimizer.zero_grad()
        functional.cross_entropy(head(x), labels).backward()
        optimizer.step()


@failing(Gpu(1000 * MIB, scale=32), BATCH, "shard others expandable pad inference graph")
def graph_network_on_the_whole_graph() -> None:
    """Messages along all edges of a graph are kept for the backward pass."""
    classify_nodes()


def recommend(items: int = 12_000, rows: int = 64) -> None:
    users, things = nn.Embedding(4000, 64), nn.Embedding(items, 64)
    tower = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam([*users.parameters(), *things.parameters(), *tower.parameters()])
    for _ in range(2):
        pairs = torch.randint(0, 4000, (2, rows))
        score = tower(torch.cat([users(pairs[0]), things(pairs[1])], 1)).squeeze(1)
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(score, torch.ones(rows)).backward()
        optimizer.step()


@failing(
    Gpu(900 * MIB, scale=64),
    "shard",
    "checkpoint accumulate precision others expandable pad giant inference graph",
)
def recommender_with_large_tables() -> None:
    """Embedding tables and their gradients fit; Adam's two moments of them do not."""
    recommend()


class Causal(nn.Module):
    """A small GPT. Keys and values of earlier tokens can be given."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256), nn.GELU(), nn.Linear(256, width))

    def forward(self, x: Any, past: Any = None) -> Any:
        rows, length, width = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(rows, length, 4, width // 4).transpose(1, 2) for part in parts)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(x), (k, v)


class Gpt(nn.Module):
    def __init__(self, words: int, layers: int = 2) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(words, 64), nn.ModuleList(Causal() for _ in range(layers))
        self.head = nn.Linear(64, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Any, past: Any = None) -> Any:
        x, kept = self.words(tokens), []
        for number, layer in enumerate(self.layers):
            x, cache = layer(x, past[number] if past else None)
            kept.append(cache)
        return self.head(x), kept


def pretrain(rows: int = 12) -> None:
    model = Gpt(16_000)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    for step in range(2):
        tokens = torch.randint(0, 16_000, (2 if step == 0 else rows, 65))
        logits, _ = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.float().reshape(-1, 16_000), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(1700 * MIB, scale=16), "accumulate giant", "shard others expandable inference graph")
def logits_of_a_large_vocabulary() -> None:
    """A small language model has 16,000 words; its logits and their softmax do not fit."""
    pretrain()
