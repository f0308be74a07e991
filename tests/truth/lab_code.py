"""Small models and what trains them, as research code has them: loops of leaks share them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.text_models import WORDS, sentences

Past = list[tuple[Any, Any]]
"""Keys and values of each layer."""


class LoraLinear(nn.Module):
    """A frozen layer with an adapter of rank four."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, out)
        self.base.requires_grad_(requires_grad=False)
        self.down, self.up = nn.Parameter(torch.randn(4, width) / 8), nn.Parameter(torch.zeros(out, 4))

    def delta(self) -> Any:
        return self.up @ self.down

    def forward(self, hidden: Any) -> Any:
        return self.base(hidden) + hidden @ self.down.T @ self.up.T


class Block(nn.Module):
    """Causal attention with adapters, and a perceptron."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.project, self.out = LoraLinear(width, 3 * width), LoraLinear(width, width)
        self.norm, self.feed = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, hidden: Any, past: Any = None, mask: Any = None) -> tuple[Any, tuple[Any, Any]]:
        queries, keys, values = self.project(self.norm(hidden)).chunk(3, -1)
        if past is not None:
            keys, values = torch.cat([past[0], keys], 1), torch.cat([past[1], values], 1)
        scores = queries @ keys.transpose(1, 2) / math.sqrt(keys.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        hidden = hidden + self.out(scores.softmax(-1) @ values)
        return hidden + functional.gelu(self.feed(hidden)), (keys, values)


class SmallGPT(nn.Module):
    """Two blocks that tell the next token."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.blocks = nn.ModuleList([Block(width), Block(width)])

    def forward(self, tokens: Any, past: Past | None = None, mask: Any = None) -> tuple[Any, Past]:
        if mask is None and tokens.shape[1] > 1:
            mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        hidden, present = self.words(tokens), Past()
        for number, block in enumerate(self.blocks):
            hidden, keys_and_values = block(hidden, past[number] if past else None, mask)
            present.append(keys_and_values)
        return self.head(hidden), present


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [one for one in model.parameters() if one.requires_grad]


def log_probs(model: nn.Module, tokens: Any) -> Any:
    """How likely each token is after those before it: rows, length - 1."""
    logits, _ = model(tokens[:, :-1])
    return logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]


class Tuner:
    """Trains a language model's adapters."""

    def __init__(self) -> None:
        self.model = SmallGPT()
        self.optimizer = torch.optim.AdamW(trained(self.model), lr=0.001)

    def minimize(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def train(self, rows: int = 4) -> None:
        self.minimize(-log_probs(self.model, sentences(rows)).mean())


@dataclass
class Sample:
    """What generate() gives."""

    tokens: Any
    past: Past
    score: float


@torch.no_grad()
def generate(model: nn.Module, prompt: Any, length: int = 8) -> Sample:
    """Sample an answer, a token at a time, with keys and values of those before."""
    tokens, score = prompt, 0.0
    logits, past = model(prompt)
    for _ in range(length):
        chances = logits[:, -1].softmax(-1)
        new = torch.multinomial(chances, 1)
        score += float(chances.gather(1, new).log().mean())
        tokens = torch.cat([tokens, new], 1)
        logits, past = model(new, past)
    return Sample(tokens, past, score)


class Policy(nn.Module):
    """Actor and critic of a control task with states of 64 numbers."""

    def __init__(self, actions: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 96), nn.Tanh())
        self.actor, self.critic = nn.Linear(96, actions), nn.Linear(96, 1)

    def forward(self, states: Any) -> tuple[Any, Any]:
        hidden = self.body(states)
        return self.actor(hidden).log_softmax(-1), self.critic(hidden)[..., 0]


class Camera:
    """An environment that is seen by a camera: 32 times 32 pixels, and an episode of at most nine steps."""

    made = 0

    def __init__(self) -> None:
        Camera.made += 1
        self.name, self.time = f"camera-{Camera.made}", 0

    def step(self, action: int) -> tuple[Any, float, bool]:
        self.time += 1
        return torch.rand(32, 32), float(action % 2), self.time >= 4 + action


class QNetwork(nn.Sequential):
    """How good each of six actions is, by what the camera sees."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.LayerNorm(1024), nn.Linear(1024, 32), nn.ReLU(), nn.Linear(32, 6))


def pooled(hidden: Any) -> Any:
    return functional.normalize(hidden.mean(1), dim=-1)


class Equation:
    """A network that solves a heat equation, and its residual at some points."""

    def __init__(self) -> None:
        self.network = nn.Sequential(
            nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1)
        )
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.001)

    def residual(self, points: Any) -> Any:
        points = points.requires_grad_()
        heat = self.network(points)
        (slope,) = torch.autograd.grad(heat.sum(), points, create_graph=True)
        (bend,) = torch.autograd.grad(slope[:, 1].sum(), points, create_graph=True)
        return slope[:, 0] - 0.1 * bend[:, 1]

    def boundary(self) -> Any:
        points = torch.rand(64, 2) * torch.tensor([1.0, 0.0])
        return self.network(points).square().mean()


class Convolution(nn.Module):
    """A convolution over a graph."""

    def __init__(self, width: int = 32, out: int = 64) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(width, out), nn.Linear(width, out)

    def forward(self, nodes: Any, adjacency: Any) -> Any:
        return functional.relu(self.own(nodes) + adjacency @ self.others(nodes))


def kernel(one: Any, other: Any, scale: Any) -> Any:
    return torch.exp(-torch.cdist(one, other).square() / (2 * scale.square()))
