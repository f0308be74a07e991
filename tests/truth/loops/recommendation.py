"""Users, items and clicks: what a recommender remembers of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.loops.loop import GRAPH, NO_USUAL, OUTPUTS, Trainer, batch, healthy, leaks, values


@leaks("serve step", cause=OUTPUTS | GRAPH | NO_USUAL)
def a_state_for_each_new_user() -> Iterator[None]:
    cell, states = nn.GRUCell(64, 64), dict[int, Any]()

    def serve(user: int) -> None:
        with torch.inference_mode():
            states[user] = cell(batch(), states.get(user, torch.zeros(64, 64)))

    for user in itertools.count():
        serve(user)
        yield


@healthy
def clicks_that_come_six_steps_later() -> Iterator[None]:
    """Guesses wait for their clicks with their graphs, in a dict, and are learned from six steps later."""
    encoder, head = nn.Linear(64, 128), nn.Linear(128, 16)
    optimizer, waiting = torch.optim.SGD(head.parameters(), lr=0.01), dict[int, Any]()

    def show(number: int) -> None:
        with torch.no_grad():
            features = encoder(batch()).relu()
        waiting[number] = head(features)

    def learn(number: int, clicks: Any) -> None:
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(waiting.pop(number), clicks).backward()
        optimizer.step()

    for number in itertools.count():
        show(number)
        if number >= 6:
            learn(number - 6, torch.randint(2, (64, 16)).float())
        yield


@healthy
def the_last_output_of_each_sample() -> Iterator[None]:
    """A memory bank: a dict by sample of 32 batches."""
    trainer, bank = Trainer(), {sample: values() for sample in range(32)}
    for number in itertools.count():
        trainer.train()
        with torch.no_grad():
            bank[number * 7 % 32] = trainer.model(batch(256)).clone()
        yield
