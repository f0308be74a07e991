"""Small models of text, speech, items, graphs and series, and what trains them: loops of leaks share them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WORDS = 256
"""Words in the vocabulary of all models here."""


def sentences(rows: int = 8, length: int = 32) -> Any:
    return torch.randint(WORDS, (rows, length))


class LanguageModel(nn.Module):
    """Tells the next word with a recurrent network."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.network = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.network(self.embedding(tokens))[0])

    def loss(self, tokens: Any) -> Any:
        return functional.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


class Learner:
    """A language model, and what trains it."""

    def __init__(self, width: int = 64) -> None:
        self.model = LanguageModel(width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.001)

    def train(self, tokens: Any = None) -> None:
        self.optimizer.zero_grad()
        self.model.loss(sentences() if tokens is None else tokens).backward()
        self.optimizer.step()


def nested_concat(joined: Any, new: Any, padding: float = -100.0) -> Any:
    """Join batches of sentences that are not equally long."""
    if joined is None:
        return new
    length = max(joined.shape[1], new.shape[1])
    padded = [functional.pad(one, (0, 0, 0, length - one.shape[1]), value=padding) for one in (joined, new)]
    return torch.cat(padded)


class StreamingEncoder(nn.Module):
    """Encodes frames of speech, with the keys of those before and the last frames for its convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.keys = nn.Conv1d(40, 64, 3), nn.Linear(64, 64)

    def forward(self, frames: Any, before: Any, keys: Any) -> tuple[Any, Any, Any]:
        frames = torch.cat([before, frames], 2)
        hidden = self.convolution(frames).transpose(1, 2)
        keys = torch.cat([keys, self.keys(hidden)], 1)
        weights = (hidden @ keys.transpose(1, 2)).softmax(-1)
        return weights @ keys, frames[..., -2:].clone(), keys


class Recognizer:
    """Transcribes streams of speech, chunk by chunk. Has a text and two caches for each stream."""

    def __init__(self) -> None:
        self.encoder = StreamingEncoder().eval()
        self.texts, self.frames, self.keys = (
            defaultdict[int, list[int]](list),
            dict[int, Any](),
            dict[int, Any](),
        )

    @torch.inference_mode()
    def transcribe(self, stream: int, chunk: Any) -> None:
        before = self.frames.get(stream, torch.zeros(1, 40, 2))
        keys = self.keys.get(stream, torch.zeros(1, 0, 64))
        hidden, self.frames[stream], self.keys[stream] = self.encoder(chunk, before, keys)
        self.texts[stream] += hidden.argmax(-1)[0].tolist()

    def finish(self, stream: int) -> list[int]:
        return self.texts.pop(stream)


class TwoTowers(nn.Module):
    """Scores items for users."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 256))
        self.items = nn.Sequential(nn.Embedding(2000, 64), nn.ReLU(), nn.Linear(64, 256))


