"""More real loops that leak or do not, of what trainers have around their step: metrics, writers, memory
banks. Each was written with what is right before any was diagnosed. See leaking.py."""

from __future__ import annotations

import copy
import functools
import heapq
import itertools
import queue
import random
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.truth.leak_loop import GRAPH, METRICS, NO_USUAL, OUTPUTS, Trainer, batch, healthy, leaks
from tests.truth.not_leaking import values

ENTRIES = 24


@leaks("update step", cause=OUTPUTS | METRICS | NO_USUAL)
def a_metric_that_is_never_reset() -> Iterator[None]:
    """Its states are lists, as those of a metric that joins all predictions in compute()."""

    class Metric(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.preds, self.target = list[Any](), list[Any]()

        def update(self, preds: Any, target: Any) -> None:
            self.preds.append(preds.detach())
            self.target.append(target)

        def compute(self) -> Any:
            return (torch.cat(self.preds) - torch.cat(self.target)).abs().mean()

    trainer, metric = Trainer(), Metric()
    while True:
        inputs = batch()
        trainer.train(inputs)
        with torch.no_grad():
            metric.update(trainer.model(inputs), inputs)
        metric.compute().item()
        yield


@leaks("prune step")
def a_mask_in_a_hook_of_each_step() -> Iterator[None]:
    """Hooks of a parameter, which are never removed, hold masks."""
    trainer = Trainer()
    weight = trainer.model[0].weight

    def prune() -> None:
        mask = (torch.rand(64, 64) > 0.1).float()
        weight.register_hook(lambda gradient: gradient * mask)

    while True:
        prune()
        trainer.train()
        yield


@leaks("train step", cause=OUTPUTS | GRAPH | NO_USUAL)
def a_row_keeps_its_whole_batch() -> Iterator[None]:
    """The first row of each batch of results is kept for a log: a view."""
    trainer, rows = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        with torch.no_grad():
            rows.append(trainer.model(batch(256))[0])

    while True:
        step()
        yield


@leaks("add_histogram step")
def a_writer_that_is_never_flushed() -> Iterator[None]:
    class Writer:
        def __init__(self) -> None:
            self.buffer = dict[str, list[Any]]()

        def add_histogram(self, tag: str, values: Any, step: int) -> None:
            self.buffer.setdefault(tag, []).append((step, values.detach().clone()))

    trainer, writer = Trainer(), Writer()
    for number in itertools.count():
        trainer.train()
        for name, parameter in trainer.model.named_parameters():
            writer.add_histogram(name, parameter, number)
        yield


@leaks("load step")
def errors_that_are_causes_of_the_next() -> Iterator[None]:
    trainer, last = Trainer(), None

    def load() -> None:
        nonlocal last
        images = torch.rand(128, 128)
        try:
            raise ValueError(images.shape)
        except ValueError as error:
            error.__cause__ = last
            last = error

    while True:
        load()
        trainer.train()
        yield


@leaks("__getitem__ step")
def a_dataset_caches_each_augmentation() -> Iterator[None]:
    class Cached(Dataset[Any]):
        def __init__(self) -> None:
            self.cache, self.epoch = dict[tuple[int, int], Any](), 0

        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            key = (self.epoch, index)
            if key not in self.cache:
                self.cache[key] = torch.rand(64) + index
            return self.cache[key]

    trainer, dataset = Trainer(), Cached()
    while True:
        for inputs in DataLoader(dataset, batch_size=32):
            trainer.train(inputs)
            yield
        dataset.epoch += 1


@leaks("features_of step")
def weak_keys_that_their_values_hold() -> Iterator[None]:
    class Sample:
        def __init__(self) -> None:
            self.pixels = torch.rand(64, 64)

    trainer, cache = Trainer(), weakref.WeakKeyDictionary[Sample, Any]()

    def features_of(sample: Sample) -> Any:
        cache[sample] = (sample, sample.pixels.cos())
        return cache[sample][1]

    while True:
        trainer.train(features_of(Sample()))
        yield


@leaks("evaluate step")
def results_of_a_thread_pool() -> Iterator[None]:
    """Futures are kept with what another thread has allocated for them."""
    trainer, futures = Trainer(), list[Future[Any]]()

    def evaluate() -> Any:
        return torch.rand(128, 128).sort().values

    with ThreadPoolExecutor(1) as pool:
        while True:
            trainer.train()
            futures.append(pool.submit(evaluate))
            futures[-1].result()
            yield


@healthy
def lbfgs_fills_its_history() -> Iterator[None]:
    trainer = Trainer()
    optimizer = torch.optim.LBFGS(trainer.model.parameters(), lr=0.1, max_iter=1, history_size=100)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = trainer.loss(batch())
        loss.backward()
        return loss

    while True:
        optimizer.step(closure)
        yield


@healthy
def gradients_replaced_by_clones() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.optimizer.zero_grad(set_to_none=False)
        trainer.loss(batch()).backward()
        for parameter in trainer.model.parameters():
            parameter.grad = parameter.grad.clone().clamp_(-1, 1)
        trainer.optimizer.step()
        yield


@healthy
def a_thread_that_prefetches() -> Iterator[None]:
    trainer, ready, over = Trainer(), queue.Queue[Any](ENTRIES), threading.Event()

    def produce() -> None:
        while not over.is_set():
            ready.put(batch())

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        while True:
            trainer.train(ready.get())
            yield
    finally:
        over.set()
        ready.get()
        thread.join()


@healthy
def the_last_output_of_each_sample() -> Iterator[None]:
    """A memory bank: a dict by sample of 32 batches."""
    trainer, bank = Trainer(), {sample: values() for sample in range(32)}
    for number in itertools.count():
        trainer.train()
        with torch.no_grad():
            bank[number * 7 % 32] = trainer.model(batch(256)).clone()
        yield


@healthy
def tables_by_length() -> Iterator[None]:
    """All 20 lengths come within a few dozen steps."""

    @functools.lru_cache(maxsize=32)
    def table(length: int) -> Any:
        return torch.outer(torch.arange(length * 64.0), torch.arange(32.0)).cos()

    trainer, chance = Trainer(), random.Random(5)
    while True:
        trainer.train()
        table(chance.randrange(1, 21))
        yield


@healthy
def states_to_roll_back_to() -> Iterator[None]:
    class Rollback:
        def __init__(self, model: nn.Module) -> None:
            self.states = deque((copy.deepcopy(model.state_dict()) for _ in range(ENTRIES)), maxlen=ENTRIES)

        def save(self, model: nn.Module) -> None:
            self.states.append({name: value.clone() for name, value in model.state_dict().items()})

    trainer = Trainer()
    rollback = Rollback(trainer.model)
    while True:
        trainer.train()
        rollback.save(trainer.model)
        yield


@healthy
def the_error_of_the_last_step() -> Iterator[None]:
    trainer, last = Trainer(), None

    def load() -> None:
        nonlocal last
        images = torch.rand(128, 128)
        try:
            raise ValueError(images.shape)
        except ValueError as error:
            last = error

    while True:
        load()
        trainer.train()
        yield
        assert last is not None


@healthy
def a_ring_beside_a_set_of_numbers() -> Iterator[None]:
    """What is done already is noted in a set."""
    trainer, ring, done = Trainer(), [values() for _ in range(64)], set[int]()

    def step(number: int) -> None:
        trainer.train()
        ring[number % 64] = values()
        done.add(number)

    for number in itertools.count():
        step(number)
        yield


@healthy
def a_ring_beside_a_heap_of_scores() -> Iterator[None]:
    trainer, ring, scores, chance = Trainer(), dict[int, Any](), list[Any](), random.Random(6)
    ring.update({number: values() for number in range(64)})

    def step(number: int) -> None:
        trainer.train()
        ring[number % 64] = values()
        heapq.heappush(scores, (chance.random(), number))

    for number in itertools.count():
        step(number)
        yield


@healthy
def a_population_of_networks() -> Iterator[None]:
    """Each step makes a network, and the oldest one goes."""
    trainer, population = Trainer(), [nn.Linear(64, 64) for _ in range(64)]
    while True:
        trainer.train()
        population = [*population[1:], nn.Linear(64, 64)]
        yield


@healthy
def the_last_16_losses_with_their_graphs() -> Iterator[None]:
    """Too much is held, but it does not become more."""
    trainer, losses = Trainer(), deque[Any](maxlen=16)
    while True:
        trainer.train()
        losses.append(trainer.loss(batch()))
        yield


@healthy
def a_slice_of_losses_with_their_graphs() -> Iterator[None]:
    """The same in a list that is cut."""
    trainer, losses = Trainer(), list[Any]()
    while True:
        trainer.train()
        losses = [*losses, trainer.loss(batch())][-16:]
        yield
