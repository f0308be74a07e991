"""Real loops that keep things for a while: rings, caches with a bound, lists that are cleared."""

from __future__ import annotations

import functools
import heapq
import itertools
import queue
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import torch

from tests.truth.leak_loop import Trainer, batch, healthy

ENTRIES = 8


def values() -> Any:
    return torch.rand(128, 128)


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
        trainer.train(waiting.get())
        yield


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
