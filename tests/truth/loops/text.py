"""Language models and what reads text: caches of keys, states of readers, answers."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.loops.loop import (
    GRAPH,
    GROWING,
    NO_USUAL,
    OUTPUTS,
    Trainer,
    answer_of,
    batch,
    healthy,
    leaks,
)


@leaks("attend step", cause=GROWING)
def keys_and_values_of_one_session() -> Iterator[None]:
    layers, kept = [nn.Linear(64, 128) for _ in range(3)], [torch.zeros(0, 128)] * 3

    def attend(inputs: Any) -> None:
        for number, layer in enumerate(layers):
            kept[number] = torch.cat([kept[number], layer(inputs)])

    while True:
        with torch.no_grad():
            attend(batch())
        yield


class Encoder(nn.Module):
    """Two layers of a transformer, which were asked for all hidden states."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(2)]
        self.layers, self.hidden_states = nn.ModuleList(layers), tuple[Any, ...]()

    def forward(self, tokens: Any) -> Any:
        for layer in self.layers:
            tokens = layer(tokens)
            self.hidden_states = (*self.hidden_states, tokens.detach())
        return tokens


@leaks("forward", cause=OUTPUTS)
def a_tuple_of_hidden_states() -> Iterator[None]:
    """Each layer puts its hidden states behind those of the layer before, and so does the next call."""
    encoder = Encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.001)
    while True:
        optimizer.zero_grad()
        (encoder(torch.rand(4, 16, 64)) - 1).square().mean().backward()
        optimizer.step()
        yield


