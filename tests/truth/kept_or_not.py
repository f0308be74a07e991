"""More real loops that leak or do not: containers that are filled and emptied in other ways. Each was written
with what is right before any was diagnosed. See leaking.py."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import torch

from tests.truth.leak_loop import GRAPH, METRICS, Trainer, batch, healthy, leaks
from tests.truth.not_leaking import values

ENTRIES = 64


@leaks("remember step")
def best_samples_in_a_heap() -> Iterator[None]:
    trainer, best = Trainer(), list[Any]()

    def remember(number: int) -> None:
        heapq.heappush(best, (number, values()))

    for number in itertools.count():
        trainer.train()
        remember(number)
        yield


@leaks("watch step")
def a_backward_hook_for_each_step() -> Iterator[None]:
    trainer = Trainer()

    def watch() -> None:
        scale = torch.rand(128, 128)
        trainer.model[0].register_full_backward_hook(lambda *given: scale.shape and None)

    while True:
        watch()
        trainer.train()
        yield


@leaks("store step")
def features_and_labels_by_number() -> Iterator[None]:
    trainer, stored = Trainer(), dict[int, Any]()

    def features() -> Any:
        return torch.rand(128, 128)

    def labels() -> Any:
        return torch.rand(128, 128).argsort()

    def store(number: int) -> None:
        stored[number] = (features(), labels())

    for number in itertools.count():
        trainer.train()
        store(number)
        yield


@leaks("step")
def two_samples_come_and_one_is_used() -> Iterator[None]:
    trainer, waiting = Trainer(), [batch() for _ in range(30)]

    def step() -> None:
        waiting.append(batch())
        waiting.append(batch())
        trainer.train(waiting.pop(0))

    while True:
        step()
        yield


@leaks("update step train", cause=GRAPH)
def a_meter_with_losses() -> Iterator[None]:
    class Meter:
        def __init__(self) -> None:
            self.values: list[Any] = []

        def update(self, value: Any) -> None:
            self.values.append(value)

    trainer, meter = Trainer(), Meter()
    while True:
        trainer.train()
        meter.update(trainer.loss(batch()))
        yield


@leaks("step")
def masks_of_each_step() -> Iterator[None]:
    trainer, masks = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        masks.append(torch.rand(128, 128) > 0.5)

    while True:
        step()
        yield


@leaks("step", cause=METRICS)
def a_loss_for_each_sample() -> Iterator[None]:
    trainer, losses = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        with torch.no_grad():
            losses.append(torch.rand(4096, 16).square().mean(dim=1))

    while True:
        step()
        yield


@leaks("collect step")
def a_list_in_a_method() -> Iterator[None]:
    class Collector:
        def __init__(self) -> None:
            self.samples: list[Any] = []

        def collect(self) -> None:
            self.samples += [values()]

    trainer, collector = Trainer(), Collector()
    while True:
        trainer.train()
        collector.collect()
        yield


@healthy
def a_list_as_a_ring_beside_numbers() -> Iterator[None]:
    trainer, ring, numbers = Trainer(), [values() for _ in range(ENTRIES)], list[float]()
    while True:
        trainer.train()
        ring.append(values())
        ring.pop(0)
        numbers.append(0.5)
        yield


@healthy
def least_recently_used_in_a_class() -> Iterator[None]:
    class Cache:
        def __init__(self) -> None:
            self.entries = OrderedDict((-number, values()) for number in range(1, ENTRIES))

        def get(self, number: int) -> Any:
            self.entries[number] = found = values()
            self.entries.move_to_end(number)
            while len(self.entries) > ENTRIES:
                self.entries.popitem(last=False)
            return found

    trainer, cache = Trainer(), Cache()
    for number in itertools.count():
        trainer.train()
        cache.get(number)
        yield


@healthy
def the_best_64() -> Iterator[None]:
    trainer, best = Trainer(), [(number, values()) for number in range(-ENTRIES, 0)]
    heapq.heapify(best)

    def offer(number: int) -> None:
        found = values()
        if number > best[0][0]:
            heapq.heapreplace(best, (number, found))

    for number in itertools.count():
        trainer.train()
        offer(number)
        yield


@healthy
def a_dict_that_pops() -> Iterator[None]:
    trainer, kept = Trainer(), {number: values() for number in range(ENTRIES)}

    def store(number: int) -> None:
        kept[number] = values()
        kept.pop(number - ENTRIES)

    for number in itertools.count(ENTRIES):
        trainer.train()
        store(number)
        yield


@healthy
def one_function_fills_and_another_empties() -> Iterator[None]:
    trainer, ready = Trainer(), [batch() for _ in range(ENTRIES)]

    def produce() -> None:
        ready.append(batch())

    def consume() -> Any:
        return ready.pop(0)

    while True:
        produce()
        trainer.train(consume())
        yield


@healthy
def a_deque_that_is_read_elsewhere() -> Iterator[None]:
    trainer, ready = Trainer(), deque(batch() for _ in range(ENTRIES))

    def produce() -> None:
        ready.append(batch())

    while True:
        produce()
        trainer.train(ready.popleft())
        yield


@healthy
def older_half_is_dropped_now_and_then() -> Iterator[None]:
    trainer, kept = Trainer(), [values() for _ in range(ENTRIES)]
    while True:
        trainer.train()
        kept.append(values())
        if len(kept) >= 2 * ENTRIES:
            del kept[:ENTRIES]
        yield


@healthy
def a_set_that_discards() -> Iterator[None]:
    trainer, known = Trainer(), {values() for _ in range(ENTRIES)}
    while True:
        trainer.train()
        known.add(values())
        known.pop()
        yield