class GraphNetwork(nn.Module):
    """Classifies nodes by their own and their neighbors' features."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.others, self.head = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 7)

    def forward(self, own: Any, others: Any) -> Any:
        return self.head((self.own(own) + self.others(others).mean(1)).relu())


class Forecaster:
    """Forecasts 24 hours of 64 series, with intervals from errors that it has seen."""

    def __init__(self) -> None:
        self.network, self.head = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 24)
        parameters = [*self.network.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=0.01)
        self.errors: dict[int, Any] = {hour: [] for hour in range(24)}

    def fit(self, past: Any, future: Any) -> Any:
        forecast = self.head(self.network(past)[0][:, -1])
        self.optimizer.zero_grad()
        functional.mse_loss(forecast, future).backward()
        self.optimizer.step()
        return forecast.detach()

    def observe(self, forecast: Any, future: Any) -> None:
        errors = (forecast - future).abs()
        for hour, of_hour in self.errors.items():
            of_hour.append(errors[:, hour])

    def interval(self, hour: int) -> float:
        return torch.cat(list(self.errors[hour])[-10:]).quantile(0.9).item()


def series() -> tuple[Any, Any]:
    both = torch.rand(64, 48 + 24).cumsum(1)
    return both[:, :48, None], both[:, 48:]


class Slot:
    """Has the tokens and the state of the request that it serves: keys and values of four layers."""

    def __init__(self) -> None:
        self.tokens, self.state = list[int](), torch.zeros(4, 2, 256, 64)
        self.project = nn.Linear(64, 4 * 2 * 64)

    @torch.inference_mode()
    def decode(self, tokens: Sequence[int]) -> None:
        start, self.tokens = len(self.tokens), [*self.tokens, *tokens]
        new = self.project(torch.rand(len(tokens), 64)).view(len(tokens), 4, 2, 64)
        self.state[:, :, start : len(self.tokens)] = new.permute(1, 2, 0, 3)


def transformer(layers: int) -> Any:
    return nn.Sequential(
        *(nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(layers))
    )


class Distillation:
    """A student that matches the layers of a teacher, which hooks note."""

    def __init__(self) -> None:
        self.teacher, self.student = transformer(4).eval(), transformer(2)
        self.of_teacher, self.of_student = (
            defaultdict[int, list[Any]](list),
            defaultdict[int, list[Any]](list),
        )
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=0.001)
        self.watch(self.teacher, self.of_teacher)
        self.watch(self.student, self.of_student)

    def watch(self, model: Any, features: dict[int, list[Any]]) -> None:
        for number, layer in enumerate(model):

            def capture(_layer: Any, _inputs: Any, output: Any, number: int = number) -> None:
                features[number].append(output)

            layer.register_forward_hook(capture)

    def run(self, inputs: Any) -> None:
        with torch.no_grad():
            self.teacher(inputs)
        self.student(inputs)

    def learn(self) -> None:
        pairs = zip(self.of_student.values(), list(self.of_teacher.values())[1::2], strict=True)
        self.optimizer.zero_grad()
        sum(functional.mse_loss(mine[-1], others[-1]) for mine, others in pairs).backward()
        self.optimizer.step()


@dataclass
class Hypothesis:
    """A translation: tokens, how likely they are, and which words of the source they look at."""

    tokens: Any
    score: Any
    attention: Any


class Translator(nn.Module):
    """Translates with four beams."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        self.encoder, self.cell, self.head = (
            nn.GRU(64, 64, batch_first=True),
            nn.GRUCell(64, 64),
            nn.Linear(64, WORDS),
        )

    def attend(self, hidden: Any, source: Any) -> tuple[Any, Any]:
        weights = (source @ hidden[..., None]).squeeze(-1).softmax(-1)
        return hidden + (weights[:, None] @ source)[:, 0], weights

    def loss(self, source: Any, target: Any) -> Any:
        encoded, losses = self.encoder(self.words(source))[0], []
        hidden = encoded[:, -1]
        for before, word in itertools.pairwise(target[:, :8].T):
            hidden, _ = self.attend(self.cell(self.words(before), hidden), encoded)
            losses.append(functional.cross_entropy(self.head(hidden), word))
        return torch.stack(losses).mean()

    @torch.no_grad()
    def translate(self, source: Any, beams: int = 4, length: int = 12) -> Hypothesis:
        encoded = self.encoder(self.words(source))[0].expand(beams, -1, -1)
        hidden, scores = encoded[:, -1], torch.zeros(beams)
        tokens, attention = torch.zeros(beams, 1, dtype=torch.long), torch.zeros(beams, 0, source.shape[1])
        for _ in range(length):
            hidden, weights = self.attend(self.cell(self.words(tokens[:, -1]), hidden), encoded)
            scores, best = (scores[:, None] + self.head(hidden).log_softmax(-1)).flatten().topk(beams)
            beam, hidden = best // WORDS, hidden[best // WORDS]
            tokens = torch.cat([tokens[beam], (best % WORDS)[:, None]], 1)
            attention = torch.cat([attention, weights[:, None]], 1)[beam]
        return Hypothesis(tokens[0], scores[0], attention[0])


class Translation:
    """A translator, and what trains it."""

    def __init__(self) -> None:
        self.model = Translator()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.001)

    def train(self) -> None:
        self.optimizer.zero_grad()
        self.model.loss(sentences(8, 32), sentences(8, 12)).backward()
        self.optimizer.step()


class Attention(nn.Module):
    """Self-attention that has its maps, to draw them."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.maps = nn.Linear(64, 3 * 64), list[Any]()

    def forward(self, inputs: Any) -> Any:
        queries, keys, values = self.project(inputs).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        weights = (queries @ keys.transpose(-1, -2) / 4).softmax(-1)
        self.maps.append(weights)
        return inputs + (weights @ values).transpose(1, 2).flatten(2)


class Classifier(nn.Module):
    """Classifies texts with two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 64), nn.Linear(64, 4)
        self.layers = nn.ModuleList([Attention(), Attention()])
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=0.001)

    def learn(self, tokens: Any) -> None:
        hidden = self.words(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        self.optimizer.zero_grad()
        functional.cross_entropy(self.head(hidden.mean(1)), tokens[:, 0] % 4).backward()
        self.optimizer.step()

    def draw(self) -> list[float]:
        return [float(layer.maps[-1].detach().amax(-1).mean()) for layer in self.layers]
