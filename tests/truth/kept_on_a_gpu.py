"""What people keep in the memory of a GPU for good: caches of decoders, adapters, graphs, indexes, particles.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterator
from logging.handlers import BufferingHandler
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from tests.truth.gpu_code import (
    AdapterServer,
    ConfusionPairs,
    Contrasts,
    Conversation,
    CrossAttention,
    InvertedLists,
    ParameterServer,
    Replicas,
    SideStream,
)
from tests.truth.leak_loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    METRICS,
    NO_USUAL,
    OUTPUTS,
    Trainer,
    batch,
    leaks,
)

CACHE = frozenset({"growing cache"})


@leaks("forward translate", cause=OUTPUTS | CACHE)
def sentences_cut_off_at_the_longest_length() -> Iterator[None]:
    """A translator forgets the keys of a sentence at its end, but not if the length is what ends it."""
    encoder, attention, head = nn.Linear(64, 64), CrossAttention(), nn.Linear(64, 32)
    chance = random.Random(1)

    @torch.inference_mode()
    def translate(sentence: int, inputs: Any, longest: int = 5) -> list[int]:
        encoded, words = encoder(inputs).tanh(), torch.zeros(1, 1, 64)
        chosen = list[int]()
        while len(chosen) < longest:
            words = attention(words, sentence, encoded)
            chosen.append(int(head(words[:, -1]).argmax()))
            if chance.random() < 0.1:
                attention.forget(sentence)
                break
        return chosen

    for sentence in itertools.count():
        translate(sentence, torch.rand(1, 24, 64))
        yield


@leaks("predict correct", cause=GRAPH)
def a_filter_with_fitted_noise() -> Iterator[None]:
    """A Kalman filter, whose noise was fitted by gradients, follows objects, and nobody wrote no_grad."""
    noise, blur = nn.Parameter(torch.full((4,), -3.0)), nn.Parameter(torch.full((2,), -2.0))
    motion, seen = torch.eye(4) + 0.1 * torch.eye(4).roll(2, 1).triu(), torch.eye(4)[:2]

    def predict(means: Any, spreads: Any) -> Any:
        return means @ motion.T, motion @ spreads @ motion.T + noise.exp().diag()

    def correct(means: Any, spreads: Any, places: Any) -> Any:
        expected = seen @ spreads @ seen.T + blur.exp().diag()
        gain = torch.linalg.solve(expected, seen @ spreads).mT
        missed = places - means @ seen.T
        return means + (gain @ missed[..., None])[..., 0], spreads - gain @ seen @ spreads

    means, spreads = torch.zeros(32, 4), torch.eye(4).repeat(32, 1, 1)
    while True:
        means, spreads = predict(means, spreads)
        means, spreads = correct(means, spreads, torch.rand(32, 2))
        yield


@leaks("write train_step", cause=GRAPH)
def a_bank_written_in_place_with_graphs() -> Iterator[None]:
    """A bank has a smoothed feature of each image, is written in place, and holds the graph of each write."""
    encoder, bank = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)), torch.rand(1024, 32)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)

    def write(numbers: Any, features: Any) -> None:
        bank[numbers] = functional.normalize((bank[numbers] + features) / 2)

    def train_step() -> None:
        numbers = torch.randint(1024, (64,))
        features = functional.normalize(encoder(batch()))
        optimizer.zero_grad()
        functional.cross_entropy(features @ bank.detach().T / 0.1, numbers).backward()
        optimizer.step()
        write(numbers, features)

    while True:
        train_step()
        yield


@leaks("push apply work", cause=GRADIENTS)
def gradients_too_old_to_be_applied() -> Iterator[None]:
    """A server of parameters does not apply gradients of old weights, and does not throw them away either."""
    trainer, chance = Trainer(), random.Random(2)
    server = ParameterServer(trainer.model)

    def work(version: int) -> None:
        gradients = torch.autograd.grad(trainer.loss(batch()), server.weights)
        server.push(version, gradients)

    while True:
        work(server.version - chance.randint(0, 5))
        server.apply()
        yield


@leaks("update validate", cause=METRICS)
def pairs_of_classes_of_an_endless_stream() -> Iterator[None]:
    """A metric notes classes that are confused until the epoch ends, and the stream has no epochs."""
    model, pairs = nn.Linear(64, 10), ConfusionPairs(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.no_grad()
    def validate() -> None:
        pairs.update(model(batch(256)), torch.randint(10, (256,)))

    for number in itertools.count():
        optimizer.zero_grad()
        functional.cross_entropy(model(batch()), torch.randint(10, (64,))).backward()
        optimizer.step()
        validate()
        if number % 8 == 7:
            pairs.most_frequent()
        yield


@leaks("save read forward", cause=OUTPUTS)
def prompts_for_a_steering_vector() -> Iterator[None]:
    """A hook notes the last word of prompts, a view of all words; the vector is of the last eight batches."""
    layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    contrasts, readout = Contrasts(layers[2]), nn.Linear(64, 1)
    optimizer = torch.optim.SGD(readout.parameters(), lr=0.01)

    @torch.no_grad()
    def read(side: str) -> Any:
        contrasts.side = side
        return layers(torch.rand(8, 12, 64))

    while True:
        hidden = read("honest") - read("deceptive")
        optimizer.zero_grad()
        readout(hidden + contrasts.direction()).square().mean().backward()
        optimizer.step()
        yield


@leaks("add", cause=GROWING)
def pages_that_are_indexed_again() -> Iterator[None]:
    """A crawler comes back to the same pages, and their new vectors join the old ones in the index."""
    index, pages = InvertedLists(), torch.randn(256, 64)
    for number in itertools.count():
        start = 32 * (number % 8)
        pages[start : start + 32] += 0.05 * torch.randn(32, 64)
        index.add(pages[start : start + 32])
        index.search(torch.randn(64))
        yield


@leaks("absorb")
def particles_that_left_the_box() -> Iterator[None]:
    """Particles of a plasma end at the walls: a list has all of them, the current needs the last only."""
    places, speeds = 2 * torch.rand(16_384, 3) - 1, torch.randn(16_384, 3)
    absorbed = list[Any]()

    def push(step: float = 0.03) -> None:
        speeds.mul_(0.9).add_(torch.randn_like(speeds), alpha=0.4)
        places.add_(speeds, alpha=step)

    def absorb() -> None:
        outside = (places.abs() > 1).any(1)
        absorbed.append(torch.cat([places[outside], speeds[outside]], 1))
        count = int(outside.sum())
        places[outside] = 2 * torch.rand(count, 3) - 1
        speeds[outside] = torch.randn(count, 3)

    def current() -> Any:
        return absorbed[-1][:, 3:].sum(0)

    while True:
        push()
        absorb()
        current()
        yield


@leaks("spectrum match", cause=CACHE | NO_USUAL)
def a_replica_for_each_doppler_shift() -> Iterator[None]:
    """A radar caches its matched filters by the shift that a tracker expects, and that is a float."""
    replicas, chance = Replicas(), random.Random(4)
    shifts = [chance.uniform(-20, 20) for _ in range(3)]
    while True:
        echo = torch.polar(torch.rand(2048), 6.28 * torch.rand(2048))
        for number, shift in enumerate(shifts):
            shifts[number] = 0.98 * shift + 1e-6 * replicas.match(echo, shift) + chance.gauss(0, 0.1)
        yield


@leaks("add load evict answer", cause=CACHE | NO_USUAL)
def adapters_evicted_by_their_names_only() -> Iterator[None]:
    """A server of adapters for users has four slots; who loses his slot stays in the layers."""
    server, chance = AdapterServer(slots=4, unloads=False), random.Random(5)
    for number in itertools.count():
        server.answer(f"user-{number // 2 - min(number // 2, chance.randint(0, 3))}", batch(16))
        yield


@leaks("check train_step skip forward", cause=GRAPH | OUTPUTS)
def skipped_steps_are_logged_with_tracebacks() -> Iterator[None]:
    """Steps with a high loss are skipped with an error in a buffer of the log, whose frames have the loss."""
    model, logger = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), logging.Logger("skipped")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    logger.addHandler(BufferingHandler(100_000))

    def check(loss: Any, number: int) -> None:
        if number % 3 == 2:
            raise FloatingPointError(f"step {number}: the loss of {loss.item():.2f} is too high")

    def train_step(number: int) -> None:
        inputs, labels = batch(), torch.randint(8, (64,))
        loss = functional.cross_entropy(model(inputs), labels)
        check(loss, number)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def skip(number: int) -> None:
        logger.warning("skipped step %d", number, exc_info=True)

    for number in itertools.count():
        try:
            train_step(number)
        except FloatingPointError:
            skip(number)
        yield


@leaks("adapt", cause=GRAPH)
def weights_of_users_to_go_on_adapting() -> Iterator[None]:
    """First-order meta-learning goes on from a user's last weights, which have graphs of their updates."""
    model, chance = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8)), random.Random(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    adapted: dict[int, dict[str, Any]] = {}

    def loss(weights: dict[str, Any]) -> Any:
        return functional_call(model, weights, (batch(32),)).square().mean()

    def adapt(user: int) -> dict[str, Any]:
        weights = adapted.get(user) or dict(model.named_parameters())
        gradients = torch.autograd.grad(loss(weights), list(weights.values()), create_graph=True)
        updated = zip(weights.items(), gradients, strict=True)
        adapted[user] = {name: weight - 0.1 * gradient for (name, weight), gradient in updated}
        return adapted[user]

    for number in itertools.count():
        weights = adapt(chance.randrange(number // 2 + 1))
        outer = torch.autograd.grad(loss(weights), list(weights.values()))
        for weight, gradient in zip(model.parameters(), outer, strict=True):
            weight.grad = gradient
        optimizer.step()
        yield


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


@leaks("draw_later validate forward", cause=OUTPUTS)
def figures_that_are_drawn_at_the_end() -> Iterator[None]:
    """Drawing is slow, so each second step leaves a closure that draws its spectrogram after training."""
    model, drawn_later = nn.Conv1d(32, 32, 5, padding=2), list[Callable[[], Any]]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

    def draw_later(spectrogram: Any, number: int) -> None:
        def draw() -> Any:
            return f"step {number}", spectrogram[0].clamp(min=1e-5).log10()

        drawn_later.append(draw)

    @torch.no_grad()
    def validate(number: int) -> None:
        draw_later(model(torch.rand(4, 32, 48)), number)

    for number in itertools.count():
        sounds = torch.rand(8, 32, 48)
        optimizer.zero_grad()
        (model(sounds + 0.1 * torch.randn_like(sounds)) - sounds).abs().mean().backward()
        optimizer.step()
        if number % 2:
            validate(number)
        yield


@leaks("copy wait")
def batches_that_are_not_waited_for() -> Iterator[None]:
    """A stream holds batches until they are waited for, which happens once for two that are accumulated."""
    trainer, stream = Trainer(), SideStream()
    stream.copy(0)
    for number in itertools.count():
        stream.copy(number + 1)
        (trainer.loss(stream.batch(number)) / 2).backward()
        if number % 2:
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
            stream.wait(number)
        yield
