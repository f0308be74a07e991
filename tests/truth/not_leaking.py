"""Real loops that do not leak, of the usual kinds."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.truth.leak_loop import Trainer, batch, healthy

ENTRIES = 8


def values() -> Any:
    return torch.rand(128, 128)


@healthy
def plain_training() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.train()
        yield


@healthy
def training_with_adam() -> Iterator[None]:
    trainer = Trainer()
    trainer.optimizer = torch.optim.Adam(trainer.model.parameters())
    while True:
        trainer.train()
        yield


@healthy
def numbers_of_losses() -> Iterator[None]:
    trainer, losses = Trainer(), list[float]()
    while True:
        trainer.train()
        losses.append(trainer.loss(batch()).item())
        yield


@healthy
def average_of_losses_without_graphs() -> Iterator[None]:
    trainer, average = Trainer(), torch.zeros(())
    while True:
        trainer.train()
        average = 0.9 * average + 0.1 * trainer.loss(batch()).detach()
        yield


@healthy
def batches_of_any_size() -> Iterator[None]:
    trainer, chance = Trainer(), random.Random(1)
    while True:
        trainer.train(batch(chance.randrange(16, 512)))
        yield


@healthy
def epochs_with_a_short_last_batch() -> Iterator[None]:
    trainer = Trainer()
    for number in itertools.count():
        trainer.train(batch(24 if number % 5 == 4 else 64))
        yield


@healthy
def gradients_of_four_batches() -> Iterator[None]:
    trainer = Trainer()
    while True:
        for _ in range(4):
            trainer.loss(batch()).backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        yield


@healthy
def checkpointed_layers() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.optimizer.zero_grad()
        checkpoint(trainer.model, batch(), use_reentrant=False).mean().backward()
        trainer.optimizer.step()
        yield


@healthy
def average_of_weights_in_place() -> Iterator[None]:
    trainer = Trainer()
    average = copy.deepcopy(trainer.model)
    while True:
        trainer.train()
        with torch.no_grad():
            for old, new in zip(average.parameters(), trainer.model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        yield


@healthy
def a_copy_of_the_model_each_step() -> Iterator[None]:
    trainer, best = Trainer(), dict[str, Any]()
    while True:
        trainer.train()
        best["model"] = copy.deepcopy(trainer.model)
        yield


@healthy
def evaluation_each_step() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.train()
        with torch.no_grad():
            results = [trainer.model(batch()) for _ in range(6)]
            torch.cat(results).mean().item()
        yield


@healthy
def only_inference() -> Iterator[None]:
    model = Trainer().model
    with torch.inference_mode():
        while True:
            model(batch())
            yield


@healthy
def a_cache_for_each_answer() -> Iterator[None]:
    """A generation begins anew in each step."""
    layer = nn.Linear(64, 64)
    while True:
        cache = torch.zeros(0, 64)
        with torch.no_grad():
            for _ in range(10):
                cache = torch.cat([cache, layer(batch(4))])
        yield


@healthy
def only_the_last_result() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.train()
        trainer.last = trainer.model(batch())  # type: ignore[attr-defined]
        yield


@healthy
def hooks_that_are_removed() -> Iterator[None]:
    trainer = Trainer()
    while True:
        seen: list[Any] = []
        hook = trainer.model.register_forward_hook(lambda *given: seen.append(given[-1]))  # noqa: B023
        trainer.train()
        hook.remove()
        yield


@healthy
def two_optimizers() -> Iterator[None]:
    one, other = Trainer(), Trainer()
    while True:
        one.train()
        other.train(one.model(batch()).detach())
        yield


@healthy
def a_closure_for_lbfgs() -> Iterator[None]:
    trainer = Trainer()
    optimizer = torch.optim.LBFGS(trainer.model.parameters(), max_iter=2, history_size=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = trainer.loss(batch())
        loss.backward()
        return loss

    while True:
        optimizer.step(closure)
        yield


@healthy
def penalties_of_gradients() -> Iterator[None]:
    trainer = Trainer()
    while True:
        inputs = batch().requires_grad_()
        (found,) = torch.autograd.grad(trainer.loss(inputs), inputs, create_graph=True)
        trainer.optimizer.zero_grad()
        found.square().sum().backward()
        trainer.optimizer.step()
        yield


@healthy
def state_detached_each_step() -> Iterator[None]:
    cell, state = nn.GRUCell(64, 64), torch.zeros(64, 64)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        state = cell(batch(), state.detach())
        state.mean().backward()
        optimizer.step()
        yield


@healthy
def a_generator_for_each_step() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.train()
        for part in (piece * 2 for piece in values().split(16)):
            part.sum()
        yield


@healthy
def gradients_clipped_and_logged() -> Iterator[None]:
    trainer, norms = Trainer(), list[float]()
    while True:
        trainer.optimizer.zero_grad()
        trainer.loss(batch()).backward()
        norms.append(float(nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)))
        trainer.optimizer.step()
        yield


@healthy
def one_batch_ahead() -> Iterator[None]:
    trainer, following = Trainer(), batch()
    while True:
        now, following = following, batch()
        trainer.train(now)
        yield


@healthy
def a_step_every_other_time() -> Iterator[None]:
    """Every second step also evaluates."""
    trainer = Trainer()
    for number in itertools.count():
        trainer.train()
        if number % 2:
            results = [trainer.model(batch()).detach() for _ in range(4)]
            del results
        yield


@healthy
def a_pool_of_images() -> Iterator[None]:
    """Half of the results replace one of the pool at random."""
    trainer, pool, chance = Trainer(), [values() for _ in range(50)], random.Random(2)
    while True:
        trainer.train()
        result = values()
        if chance.random() < 0.5:
            pool[chance.randrange(50)] = result
        yield
