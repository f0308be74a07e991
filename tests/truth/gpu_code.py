"""What loops of a GPU share: caches of decoders, adapters, indexes, servers of gradients, streams."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class CrossAttention(nn.Module):
    """Attention of a decoder to a sentence, whose keys and values are made once."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.made: dict[int, tuple[Any, Any]] = {}

    def forward(self, words: Any, sentence: int, encoded: Any) -> Any:
        if sentence not in self.made:
            self.made[sentence] = self.key(encoded), self.value(encoded)
        return functional.scaled_dot_product_attention(self.query(words), *self.made[sentence])

    def forget(self, sentence: int) -> None:
        self.made.pop(sentence, None)


class ParameterServer:
    """Workers push gradients of some version of the weights; those of a recent one are applied."""

    def __init__(self, model: nn.Module, most_behind: int = 2) -> None:
        self.weights, self.most_behind = list(model.parameters()), most_behind
        self.version, self.pushed = 0, 0
        self.waiting: dict[int, tuple[int, tuple[Any, ...]]] = {}

    def push(self, version: int, gradients: tuple[Any, ...]) -> None:
        self.waiting[self.pushed] = version, gradients
        self.pushed += 1

    @torch.no_grad()
    def apply(self) -> None:
        for number, (version, gradients) in list(self.waiting.items()):
            if self.version - version <= self.most_behind:
                for weight, gradient in zip(self.weights, gradients, strict=True):
                    weight -= 0.01 * gradient
                del self.waiting[number]
        self.version += 1


class ConfusionPairs:
    """Which classes are taken for which, until somebody resets it."""

    def __init__(self, classes: int) -> None:
        self.classes, self.pairs = classes, list[Any]()

    def update(self, logits: Any, labels: Any) -> None:
        predicted = logits.argmax(1)
        wrong = predicted != labels
        self.pairs.append(torch.stack([labels[wrong], predicted[wrong]]))

    def most_frequent(self) -> Any:
        labels, predicted = torch.cat(self.pairs, 1)
        return torch.bincount(labels * self.classes + predicted, minlength=self.classes**2).argmax()


class Contrasts:
    """What a layer says of the last word of prompts, by their side."""

    def __init__(self, layer: nn.Module) -> None:
        self.side, self.seen = "honest", {"honest": list[Any](), "deceptive": list[Any]()}
        layer.register_forward_hook(self.save)

    def save(self, module: nn.Module, args: Any, output: Any) -> None:
        self.seen[self.side].append(output.detach()[:, -1])

    def direction(self) -> Any:
        honest, deceptive = (torch.cat(seen[-8:]).mean(0) for seen in self.seen.values())
        return functional.normalize(honest - deceptive, dim=0)


class InvertedLists:
    """An index of vectors with a list for each center."""

    def __init__(self, lists: int = 8, width: int = 64) -> None:
        self.centers = torch.randn(lists, width)
        self.vectors = [torch.empty(0, width) for _ in range(lists)]

    def add(self, vectors: Any) -> None:
        nearest = torch.cdist(vectors, self.centers).argmin(1)
        for one in nearest.unique().tolist():
            self.vectors[one] = torch.cat([self.vectors[one], vectors[nearest == one]])

    def search(self, query: Any, probes: int = 2) -> Any:
        lists = torch.cdist(query[None], self.centers)[0].topk(probes, largest=False).indices
        found = torch.cat([self.vectors[one] for one in lists.tolist()])
        return (found @ query).topk(min(5, len(found))).values


class Replicas:
    """Spectra of a radar's pulse as echoes of moving objects have it."""

    def __init__(self, length: int = 2048) -> None:
        self.times = torch.arange(length) / length
        self.spectra: dict[float, Any] = {}

    def spectrum(self, shift: float) -> Any:
        if shift not in self.spectra:
            phases = 400 * self.times.square() + shift * self.times
            self.spectra[shift] = torch.fft.fft(torch.polar(torch.ones_like(phases), phases)).conj()
        return self.spectra[shift]

    def match(self, echo: Any, shift: float) -> float:
        return float(torch.fft.ifft(torch.fft.fft(echo) * self.spectrum(shift)).abs().argmax())


class AdaptedLinear(nn.Module):
    """A layer with small matrices for each user that it knows."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.base, self.width = nn.Linear(width, width), width
        self.down, self.up = nn.ParameterDict(), nn.ParameterDict()

    def add(self, user: str, rank: int = 8) -> None:
        self.down[user] = nn.Parameter(torch.randn(rank, self.width), requires_grad=False)
        self.up[user] = nn.Parameter(torch.zeros(self.width, rank), requires_grad=False)

    def remove(self, user: str) -> None:
        del self.down[user], self.up[user]

    def forward(self, inputs: Any, user: str) -> Any:
        return self.base(inputs) + inputs @ self.down[user].T @ self.up[user].T


class AdapterServer:
    """Answers each user with adapters of his own, of which few may be loaded."""

    def __init__(self, slots: int, *, unloads: bool) -> None:
        self.layers, self.slots, self.unloads = [AdaptedLinear() for _ in range(2)], slots, unloads
        self.loaded: OrderedDict[str, bool] = OrderedDict()

    def load(self, user: str) -> None:
        if user not in self.loaded:
            if len(self.loaded) == self.slots:
                self.evict()
            for layer in self.layers:
                layer.add(user)
        self.loaded[user] = True
        self.loaded.move_to_end(user)

    def evict(self) -> None:
        oldest, _ = self.loaded.popitem(last=False)
        for layer in self.layers if self.unloads else ():
            layer.remove(oldest)

    @torch.inference_mode()
    def answer(self, user: str, inputs: Any) -> Any:
        self.load(user)
        for layer in self.layers:
            inputs = layer(inputs, user).relu()
        return inputs


class Conversation:
    """Keys and values of each layer, with room for some more words."""

    def __init__(self, layers: int = 2, heads: int = 4, width: int = 16, room: int = 16) -> None:
        self.length, self.room = 0, room
        self.layers = [torch.zeros(2, heads, room, width) for _ in range(layers)]

    def reserve(self, more: int) -> None:
        self.layers = [functional.pad(layer, (0, 0, 0, more)) for layer in self.layers]
        self.room += more

    def append(self, words: Iterable[Any]) -> None:
        """words: of each layer, keys and values of the same number of words."""
        new = list(words)
        count = new[0].shape[2]
        if self.length + count > self.room:
            self.reserve(16)
        for layer, one in zip(self.layers, new, strict=True):
            layer[:, :, self.length : self.length + count] = one
        self.length += count


class SideStream:
    """Copies batches ahead, and holds each until the main stream has waited for it."""

    def __init__(self) -> None:
        self.in_flight: dict[int, Any] = {}

    def copy(self, number: int) -> None:
        self.in_flight[number] = torch.rand(64, 64)

    def batch(self, number: int) -> Any:
        return self.in_flight[number]

    def wait(self, number: int) -> None:
        del self.in_flight[number]
