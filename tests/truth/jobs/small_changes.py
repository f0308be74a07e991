"""Jobs with a small share of needless work: what a comparison has to see. They have no fault to name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from tests.truth.job import JOBS, Job
from tests.truth.jobs.parts import mlp, rows, trainer

Unit = Callable[[], object]


def training(model: Callable[[], nn.Module], *shape: int) -> Unit:
    """A training step on a batch of this shape."""
    train = trainer(model())
    return partial(train, torch.randn(shape), torch.randint(10, shape[:1]))


def perceptron() -> Unit:
    return partial(trainer(mlp(depth=2)), *rows(64))


def convolutions() -> Unit:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)
    return training(lambda: nn.Sequential(*layers), 16, 3, 16, 16)


class LastState(nn.Module):
    """Classes from the last state of a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.states, self.classes = nn.GRU(32, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.states(x)[0][:, -1])


class Attending(nn.Module):
    """Classes from one layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.classes = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.layer(x).mean(dim=1))


def many_small_layers() -> Unit:
    layers = [part for _ in range(12) for part in (nn.Linear(16, 16), nn.Tanh())]
    return training(lambda: nn.Sequential(*layers, nn.Linear(16, 10)), 8, 16)


def embeddings() -> Unit:
    words = torch.randint(5_000, (32, 64))
    return partial(trainer(nn.EmbeddingBag(5_000, 10)), words, torch.randint(10, (32,)))


def sorting() -> Unit:
    values = torch.randn(40_000)
    return lambda: values.sort().values.cumsum(0)


def inference() -> Unit:
    model, batch = mlp(depth=3).eval(), rows(64)[0]
    return torch.no_grad()(lambda: model(batch).argmax(dim=1))


def text() -> Unit:
    """Python alone, as no operator shows it."""
    line = json.dumps({f"key {index}": [index / 7, str(index)] for index in range(150)})
    return lambda: json.dumps(json.loads(line), sort_keys=True)


def rewards() -> Unit:
    """A loop of Python, as no operator shows it."""
    return lambda: sum(0.99**step * (step % 7) for step in range(4_000))


KINDS: dict[str, Callable[[], Unit]] = {
    "perceptron": perceptron,
    "convolutions": convolutions,
    "recurrence": lambda: training(LastState, 16, 12, 32),
    "attention": lambda: training(Attending, 8, 16, 64),
    "many_small_layers": many_small_layers,
    "embeddings": embeddings,
    "sorting": sorting,
    "inference": inference,
    "text": text,
    "rewards": rewards,
}


def more_work(kind: str, units: int, more: int) -> Callable[[bool], Iterator[None]]:
    """So many units of a kind in a step, and before the fix some more."""

    def steps(fixed: bool) -> Iterator[None]:
        unit = KINDS[kind]()
        while True:
            for _ in range(units if fixed else units + more):
                unit()
            yield

    return steps


def _small_change(name: str, kind: str, units: int, more: int) -> None:
    mechanism = f"{100 * more // units} % more work of the same kind: {kind.replace('_', ' ')}."
    JOBS[name] = Job(name, mechanism, more_work(kind, units, more), None, timed=12, recorded=10)


for percent in (1, 3, 5):
    _small_change(f"slower_by_{percent}_percent", "perceptron", 100, percent)

TEN_PERCENT = {f"slower_by_10_percent_{kind}": kind for kind in KINDS}
for slower in TEN_PERCENT:
    _small_change(slower, TEN_PERCENT[slower], 20, 2)
