"""What the code of a product team has around its training: an engine, callbacks, metrics, loggers."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

FEATURES, CLASSES = 64, 32


@dataclass
class Batch:
    """features: rows x 64. labels: rows."""

    features: Any
    labels: Any

    def __len__(self) -> int:
        return len(self.labels)


@dataclass
class StepOutput:
    """What a training step gives to callbacks."""

    loss: Any
    logits: Any


def random_batch(rows: int = 128) -> Batch:
    features = torch.rand(rows, FEATURES)
    return Batch(features, features[:, :CLASSES].argmax(1))


def feed(rows: int = 128) -> Iterator[Batch]:
    """Batches of an endless stream."""
    while True:
        yield random_batch(rows)


class Ranker(nn.Module):
    """Classifies what a user does next."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, features: Any) -> Any:
        return self.head(self.encoder(features))


def copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in state.items()}


class Callback:
    """Is called around each step of an engine."""

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        """Called when weights have been updated."""

    def state_dict(self) -> dict[str, Any]:
        return {}


class Engine:
    """Trains, calls callbacks, and can be saved."""

    def __init__(self, callbacks: Sequence[Callback] = (), rate: float = 0.003) -> None:
        self.model = Ranker()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)
        self.callbacks, self.step_number = list(callbacks), 0

    def training_step(self, batch: Batch) -> StepOutput:
        logits = self.model(batch.features)
        return StepOutput(functional.cross_entropy(logits, batch.labels), logits)

    def optimize(self, batch: Batch) -> StepOutput:
        self.optimizer.zero_grad()
        output = self.training_step(batch)
        output.loss.backward()
        self.before_update()
        self.optimizer.step()
        return output

    def before_update(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def fit(self, batches: Iterable[Batch]) -> Iterator[None]:
        """Yield after each step."""
        for batch in batches:
            output = self.optimize(batch)
            for callback in self.callbacks:
                callback.on_step_end(self, batch, output)
            self.step_number += 1
            del batch, output
            yield

    @torch.no_grad()
    def losses_of(self, batch: Batch) -> Any:
        """The loss of each row."""
        return functional.cross_entropy(self.model(batch.features), batch.labels, reduction="none")

    @torch.no_grad()
    def validate(self, rows: int = 128) -> float:
        """The loss of a batch that it has not seen."""
        self.model.eval()
        batch = random_batch(rows)
        loss = functional.cross_entropy(self.model(batch.features), batch.labels).item()
        self.model.train()
        return loss

    def state_dict(self) -> dict[str, Any]:
        callbacks = {type(one).__name__: one.state_dict() for one in self.callbacks}
        return {"step": self.step_number, "model": copied(self.model.state_dict()), "callbacks": callbacks}


class Metric:
    """Has states that reset() makes anew."""

    def __init__(self) -> None:
        self._defaults = dict[str, Any]()

    def add_state(self, name: str, default: Any) -> None:
        self._defaults[name] = default
        setattr(self, name, copy.deepcopy(default))

    def reset(self) -> None:
        for name, default in self._defaults.items():
            setattr(self, name, copy.deepcopy(default))


class Accuracy(Metric):
    """Counts."""

    right: Any
    total: int

    def __init__(self) -> None:
        super().__init__()
        self.add_state("right", torch.zeros(()))
        self.add_state("total", 0)

    def update(self, preds: Any, target: Any) -> None:
        self.right += (preds.argmax(1) == target).sum()
        self.total += len(target)

    def compute(self) -> float:
        return float(self.right / self.total)


class RankOfTarget(Metric):
    """Needs all predictions at once."""

    preds: list[Any]
    target: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("preds", [])
        self.add_state("target", [])

    def update(self, preds: Any, target: Any) -> None:
        self.preds.append(preds)
        self.target.append(target)

    def compute(self) -> float:
        preds, target = torch.cat(self.preds), torch.cat(self.target)
        return float((preds > preds.gather(1, target[:, None])).sum(1).float().median())


class MetricCollection:
    """Metrics by name that are updated together."""

    def __init__(self, metrics: dict[str, Any], prefix: str = "") -> None:
        self.metrics, self.prefix = metrics, prefix

    def update(self, preds: Any, target: Any) -> None:
        for metric in self.metrics.values():
            metric.update(preds, target)

    def compute(self) -> dict[str, float]:
        return {self.prefix + name: metric.compute() for name, metric in self.metrics.items()}

    def reset(self) -> None:
        for metric in self.metrics.values():
            metric.reset()

    def clone(self, prefix: str) -> MetricCollection:
        return MetricCollection(copy.deepcopy(self.metrics), prefix)


def ranking_metrics() -> MetricCollection:
    return MetricCollection({"accuracy": Accuracy(), "rank": RankOfTarget()})


def entropy_of(logits: Any) -> Any:
    log_probabilities = logits.log_softmax(1)
    return -(log_probabilities.exp() * log_probabilities).sum(1).mean()


def sample_of_gradients(parameters: Iterable[Any], count: int = 2048) -> Any:
    """As many magnitudes of gradients, drawn anew each time."""
    magnitudes = torch.cat([one.grad.flatten() for one in parameters]).abs()
    return magnitudes[torch.randint(len(magnitudes), (count,))]


def memoize(function: Callable[..., Any]) -> Callable[..., Any]:
    """Remember what a function gave, by how its arguments look."""
    memo = dict[str, Any]()

    @functools.wraps(function)
    def remembered(*args: Any) -> Any:
        key = repr(args)
        if key not in memo:
            memo[key] = function(*args)
        return memo[key]

    return remembered


@dataclass
class Report:
    """Of an evaluation. probabilities: rows x classes."""

    step: int
    loss: float
    probabilities: Any
    labels: Any


@torch.no_grad()
def evaluate(engine: Engine, rows: int = 256) -> Report:
    engine.model.eval()
    batch = random_batch(rows)
    logits = engine.model(batch.features)
    engine.model.train()
    loss = functional.cross_entropy(logits, batch.labels).item()
    return Report(engine.step_number, loss, logits.softmax(1), batch.labels)


class EngineWithLog(Engine):
    """log() averages over an epoch, as the hooks of well-known trainers do."""

    def __init__(self) -> None:
        super().__init__()
        self.logged = defaultdict[str, list[Any]](list)

    def log(self, name: str, value: Any) -> None:
        self.logged[name].append(value)

    def training_step(self, batch: Batch) -> StepOutput:
        output = super().training_step(batch)
        self.log("entropy", entropy_of(output.logits))
        return output

    def on_epoch_end(self) -> dict[str, float]:
        means = {name: torch.stack(values).mean().item() for name, values in self.logged.items()}
        self.logged.clear()
        return means


class NotFinite(RuntimeError):
    """A loss cannot be used."""


def dirty_feed() -> Iterator[Batch]:
    """Every second batch has a missing value."""
    for number, batch in enumerate(feed()):
        if number % 2:
            batch.features[0, 0] = torch.nan
        yield batch


class Probe:
    """A plugin that looks at what a layer gave last."""

    def __init__(self, layer: nn.Module) -> None:
        self.seen: Any = None
        self.handle = layer.register_forward_hook(self.on_forward)

    def on_forward(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.seen = output.detach().clone()

    def dead_units(self) -> int:
        return int((self.seen <= 0).all(0).sum())
