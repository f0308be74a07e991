"""Services that answer requests: queues, caches, sessions, logs and timeouts."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import warnings
from collections import defaultdict, deque
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from typing import Any

import torch

from tests.truth.loops.loop import NO_USUAL, OUTPUTS, Trainer, answer_of, batch, healthy, leaks


@leaks("answer", cause=OUTPUTS)
def audit_log_of_logits() -> Iterator[None]:
    """A service notes each request with its logits, so as to look into complaints."""
    trainer, log = Trainer(), list[dict[str, Any]]()

    def answer(request: int) -> Any:
        with torch.inference_mode():
            logits = trainer.model(batch())
        tokens = logits.argmax(-1)
        log.append({"request": request, "logits": logits})
        return tokens

    for request in itertools.count():
        answer(request)
        yield


@leaks("submit", cause=OUTPUTS | NO_USUAL)
def clients_that_hang_up() -> Iterator[None]:
    """Answers wait until they are fetched two steps later, but one client of three never asks."""
    trainer, answers = Trainer(), dict[int, Any]()

    def submit(request: int) -> None:
        with torch.inference_mode():
            answers[request] = trainer.model(batch(96))

    def fetch(request: int) -> Any:
        return answers.pop(request, None)

    for request in itertools.count():
        submit(request)
        if (request - 2) % 3:
            fetch(request - 2)
        yield


@leaks("handle step", cause=OUTPUTS | NO_USUAL)
def tasks_wait_for_an_acknowledgement() -> Iterator[None]:
    """It never comes, and there is no timeout."""
    trainer, loop, tasks = Trainer(), asyncio.new_event_loop(), set[Any]()

    async def handle() -> None:
        acknowledged = loop.create_future()
        answer = answer_of(trainer, batch(128))
        await acknowledged
        answer.clone()

    async def step() -> None:
        tasks.add(loop.create_task(handle()))
        await asyncio.sleep(0)

    try:
        while True:
            trainer.train()
            loop.run_until_complete(step())
            yield
    finally:
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()


@leaks("trace_for", cause=NO_USUAL)
def traced_again_for_each_request() -> Iterator[None]:
    """What torch.jit has traced stays in its registry of functions, with the constants in it."""
    trainer = Trainer()

    def trace_for(request: int) -> Any:
        mask = torch.rand(64, 64)
        return torch.jit.trace(lambda inputs: inputs * mask + request, torch.rand(64, 64))

    for number in itertools.count():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = trace_for(number)
        trainer.train(traced(torch.rand(64, 64)))
        yield


@leaks("receive handle", cause=NO_USUAL)
def timeouts_that_are_not_cancelled() -> Iterator[None]:
    """Each request has a timeout of ten minutes in an event loop, also when its answer came at once."""
    trainer, loop, late = Trainer(), asyncio.new_event_loop(), list[int]()

    def receive() -> Any:
        return torch.rand(96, 64)

    def on_timeout(inputs: Any) -> None:
        late.append(len(inputs))

    async def handle(inputs: Any) -> None:
        asyncio.get_running_loop().call_later(600, on_timeout, inputs)
        trainer.train(inputs)

    try:
        while True:
            loop.run_until_complete(handle(receive()))
            yield
    finally:
        loop.close()


@healthy
def answers_are_fetched_some_time_later() -> Iterator[None]:
    """Each client comes back after 1 to 24 steps."""
    trainer, answers, delays = Trainer(), dict[int, Any](), random.Random(0)
    due = defaultdict[int, list[int]](list)
    for now in itertools.count():
        answers[now] = answer_of(trainer, batch())
        due[now + delays.randint(1, 24)].append(now)
        for request in due.pop(now, []):
            answers.pop(request).argmax(-1)
        yield


@healthy
def timeouts_are_cancelled() -> Iterator[None]:
    """A request takes five steps, and then its timeout of ten minutes is taken out of the event loop."""
    trainer, loop, late = Trainer(), asyncio.new_event_loop(), list[int]()
    running = deque[tuple[asyncio.TimerHandle, Any]]()

    def on_timeout(inputs: Any) -> None:
        late.append(len(inputs))

    async def handle(inputs: Any) -> None:
        running.append((asyncio.get_running_loop().call_later(600, on_timeout, inputs), inputs))
        if len(running) > 5:
            timeout, inputs = running.popleft()
            trainer.train(inputs)
            timeout.cancel()

    try:
        while True:
            loop.run_until_complete(handle(torch.rand(96, 64)))
            yield
    finally:
        loop.close()


@healthy
def a_model_is_swapped_while_serving() -> Iterator[None]:
    """New weights come every 27 steps; the old ones stay for three more, for requests that have begun."""
    current, old = Trainer(), None
    for number in itertools.count():
        if number % 27 == 26:
            current, old = Trainer(), current
        if number % 27 == 2:
            old = None
        answer_of(current, batch())
        if old is not None:
            answer_of(old, batch())
        yield


@healthy
def records_are_flushed_by_forty() -> Iterator[None]:
    """A log handler gathers forty records with a histogram each, then writes them."""
    trainer, log = Trainer(), logging.getLogger("tests.truth.services")
    handler = MemoryHandler(40, flushLevel=logging.CRITICAL, target=logging.NullHandler())
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.INFO)
    try:
        while True:
            trainer.train()
            log.info("scores %s", answer_of(trainer, batch()).histc(2048))
            yield
    finally:
        log.removeHandler(handler)
        handler.close()
