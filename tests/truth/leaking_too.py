"""More real loops that leak: see leaking.py."""

from __future__ import annotations

import copy
import functools
import heapq
import itertools
import logging
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from typing import Any

import torch

from tests.truth.leak_loop import GRAPH, METRICS, OUTPUTS, Trainer, batch, leaks

SAMPLES = 64


@leaks("step")
def a_set_of_results() -> Iterator[None]:
    trainer, seen = Trainer(), set[Any]()

    def step() -> None:
        trainer.train()
        seen.add(torch.rand(128, 128).sort().values)

    while True:
        step()
        yield


@leaks("step")
def lists_by_class() -> Iterator[None]:
    trainer, by_class = Trainer(), defaultdict[int, list[Any]](list)

    def step(number: int) -> None:
        trainer.train()
        by_class[number % 5].append(torch.rand(128, 64))

    for number in itertools.count():
        step(number)
        yield


@leaks("step")
def deque_without_a_bound() -> Iterator[None]:
    trainer, last = Trainer(), deque[Any]()

    def step() -> None:
        trainer.train()
        last.append(torch.rand(128, 128))

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


@leaks("step")
def arrays_that_share_memory() -> Iterator[None]:
    trainer, arrays = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        with torch.no_grad():
            arrays.append((batch() * 2).numpy())

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


@leaks("remember step", cause=OUTPUTS)
def an_attribute_for_each_step() -> Iterator[None]:
    trainer = Trainer()

    def remember(number: int) -> None:
        with torch.no_grad():
            setattr(trainer, f"output_{number}", trainer.model[0](batch()))

    for number in itertools.count():
        trainer.train()
        remember(number)
        yield


@leaks("step")
def a_buffer_for_each_step() -> Iterator[None]:
    trainer = Trainer()

    def step(number: int) -> None:
        trainer.train()
        trainer.model.register_buffer(f"cache_{number}", torch.rand(128, 128))

    for number in itertools.count():
        step(number)
        yield


@leaks("step")
def partial_functions() -> Iterator[None]:
    trainer, later = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        later.append(functools.partial(torch.add, torch.rand(128, 128)))

    while True:
        step()
        yield


@leaks("step", cause=METRICS | GRAPH)
def log_records_keep_tensors() -> Iterator[None]:
    trainer, log = Trainer(), logging.getLogger("tests.truth")
    handler = MemoryHandler(10**9, flushLevel=100)
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.INFO)

    def step() -> None:
        trainer.train()
        log.info("histogram %s", torch.rand(4096).histc(2048))

    try:
        while True:
            step()
            yield
    finally:
        handler.buffer.clear()


@leaks("step encode")
def memo_by_identity() -> Iterator[None]:
    trainer, memo = Trainer(), dict[int, Any]()

    def encode(values: Any) -> Any:
        memo[id(values)] = (values, values.cos())
        return memo[id(values)][1]

    while True:
        trainer.train(encode(batch()))
        yield


@leaks("step batches")
def one_half_of_a_tee_is_never_read() -> Iterator[None]:
    trainer = Trainer()

    def batches() -> Iterator[Any]:
        while True:
            yield torch.rand(SAMPLES, 64)

    read, unread = itertools.tee(batches())
    for values in read:
        trainer.train(values)
        yield
    assert unread


@leaks("forward step", cause=GRAPH)
def results_of_a_function_with_saved_tensors() -> Iterator[None]:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: Any) -> Any:
            ctx.save_for_backward(inputs.exp())
            return inputs * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * ctx.saved_tensors[0]

    trainer, kept = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        kept.append(Scale.apply(trainer.model(batch())).mean())

    while True:
        step()
        yield


@leaks("log step train", cause=GRAPH)
def a_writer_with_losses() -> Iterator[None]:
    trainer, written = Trainer(), list[Any]()

    def log(number: int, value: Any) -> None:
        written.append((number, value))

    for number in itertools.count():
        trainer.train()
        log(number, trainer.loss(batch()))
        yield


@leaks("step")
def old_optimizers_are_kept() -> Iterator[None]:
    trainer, old = Trainer(), list[Any]()

    def step() -> None:
        optimizer = torch.optim.Adam(trainer.model.parameters())
        trainer.train()
        optimizer.step()
        old.append(optimizer)

    while True:
        step()
        yield


@leaks("step")
def models_of_each_step() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        kept.append(copy.deepcopy(trainer.model))

    while True:
        step()
        yield


@leaks("step")
def ordered_dict_that_forgets_to_drop() -> Iterator[None]:
    trainer, cache = Trainer(), OrderedDict[int, Any]()

    def step(number: int) -> None:
        trainer.train()
        cache[number] = torch.rand(128, 128)
        cache.move_to_end(number)

    for number in itertools.count():
        step(number)
        yield


@leaks("step", cause=GRAPH)
def graph_retained_for_a_second_pass() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def step() -> None:
        loss = trainer.loss(batch())
        loss.backward(retain_graph=True)
        trainer.optimizer.step()
        kept.append(loss)

    while True:
        step()
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
