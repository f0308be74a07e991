"""More real loops that leak or do not, as training code has them. Each was written, with what is right,
before any was diagnosed. See leaking.py."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.truth.leak_loop import GRADIENTS, GRAPH, NO_USUAL, OUTPUTS, Trainer, batch, healthy, leaks
from tests.truth.not_leaking import values

ENTRIES = 64


@leaks("batches step")
def a_loader_in_itertools_cycle() -> Iterator[None]:
    """`itertools.cycle` keeps every batch of the first epoch."""

    def batches() -> Iterator[Any]:
        for _ in range(10_000):
            yield batch()

    trainer, endless = Trainer(), itertools.cycle(batches())

    def step() -> None:
        trainer.train(next(endless))

    while True:
        step()
        yield


@leaks("pack step train loss", cause=GRAPH | OUTPUTS)
def saved_tensors_stored_and_never_dropped() -> Iterator[None]:
    """Hooks for saved tensors store them by number, and unpacking leaves them there."""
    trainer, stored = Trainer(), dict[int, Any]()

    def pack(tensor: Any) -> int:
        stored[len(stored)] = tensor
        return len(stored) - 1

    def step() -> None:
        with torch.autograd.graph.saved_tensors_hooks(pack, stored.__getitem__):
            trainer.train()

    while True:
        step()
        yield


@leaks("step")
def callbacks_of_an_exit_stack() -> Iterator[None]:
    """What an ExitStack around the loop calls at its end holds a tensor of each step."""
    trainer = Trainer()
    with contextlib.ExitStack() as at_end:

        def step() -> None:
            trainer.train()
            at_end.callback(print, torch.rand(128, 128).sqrt())

        while True:
            step()
            yield


@leaks("validate", cause=OUTPUTS | GRAPH)
def predictions_of_every_fourth_step() -> Iterator[None]:
    trainer, predictions = Trainer(), list[Any]()

    def validate() -> None:
        with torch.no_grad():
            predictions.append(trainer.model(batch(512)))

    for number in itertools.count():
        trainer.train()
        if number % 4 == 3:
            validate()
        yield


@leaks("log step", cause=GRADIENTS | NO_USUAL)
def copies_of_gradients_by_name() -> Iterator[None]:
    trainer, history = Trainer(), defaultdict[str, list[Any]](list)

    def log() -> None:
        for name, parameter in trainer.model.named_parameters():
            history[name].append(parameter.grad.clone())

    while True:
        trainer.train()
        log()
        yield


@leaks("step")
def a_list_that_is_added_to_itself() -> Iterator[None]:
    trainer, bank = Trainer(), list[Any]()

    def step() -> None:
        nonlocal bank
        trainer.train()
        bank = [*bank, torch.rand(64, 256).softmax(1)]

    while True:
        step()
        yield


@leaks("step generate", cause=GRAPH | OUTPUTS)
def images_for_a_score_with_their_graph() -> Iterator[None]:
    generator, trainer, images = Trainer().model, Trainer(), list[Any]()

    def generate() -> Any:
        return generator(batch())

    def step() -> None:
        trainer.train()
        images.append(generate())

    while True:
        step()
        yield


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
def the_three_best_checkpoints() -> Iterator[None]:
    trainer, chance, best = Trainer(), random.Random(3), list[Any]()
    while True:
        trainer.train()
        best.append((chance.random(), copy.deepcopy(trainer.model.state_dict())))
        best.sort(key=lambda one: -one[0])
        del best[3:]
        yield


@healthy
def outputs_of_an_epoch_of_25_steps() -> Iterator[None]:
    """They are dropped at its end, which is recorded."""
    trainer, outputs = Trainer(), list[Any]()
    for number in itertools.count():
        trainer.train()
        with torch.no_grad():
            outputs.append(trainer.model(batch()))
        if number % 25 == 24:
            outputs = []
        yield


@healthy
def a_history_shifted_by_slices() -> Iterator[None]:
    trainer, history = Trainer(), [values() for _ in range(ENTRIES)]
    while True:
        trainer.train()
        history[:-1] = history[1:]
        history[-1] = values()
        yield


@healthy
def a_replay_buffer_of_tuples() -> Iterator[None]:
    class Replay:
        def __init__(self) -> None:
            self.storage: list[Any] = [self.sample() for _ in range(100)]
            self.at = 0

        def sample(self) -> Any:
            return torch.rand(64, 64), torch.rand(64, 64), torch.rand(64, 8)

        def store(self, transition: Any) -> None:
            self.storage[self.at] = transition
            self.at = (self.at + 1) % len(self.storage)

    trainer, replay = Trainer(), Replay()
    while True:
        trainer.train()
        replay.store(replay.sample())
        yield


@healthy
def the_oldest_key_is_deleted() -> Iterator[None]:
    trainer, cache = Trainer(), {number: values() for number in range(ENTRIES)}

    def embed(number: int) -> Any:
        if number not in cache:
            cache[number] = values()
            if len(cache) > ENTRIES:
                del cache[next(iter(cache))]
        return cache[number]

    for number in itertools.count(ENTRIES):
        trainer.train()
        embed(number)
        yield


@healthy
def a_ring_of_sequences_of_any_length() -> Iterator[None]:
    chance = random.Random(4)

    def sequence() -> Any:
        return torch.rand(chance.randrange(32, 512), 64)

    trainer, ring = Trainer(), [sequence() for _ in range(ENTRIES)]
    while True:
        trainer.train()
        ring.append(sequence())
        del ring[0]
        yield


@healthy
def a_checkpoint_each_tenth_step() -> Iterator[None]:
    """It replaces the one before."""
    trainer, checkpoint = Trainer(), dict[str, Any]()
    for number in itertools.count():
        trainer.train()
        if number % 10 == 0:
            checkpoint = copy.deepcopy(trainer.model.state_dict())
        yield
        assert checkpoint


@healthy
def backpropagation_through_eight_steps() -> Iterator[None]:
    cell, state, losses = nn.GRUCell(64, 64), torch.zeros(64, 64), list[Any]()
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
    for number in itertools.count():
        state = cell(batch(), state)
        losses.append(state.square().mean())
        if number % 8 == 7:
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()
            optimizer.step()
            losses.clear()
            state = state.detach()
        yield
