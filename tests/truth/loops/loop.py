"""What a loop that leaks, or looks as if it did, is; and what the loops share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Loop = Callable[[], Iterator[None]]

GRAPH = frozenset({"retained autograd graph"})
OUTPUTS = frozenset({"retained module outputs"})
GRADIENTS = frozenset({"retained gradients"})
METRICS = frozenset({"retained small tensors"})
GROWING = frozenset({"growing cache", "growing tensors"})
NO_USUAL = frozenset({""})

SAMPLES = 64


@dataclass(frozen=True)
class LeakLoop:
    """keeps: functions, one of which is the first place. cause: names that are right. Both are empty if it
    does not leak."""

    name: str
    about: str
    loop: Loop
    keeps: frozenset[str]
    cause: frozenset[str]


LOOPS: dict[str, LeakLoop] = {}


def leaks(keeps: str, cause: frozenset[str] = NO_USUAL) -> Callable[[Loop], Loop]:
    """Register a loop that leaks. keeps: functions, with spaces between."""

    def register(loop: Loop) -> Loop:
        _add(loop, frozenset(keeps.split()) | {loop.__name__}, cause)
        return loop

    return register


def healthy(loop: Loop) -> Loop:
    """Register a loop that does not leak."""
    _add(loop, frozenset(), frozenset())
    return loop


def _add(loop: Loop, keeps: frozenset[str], cause: frozenset[str]) -> None:
    name = loop.__name__
    if name in LOOPS:
        raise ValueError(f"there are two loops {name}")
    about = (inspect.getdoc(loop) or name.replace("_", " ").capitalize() + ".").split("\n")[0]
    LOOPS[name] = LeakLoop(name, about, loop, keeps, cause)


def batch(rows: int = 64) -> Any:
    return torch.rand(rows, 64)


class Trainer:
    """A small perceptron that is trained."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def loss(self, inputs: Any) -> Any:
        return self.model(inputs).square().mean()

    def train(self, inputs: Any = None) -> None:
        self.optimizer.zero_grad()
        self.loss(batch() if inputs is None else inputs).backward()
        self.optimizer.step()


def images(count: int = 4, size: int = 24) -> Any:
    return torch.rand(count, 3, size, size)


class Convolutions(Trainer):
    """A small network of convolutions that is trained."""

    def __init__(self, channels: int = 32) -> None:
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, channels, 3, stride=2),
            nn.Flatten(),
            nn.LazyLinear(8),
        )
        self.model(images())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)


def values() -> Any:
    return torch.rand(128, 128)


def answer_of(trainer: Trainer, inputs: Any) -> Any:
    with torch.inference_mode():
        return trainer.model(inputs)
