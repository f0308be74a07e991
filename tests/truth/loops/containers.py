"""What lists, dicts, queues and caches of Python hold: for good, or up to a bound."""

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

import numpy as np
import torch

from tests.truth.loops.loop import (
    METRICS,
    NO_USUAL,
    SAMPLES,
    Convolutions,
    Trainer,
    batch,
    healthy,
    images,
    leaks,
    values,
)


@leaks("step")
def replay_without_a_bound() -> Iterator[None]:
    trainer, memory = Trainer(), list[Any]()

    def step() -> None:
        state = torch.rand(SAMPLES, 64)
        trainer.train(state)
        memory.append((state, state.argmax(dim=1)))

    while True:
        step()
        yield


@leaks("step")
def heap_of_priorities() -> Iterator[None]:
    trainer, heap = Trainer(), list[Any]()

    def step(number: int) -> None:
        trainer.train()
        heapq.heappush(heap, (-number, torch.rand(128, 128)))

    for number in itertools.count():
        step(number)
        yield


@leaks("look_up step")
def unbounded_lru_cache() -> Iterator[None]:
    @functools.cache
    def look_up(number: int) -> Any:
        return torch.rand(128, 128) + number

    trainer = Trainer()

    def step(number: int) -> None:
        trainer.train()
        look_up(number)

    for number in itertools.count():
        step(number)
        yield


@leaks("step")
def two_in_and_one_out() -> Iterator[None]:
    """A queue that grows slowly: two entries come, one goes."""
    trainer, waiting = Trainer(), deque[Any]()

    def step() -> None:
        trainer.train()
        waiting.append(torch.rand(128, 128))
        waiting.append(torch.rand(128, 128))
        waiting.popleft()

    while True:
        step()
        yield


@leaks("step", cause=METRICS)
def queue_that_nobody_reads() -> Iterator[None]:
    trainer, waiting = Trainer(), queue.Queue[Any]()

    def step() -> None:
        trainer.train()
        waiting.put(torch.rand(64, 32).cumsum(0))

    while True:
        step()
        yield


@leaks("step")
def a_chain_of_nodes() -> Iterator[None]:
    trainer, last = Trainer(), None

    def step() -> None:
        nonlocal last
        trainer.train()
        last = (torch.rand(128, 128), last)

    while True:
        step()
        yield


@leaks("step batches")
def one_half_of_a_tee_is_never_read() -> Iterator[None]:
    trainer = Trainer()

    def batches() -> Iterator[Any]:
        while True:
            yield torch.rand(SAMPLES, 64)

    read, unread = itertools.tee(batches())
    for entry in read:
        trainer.train(entry)
        yield
    assert unread


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


@leaks("play", cause=NO_USUAL)
def episodes_in_an_array_of_objects() -> Iterator[None]:
    """A NumPy array of objects has room for all episodes that will ever be played."""
    trainer, episodes = Trainer(), np.empty(100_000, dtype=object)

    def play() -> Any:
        return torch.rand(48, 64)

    for number in itertools.count():
        episodes[number] = play()
        trainer.train(episodes[random.Random(number).randrange(number + 1)])
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


FEW = 8


@healthy
def a_ring_by_assignment() -> Iterator[None]:
    trainer, ring = Trainer(), [values() for _ in range(FEW)]
    for number in itertools.count():
        trainer.train()
        ring[number % FEW] = values()
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
def a_deque_of_64() -> Iterator[None]:
    trainer, last = Trainer(), deque((values() for _ in range(64)), maxlen=64)
    while True:
        trainer.train()
        last.append(values())
        yield


@healthy
def bounded_lru_cache() -> Iterator[None]:
    @functools.lru_cache(maxsize=FEW)
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
def a_heap_with_a_bound() -> Iterator[None]:
    trainer, heap = Trainer(), [(number, values()) for number in range(-64, 0)]
    heapq.heapify(heap)
    for number in itertools.count():
        trainer.train()
        heapq.heappushpop(heap, (number, values()))
        yield


@healthy
def weak_references() -> Iterator[None]:
    trainer, seen = Trainer(), list[Any]()
    while True:
        trainer.train()
        result = values()
        seen.append(weakref.ref(result))
        yield


ENTRIES = 64


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
def older_half_is_dropped_now_and_then() -> Iterator[None]:
    trainer, kept = Trainer(), [values() for _ in range(ENTRIES)]
    while True:
        trainer.train()
        kept.append(values())
        if len(kept) >= 2 * ENTRIES:
            del kept[:ENTRIES]
        yield


@healthy
def snapshots_at_powers_of_two() -> Iterator[None]:
    """Weights are copied after 1, 2, 4, 8, 16 steps and so on, to see how they change."""
    trainer, snapshots = Convolutions(), dict[int, Any]()
    for number in itertools.count(1):
        trainer.train(images())
        if number & (number - 1) == 0:
            snapshots[number] = copy.deepcopy(trainer.model.state_dict())
        yield


@healthy
def a_cache_with_room_for_a_megabyte() -> Iterator[None]:
    """Images of very different sizes; the oldest go until the new one has room."""
    trainer, images, chance = Trainer(), OrderedDict[int, Any](), random.Random(0)
    used = 0
    for number in itertools.count():
        image = torch.rand(chance.choice([16, 64, 64, 128, 512]), 64)
        while used + image.nbytes > 1 << 20:
            used -= images.popitem(last=False)[1].nbytes
        images[number] = image
        used += image.nbytes
        trainer.train(image)
        yield
