"""What services and trainers keep around a model, for good.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from tests.truth.leak_loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    METRICS,
    NO_USUAL,
    OUTPUTS,
    Trainer,
    batch,
    leaks,
)


def answer_of(trainer: Trainer, inputs: Any) -> Any:
    with torch.inference_mode():
        return trainer.model(inputs)


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


@leaks("attend", cause=OUTPUTS | NO_USUAL)
def a_default_argument_collects_attention() -> Iterator[None]:
    """What was meant as a list for each call is one for all calls."""
    trainer, query = Trainer(), nn.Linear(64, 64)

    def attend(inputs: Any, maps: list[Any] = []) -> Any:  # noqa: B006
        with torch.no_grad():
            maps.append((query(inputs) @ inputs.T / 8).softmax(-1))
            return maps[-1] @ inputs

    while True:
        trainer.train(attend(batch()))
        yield


@leaks("increment evaluate", cause=METRICS | NO_USUAL)
def a_tracker_copies_its_metric() -> Iterator[None]:
    """It begins a copy of the metric with each evaluation and has them all, so as to know the best."""
    trainer, metric, tracked = Trainer(), {"correlation": torch.zeros(64, 64)}, list[Any]()

    def increment() -> dict[str, Any]:
        tracked.append(copy.deepcopy(metric))
        return tracked[-1]

    def evaluate() -> None:
        current = increment()
        for _ in range(3):
            outputs = answer_of(trainer, batch())
            current["correlation"] += outputs.T @ outputs

    while True:
        trainer.train()
        evaluate()
        yield


@leaks("step loss", cause=GRAPH)
def losses_of_skipped_steps() -> Iterator[None]:
    """Every third batch is broken; its step is skipped, and listed with its loss for the end of the run."""
    trainer, skipped = Trainer(), list[Any]()

    def step(number: int) -> None:
        inputs = batch(192)
        if number % 3 == 0:
            inputs[0, 0] = torch.nan
        trainer.optimizer.zero_grad()
        loss = trainer.loss(inputs)
        if not loss.isfinite():
            skipped.append((number, loss))
            return
        loss.backward()
        trainer.optimizer.step()

    for number in itertools.count():
        step(number)
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


@leaks("compress step", cause=GRADIENTS | NO_USUAL)
def residuals_of_each_bucket() -> Iterator[None]:
    """What compression leaves out is kept for the next step, but by a number that never comes again."""
    trainer, residuals, buckets = Trainer(), dict[int, Any](), itertools.count()

    def compress(gradient: Any) -> Any:
        bucket = next(buckets)
        gradient = gradient + residuals.get(bucket, 0)
        sent = gradient * (gradient.abs() > gradient.abs().mean())
        residuals[bucket] = gradient - sent
        return sent

    def step() -> None:
        trainer.optimizer.zero_grad()
        trainer.loss(batch()).backward()
        for parameter in trainer.model.parameters():
            parameter.grad = compress(parameter.grad)
        trainer.optimizer.step()

    while True:
        step()
        yield


@leaks("features", cause=GROWING | NO_USUAL)
def entries_expire_only_when_asked_for() -> Iterator[None]:
    """A user stays for three steps; five steps later the entry is too old, but nobody looks at it."""
    trainer, cache = Trainer(), dict[int, Any]()

    def features(user: int, now: int) -> Any:
        if user in cache and now - cache[user][0] > 5:
            del cache[user]
        if user not in cache:
            cache[user] = now, torch.rand(64, 64)
        return cache[user][1]

    for now in itertools.count():
        for user in (now, now + 1, now + 2):
            trainer.train(features(user, now))
        yield


@leaks("grow", cause=GROWING | NO_USUAL)
def blocks_of_cancelled_requests() -> Iterator[None]:
    """Blocks go back to their pool when a request is done, but not those of the fourth that is cancelled."""
    trainer, free, running = Trainer(), list[Any](), list[int]()
    owned = defaultdict[int, list[Any]](list)

    def grow(request: int) -> None:
        block = free.pop() if free else torch.empty(64, 64)
        block.copy_(answer_of(trainer, batch()))
        owned[request].append(block)

    def finish(request: int) -> None:
        free.extend(owned.pop(request))

    for number in itertools.count():
        running.append(number)
        for request in running:
            grow(request)
        if len(running) == 4:
            oldest = running.pop(0)
            if oldest % 4:
                finish(oldest)
        yield


@leaks("connect", cause=NO_USUAL)
def unsubscribed_with_another_partial() -> Iterator[None]:
    """Two partials of the same function are not equal, so that no subscriber is ever taken out."""
    trainer, subscribers = Trainer(), list[Any]()

    def on_progress(state: Any, step: int) -> None:
        state[step % len(state)] = step

    def connect() -> Any:
        state = torch.zeros(128, 64)
        subscribers.append(functools.partial(on_progress, state))
        return state

    def disconnect(state: Any) -> None:
        with suppress(ValueError):
            subscribers.remove(functools.partial(on_progress, state))

    for number in itertools.count():
        state = connect()
        trainer.train()
        for tell in subscribers[-4:]:
            tell(number)
        disconnect(state)
        yield


@leaks("embed embed_for handle", cause=GROWING | NO_USUAL)
def a_bounded_cache_for_each_tenant() -> Iterator[None]:
    """Each has at most four entries, but after four requests comes a new tenant."""
    trainer, caches = Trainer(), dict[str, Any]()

    def embed_for(tenant: str) -> Any:
        @functools.lru_cache(maxsize=4)
        def embed(item: int) -> Any:
            return torch.rand(64, 64) + item

        return caches.setdefault(tenant, embed)

    def handle(number: int) -> None:
        tenant = f"tenant-{number // 4}"
        embed = caches.get(tenant) or embed_for(tenant)
        trainer.train(embed(number % 4))
        embed(number % 2)

    for number in itertools.count():
        handle(number)
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


@leaks("handle", cause=NO_USUAL)
def spans_keep_their_contexts() -> Iterator[None]:
    """A tracer has the context of each request until it can send them, and it has no address to send to."""
    trainer, spans = Trainer(), list[Any]()
    request = contextvars.ContextVar[Any]("request")

    def handle() -> None:
        request.set(torch.rand(160, 64))
        trainer.train(request.get())

    for number in itertools.count():
        context = contextvars.copy_context()
        context.run(handle)
        spans.append((f"request {number}", context))
        yield
