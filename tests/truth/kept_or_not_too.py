"""More real loops that leak or do not, written and diagnosed after all others were mended. See leaking.py."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import torch

from tests.truth.leak_loop import GRAPH, OUTPUTS, Trainer, healthy, leaks
from tests.truth.not_leaking import values

ENTRIES = 50


@leaks("track step train", cause=GRAPH)
def smoothed_loss_in_a_class() -> Iterator[None]:
    class Track:
        def __init__(self) -> None:
            self.total = torch.zeros(())

        def track(self, value: Any) -> None:
            self.total = self.total + value

    trainer, smoothed = Trainer(), Track()
    while True:
        trainer.train()
        smoothed.track(trainer.loss(torch.rand(64, 64)))
        yield


@leaks("add step")
def a_priority_buffer_in_a_class() -> Iterator[None]:
    class Buffer:
        def __init__(self) -> None:
            self.heap: list[Any] = []

        def add(self, number: int) -> None:
            heapq.heappush(self.heap, (number, values()))

    trainer, buffer = Trainer(), Buffer()
    for number in itertools.count():
        trainer.train()
        buffer.add(number)
        yield


@leaks("remember step", cause=OUTPUTS | GRAPH)
def a_hook_keeps_hidden_states() -> Iterator[None]:
    trainer, seen = Trainer(), list[Any]()

    def remember(_module: Any, _inputs: Any, output: Any) -> None:
        seen.append(output.detach())

    trainer.model[1].register_forward_hook(remember)
    while True:
        trainer.train()
        yield


@leaks("step")
def pseudo_labels() -> Iterator[None]:
    trainer, kept = Trainer(), dict[int, Any]()

    def step(number: int) -> None:
        trainer.train()
        with torch.no_grad():
            kept[number] = torch.rand(256, 64).softmax(1)

    for number in itertools.count():
        step(number)
        yield


@leaks("step")
def a_history_to_undo() -> Iterator[None]:
    trainer, undo, redo = Trainer(), deque[Any](), deque[Any]()

    def step() -> None:
        trainer.train()
        undo.append([parameter.detach().clone() for parameter in trainer.model.parameters()])
        if len(undo) % 3 == 0:
            redo.append(undo.pop())

    while True:
        step()
        yield


@leaks("step collect")
def a_list_extended_with_pieces() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def collect() -> None:
        kept.extend(torch.rand(64, 64).split(16))

    def step() -> None:
        trainer.train()
        collect()

    while True:
        step()
        yield


@healthy
def a_window_in_a_class() -> Iterator[None]:
    class Window:
        def __init__(self) -> None:
            self.last = deque(values() for _ in range(ENTRIES))

        def push(self, value: Any) -> None:
            self.last.append(value)
            if len(self.last) > ENTRIES:
                self.last.popleft()

    trainer, window = Trainer(), Window()
    while True:
        trainer.train()
        window.push(values())
        yield


@healthy
def two_buffers_in_turn() -> Iterator[None]:
    trainer, one, other = Trainer(), values(), values()
    while True:
        trainer.train()
        one, other = other, values()
        yield
        assert one is not other


@healthy
def a_pool_that_is_lent_from() -> Iterator[None]:
    trainer, free = Trainer(), [values() for _ in range(ENTRIES)]

    def take() -> Any:
        return free.pop()

    def give(value: Any) -> None:
        free.append(value)

    while True:
        taken = take()
        trainer.train()
        give(values())
        yield
        del taken


@healthy
def a_cache_that_evicts_in_a_method() -> Iterator[None]:
    class Cache:
        def __init__(self) -> None:
            self.entries = OrderedDict((number, values()) for number in range(-ENTRIES, 0))

        def put(self, key: int, value: Any) -> None:
            self.entries[key] = value
            self.evict()

        def evict(self) -> None:
            while len(self.entries) > ENTRIES:
                self.entries.popitem(last=False)

    trainer, cache = Trainer(), Cache()
    for number in itertools.count():
        trainer.train()
        cache.put(number, values())
        yield


@healthy
def a_ring_of_fifty_by_assignment() -> Iterator[None]:
    trainer, ring = Trainer(), [values() for _ in range(ENTRIES)]
    for number in itertools.count():
        trainer.train()
        ring[number % ENTRIES] = values()
        yield


@healthy
def hooks_of_a_context() -> Iterator[None]:
    class Watching:
        def __init__(self, module: Any) -> None:
            self.module, self.seen = module, list[Any]()

        def __enter__(self) -> None:
            self.hook = self.module.register_forward_hook(lambda *given: self.seen.append(given[-1]))

        def __exit__(self, *_: object) -> None:
            self.hook.remove()

    trainer = Trainer()
    while True:
        with Watching(trainer.model[0]):
            trainer.train()
        yield
