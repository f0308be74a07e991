"""Real loops that do not leak: ordinary ones, and look-alikes that keep things for a while."""

from __future__ import annotations

import copy
import functools
import heapq
import itertools
import queue
import random
import weakref
from collections import OrderedDict, deque
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
        yield trainer.train()


@healthy
def training_with_adam() -> Iterator[None]:
    trainer = Trainer()
    trainer.optimizer = torch.optim.Adam(trainer.model.parameters())
    while True:
        yield trainer.train()


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
        yield trainer.train(batch(chance.randrange(16, 512)))


@healthy
def epochs_with_a_short_last_batch() -> Iterator[None]:
    trainer = Trainer()
    for number in itertools.count():
        yield trainer.train(batch(24 if number % 5 == 4 else 64))


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
    trainer, best = Trainer(), None
    while True:
        trainer.train()
        best = copy.deepcopy(trainer.model)
        yield
    assert best


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
def a_ring_by_assignment() -> Iterator[None]:
    trainer, ring = Trainer(), [values() for _ in range(ENTRIES)]
    for number in itertools.count():
        trainer.train()
        ring[number % ENTRIES] = values()
        yield


@healthy
def a_large_ring_by_assignment() -> Iterator[None]:
    """It was full before, and has more entries than steps are recorded."""
    trainer, ring = Trainer(), [values() for _ in range(64)]
    for number in itertools.count():
        trainer.train()
        ring[number % 64] = values()
        yield


@healthy
def a_ring_by_del() -> Iterator[None]:
    trainer, ring = Trainer(), [values() for _ in range(64)]
    while True:
        trainer.train()
        ring.append(values())
        del ring[0]
        yield


@healthy
def a_ring_by_slicing() -> Iterator[None]:
    trainer, ring = Trainer(), [values() for _ in range(64)]
    while True:
        trainer.train()
        ring = [*ring, values()][-64:]
        yield


@healthy
def a_dict_as_a_ring() -> Iterator[None]:
    trainer, ring = Trainer(), {number: values() for number in range(64)}
    for number in itertools.count():
        trainer.train()
        ring[number % 64] = values()
        yield


@healthy
def a_dict_that_deletes() -> Iterator[None]:
    trainer, kept = Trainer(), {number: values() for number in range(64)}
    for number in itertools.count(64):
        trainer.train()
        kept[number] = values()
        del kept[number - 64]
        yield


@healthy
def a_deque_of_64() -> Iterator[None]:
    trainer, last = Trainer(), deque((values() for _ in range(64)), maxlen=64)
    while True:
        trainer.train()
        last.append(values())
        yield


@healthy
def a_deque_of_four() -> Iterator[None]:
    trainer, last = Trainer(), deque[Any](maxlen=4)
    while True:
        trainer.train()
        last.append(values())
        yield


@healthy
def least_recently_used() -> Iterator[None]:
    trainer, cache = Trainer(), OrderedDict((number, values()) for number in range(64))
    for number in itertools.count(64):
        trainer.train()
        cache[number] = values()
        cache.popitem(last=False)
        yield


@healthy
def bounded_lru_cache() -> Iterator[None]:
    @functools.lru_cache(maxsize=ENTRIES)
    def look_up(number: int) -> Any:
        return values() + number

    trainer = Trainer()
    for number in itertools.count():
        trainer.train()
        look_up(number)
        yield


@healthy
def a_list_cleared_every_third_step() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()
    for number in itertools.count():
        trainer.train()
        kept.append(values())
        if number % 3 == 2:
            kept.clear()
        yield


@healthy
def a_queue_that_is_read() -> Iterator[None]:
    trainer, waiting = Trainer(), queue.Queue[Any]()
    for _ in range(4):
        waiting.put(batch())
    while True:
        waiting.put(batch())
        yield trainer.train(waiting.get())


@healthy
def a_heap_with_a_bound() -> Iterator[None]:
    trainer, heap = Trainer(), [(number, values()) for number in range(-64, 0)]
    heapq.heapify(heap)
    for number in itertools.count():
        trainer.train()
        heapq.heappushpop(heap, (number, values()))
        yield


@healthy
def a_tensor_as_a_ring() -> Iterator[None]:
    trainer, ring = Trainer(), torch.zeros(256, 64)
    for number in itertools.count():
        trainer.train()
        with torch.no_grad():
            ring[number % 4 * 64 : number % 4 * 64 + 64] = trainer.model(batch())
        yield


@healthy
def a_queue_of_keys_as_a_tensor() -> Iterator[None]:
    trainer, keys = Trainer(), torch.zeros(512, 64)
    while True:
        trainer.train()
        with torch.no_grad():
            keys = torch.cat([keys[64:], trainer.model(batch())])
        yield


@healthy
def weak_references() -> Iterator[None]:
    trainer, seen = Trainer(), list[Any]()
    while True:
        trainer.train()
        result = values()
        seen.append(weakref.ref(result))
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
        yield trainer.train(now)


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
