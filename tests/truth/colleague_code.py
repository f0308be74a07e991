"""Models, a trainer with callbacks and tools around them that loops of colleagues share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WORDS, CLASSES = 200, 12


class LanguageModel(nn.Module):
    """A recurrent model of texts. tokens: (texts, length); gives (texts, length, WORDS)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.Linear(width, WORDS)

    def forward(self, tokens: Any) -> Any:
        states, _ = self.recurrent(self.embedding(tokens))
        return self.decoder(states)

    def loss(self, tokens: Any) -> Any:
        logits = self(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Network(nn.Module):
    """A classifier of small pictures. pictures: (count, 3, size, size); gives (count, classes)."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, stride=2)
        self.block = nn.Conv2d(12, 24, 3, stride=2)
        self.head = nn.Linear(24, classes)

    def forward(self, pictures: Any) -> Any:
        features = self.block(self.stem(pictures).relu()).relu()
        return self.head(features.mean((2, 3)))


def perceptron(inputs: int = 48, outputs: int = CLASSES) -> Any:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


class Callback:
    """What a run calls. It does nothing by itself."""

    def after_backward(self, run: Fit) -> None:
        pass

    def after_step(self, run: Fit, outputs: Any, labels: Any) -> None:
        pass


class Fit:
    """A classifier that is fitted, with callbacks."""

    def __init__(self, model: Any, callbacks: Iterable[Callback] = ()) -> None:
        self.model, self.callbacks, self.number = model, list(callbacks), 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)

    def step(self, inputs: Any, labels: Any) -> None:
        self.optimizer.zero_grad()
        outputs = self.model(inputs)
        functional.cross_entropy(outputs, labels).backward()
        for callback in self.callbacks:
            callback.after_backward(self)
        self.optimizer.step()
        self.number += 1
        for callback in self.callbacks:
            callback.after_step(self, outputs, labels)


class Perplexity:
    """Mean loss of the tokens of all texts that were added."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total: Any = 0.0
        self.tokens = 0

    def add(self, loss: Any, tokens: int) -> None:
        self.total += loss * tokens
        self.tokens += tokens

    def compute(self) -> float:
        return (self.total / self.tokens).exp().item()


class Probe:
    """Collects what layers give, to fit linear classifiers of it."""

    def __init__(self, layers: dict[str, Any]) -> None:
        self.features: dict[str, list[Any]] = {name: [] for name in layers}
        for name, layer in layers.items():
            layer.register_forward_hook(self._collect_into(name))

    def _collect_into(self, name: str) -> Any:
        def collect(_layer: Any, _inputs: Any, output: Any) -> None:
            self.features[name].append(output.detach())

        return collect

    def fit(self, labels: Any) -> dict[str, Any]:
        """labels: (samples). Give a solution for each layer, and forget the features."""
        targets = functional.one_hot(labels).float()
        solutions = {
            name: torch.linalg.lstsq(torch.cat(parts).mean((2, 3)), targets).solution
            for name, parts in self.features.items()
        }
        for parts in self.features.values():
            parts.clear()
        return solutions


class Metric:
    """States that were registered are emptied by reset()."""

    def __init__(self) -> None:
        self._states = list[str]()

    def add_state(self, name: str) -> None:
        self._states.append(name)
        setattr(self, name, [])

    def reset(self) -> None:
        for name in self._states:
            setattr(self, name, [])


class LazyLog:
    """Values that are computed only when they are written, so as not to wait for the device."""

    def __init__(self) -> None:
        self.pending: list[tuple[str, Callable[[], float]]] = []
        self.written: dict[str, float] = {}

    def add(self, name: str, value: Callable[[], float]) -> None:
        self.pending.append((name, value))

    def write(self) -> None:
        self.written.update({name: value() for name, value in self.pending})
        self.pending = []


def texts(count: int = 8, length: int = 17) -> Any:
    return torch.randint(WORDS, (count, length))


def pictures(count: int = 16, size: int = 20) -> tuple[Any, Any]:
    """Pictures and labels."""
    return torch.rand(count, 3, size, size), torch.randint(CLASSES, (count,))


def rows(count: int = 64) -> tuple[Any, Any]:
    """Rows of a table, with 48 columns, and labels."""
    return torch.rand(count, 48), torch.randint(CLASSES, (count,))


def flat_gradient(model: Any) -> Any:
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def accuracy(outputs: Any, labels: Any) -> float:
    return float((outputs.argmax(1) == labels).float().mean())