class Reader(nn.Module):
    """Reads a document by segments, and attends to the last 64 tokens that it has read, too."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.memory = torch.zeros(1, 64, 64)

    def forward(self, segment: Any) -> Any:
        context = torch.cat([self.memory, segment], 1)
        output = segment + self.attention(segment, context, context, need_weights=False)[0]
        self.memory = torch.cat([self.memory, output], 1)[:, -64:]
        return output


@leaks("forward", cause=GRAPH)
def a_short_memory_with_a_long_graph() -> Iterator[None]:
    """A reader that is not trained remembers 64 tokens, but their graph goes back to the beginning."""
    trainer, reader = Trainer(), Reader()
    while True:
        trainer.train(reader(torch.rand(1, 32, 64)).detach().flatten(0, 1))
        yield


@dataclass
class Phase:
    """What is noted in one phase of a training."""

    losses: dict[str, list[Any]] = field(default_factory=dict)

    def note(self, name: str, value: Any) -> None:
        self.losses.setdefault(name, []).append(value)


@leaks("note train_step", cause=GRAPH)
def losses_of_tokens_in_a_record() -> Iterator[None]:
    """A dataclass has dicts of lists, in which are the losses of all tokens, as they came."""
    trainer, phases = Trainer(), {"train": Phase(), "warm-up": Phase()}

    def train_step(number: int) -> None:
        trainer.optimizer.zero_grad()
        losses = trainer.model(batch(2048)).square().mean(1)
        phases["train" if number > 3 else "warm-up"].note("tokens", losses.log())
        losses.mean().backward()
        trainer.optimizer.step()

    for number in itertools.count():
        train_step(number)
        yield


@leaks("match", cause=GROWING | NO_USUAL)
def a_prefix_tree_with_locks() -> Iterator[None]:
    """What no prompt uses goes when there are more than twelve, but every third prompt is never released."""
    trainer, nodes = Trainer(), dict[tuple[int, ...], list[Any]]()

    def match(prompt: tuple[int, ...]) -> None:
        for end in range(1, len(prompt) + 1):
            if prompt[:end] not in nodes:
                nodes[prompt[:end]] = [0, torch.rand(32, 64)]
            nodes[prompt[:end]][0] += 1

    def release(prompt: tuple[int, ...]) -> None:
        for end in range(1, len(prompt) + 1):
            nodes[prompt[:end]][0] -= 1

    def evict() -> None:
        unused = [key for key, (locks, _) in nodes.items() if not locks]
        for key in unused[:-12]:
            del nodes[key]

    for number in itertools.count():
        prompt = (number % 2, number, number + 1, number + 2)
        match(prompt)
        trainer.train(nodes[prompt][1])
        stopped_at_once = number % 3 == 0
        if not stopped_at_once:
            release(prompt)
        evict()
        yield


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


@leaks("reserve append", cause=GROWING)
def a_conversation_that_goes_on() -> Iterator[None]:
    """An agent never begins a new conversation: when its cache of keys is full, it gets more room."""
    conversation, project = Conversation(), nn.Linear(64, 2 * 64)

    @torch.inference_mode()
    def hear(words: Any) -> None:
        layers = [project(words).view(-1, 2, 4, 16).permute(1, 2, 0, 3) for _ in conversation.layers]
        conversation.append(layers)
        for keys, values in conversation.layers:
            functional.scaled_dot_product_attention(layers[0][0], keys, values)

    while True:
        hear(batch(4))
        yield


@healthy
def draft_tokens_are_rolled_back() -> Iterator[None]:
    """Four tokens are guessed in each step, and some are cut off; an answer is done with 60."""
    trainer, keys, chance = Trainer(), torch.empty(0, 64), random.Random(0)
    while True:
        trainer.train()
        with torch.no_grad():
            keys = torch.cat([keys, trainer.model(torch.rand(4 * 64, 64))])
        keys = keys[: len(keys) - 64 * chance.randint(0, 3)].clone()
        if len(keys) >= 64 * 60:
            keys = torch.empty(0, 64)
        yield


@healthy
def caches_of_beams_are_reordered() -> Iterator[None]:
    """The caches of four beams become longer by a token a step, in the order of the best, up to 17."""
    layer, head = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), nn.Linear(64, 64)
    layer.eval()
    while True:
        cache = torch.zeros(4, 0, 64)
        for _ in range(17):
            with torch.no_grad():
                hidden = layer(torch.cat([cache, torch.rand(4, 16, 64)], dim=1))
                best = head(hidden[:, -1]).max(dim=1).values.argsort()[[0, 0, 1, 2]]
                cache = hidden.index_select(0, best)
            yield


@healthy
def a_static_cache_for_each_request() -> Iterator[None]:
    """Keys and values have room for a whole answer from its first token on. Nine requests run, one ends."""
    attention = nn.MultiheadAttention(64, 4, batch_first=True)
    running = deque[tuple[int, Any]]()
    for number in itertools.count():
        running.append((number, torch.zeros(4, 24, 64)))
        with torch.no_grad():
            for start, cache in running:
                place, token = number - start, torch.rand(4, 1, 64)
                cache[:, place : place + 1] = token
                attention(token, cache[:, : place + 1], cache[:, : place + 1])
        if len(running) == 9:
            running.popleft()
        yield


@healthy
def attention_sinks_and_a_window() -> Iterator[None]:
    """The keys of an endless stream: the first 16 and the last 256."""
    trainer, keys = Trainer(), torch.empty(0, 64)
    while True:
        keys = torch.cat([keys, answer_of(trainer, batch(16))])
        if len(keys) > 272:
            keys = torch.cat([keys[:16], keys[-256:]])
        (answer_of(trainer, batch(16)) @ keys.T).softmax(-1) @ keys
        yield


@healthy
def rows_of_an_embedding_for_five_batches() -> Iterator[None]:
    """Sparse gradients of five batches are joined before the optimizer's step."""
    embedding, head = nn.Embedding(5000, 64, sparse=True), nn.Linear(64, 64)
    optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], lr=0.01)
    for number in itertools.count(1):
        head(embedding(torch.randint(0, 5000, (64,)))).square().mean().backward()
        if number % 5 == 0:
            optimizer.step()
            optimizer.zero_grad()
        yield
