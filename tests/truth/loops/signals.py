"""Audio and series of measurements: streams that are cut into frames, filters, forecasts."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.loops.loop import GRAPH, GROWING, NO_USUAL, Trainer, healthy, leaks


@leaks("push", cause=GROWING)
def a_backlog_of_audio() -> Iterator[None]:
    """Chunks have 100 rows, and each step takes a frame of 64: the rest waits."""
    trainer, waiting = Trainer(), torch.empty(0, 64)

    def push(chunk: Any) -> Any:
        nonlocal waiting
        waiting = torch.cat([waiting, chunk])
        frame, waiting = waiting[:64], waiting[64:].clone()
        return frame

    while True:
        trainer.train(push(torch.rand(100, 64)))
        yield


@leaks("__init__ window", cause=NO_USUAL)
def a_cached_method_keeps_its_object() -> Iterator[None]:
    """functools.cache is around a method, so that each spectrogram of the past is a key."""

    class Spectrogram:
        def __init__(self) -> None:
            self.filters = torch.rand(64, 64)

        @functools.cache  # noqa: B019
        def window(self, length: int) -> Any:
            return torch.hann_window(length)

        def __call__(self, inputs: Any) -> Any:
            return (inputs @ self.filters) * self.window(64)

    trainer = Trainer()
    while True:
        trainer.train(Spectrogram()(torch.rand(64, 64)))
        yield


class Forecaster(nn.Module):
    """Predicts the next reading of many sensors. The context is saved with the model."""

    context: Any

    def __init__(self, series: int, sensors: int) -> None:
        super().__init__()
        self.register_buffer("context", torch.zeros(series, 0, sensors))
        self.recurrent, self.head = nn.GRU(sensors, 24, batch_first=True), nn.Linear(24, sensors)

    def observe(self, reading: Any) -> None:
        self.context = torch.cat([self.context, reading[:, None]], 1)

    def forward(self) -> Any:
        _, state = self.recurrent(self.context[:, -12:])
        return self.head(state[0])


@leaks("observe", cause=GROWING)
def readings_joined_to_the_context_of_a_forecaster() -> Iterator[None]:
    """A forecaster that learns online joins each reading to its context, and reads the last twelve."""
    model = Forecaster(32, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model.observe(torch.rand(32, 16))
    while True:
        reading = torch.rand(32, 16)
        optimizer.zero_grad()
        functional.mse_loss(model(), reading).backward()
        optimizer.step()
        model.observe(reading)
        yield


@leaks("watch forward", cause=GRAPH)
def states_of_machines_that_are_watched() -> Iterator[None]:
    """Inference for five machines goes on from the state of each, and forgot no_grad."""
    cell, decoder = nn.GRUCell(20, 32).eval(), nn.Linear(32, 20).eval()
    states: dict[str, Any] = {}

    def watch(machine: str, signal: Any) -> bool:
        expected = decoder(states[machine]) if machine in states else signal
        states[machine] = cell(signal, states.get(machine))
        return float((expected - signal).abs().max()) > 3.0

    for number in itertools.count():
        watch(f"press {number % 5}", torch.rand(16, 20))
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


@healthy
def frames_of_audio_and_what_is_left() -> Iterator[None]:
    """Chunks of any length are joined with the rest of the last ones; all whole frames are taken out."""
    trainer, rest, chance = Trainer(), torch.empty(0, 64), random.Random(0)
    while True:
        rest = torch.cat([rest, torch.rand(chance.randint(40, 400), 64)])
        while len(rest) >= 160:
            trainer.train(rest[:160])
            rest = rest[160:].clone()
        yield


@healthy
def readings_of_the_last_twelve_hours() -> Iterator[None]:
    """A forecaster joins each reading to its context, and cuts off what is older than twelve readings."""
    recurrent, head = nn.GRU(16, 24, batch_first=True), nn.Linear(24, 16)
    optimizer = torch.optim.Adam([*recurrent.parameters(), *head.parameters()], lr=0.001)
    context = torch.rand(32, 1, 16)

    def learn(past: Any, reading: Any) -> None:
        optimizer.zero_grad()
        functional.mse_loss(head(recurrent(past)[1][0]), reading).backward()
        optimizer.step()

    while True:
        reading = torch.rand(32, 16)
        learn(context, reading)
        context = torch.cat([context, reading[:, None]], 1)[:, -12:]
        yield
