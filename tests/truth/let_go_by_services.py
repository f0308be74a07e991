"""What services and trainers keep around a model only for a while.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import random
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from typing import Any

import torch

from tests.truth.kept_by_services import answer_of
from tests.truth.leak_loop import (
    Trainer,
    batch,
    healthy,
)


@healthy
def batches_by_token_budget() -> Iterator[None]:
    """Requests of 40 to 100 tokens wait until they are 300 together."""
    trainer, waiting, lengths = Trainer(), list[Any](), itertools.cycle((40, 100, 60, 80, 70))
    for length in lengths:
        waiting.append(batch(length))
        if sum(len(one) for one in waiting) >= 300:
            answer_of(trainer, torch.cat(waiting)).split([len(one) for one in waiting])
            waiting = []
        yield


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
def a_janitor_sweeps_old_entries() -> Iterator[None]:
    """Every 14 steps it deletes what is older than 14 steps."""
    trainer, cache = Trainer(), dict[int, Any]()

    def sweep(now: int) -> None:
        for key in [key for key, (made, _) in cache.items() if now - made >= 14]:
            del cache[key]

    for now in itertools.count():
        cache[now] = now, torch.rand(96, 64)
        trainer.train(cache[now][1])
        if now % 14 == 13:
            sweep(now)
        yield


@healthy
def blocks_go_back_to_their_pool() -> Iterator[None]:
    """Six requests run at a time, each for 2 to 12 steps, done or cancelled."""
    trainer, free, lengths = Trainer(), list[Any](), random.Random(1)
    running = list[tuple[int, list[Any]]]()

    def take() -> Any:
        return free.pop() if free else torch.empty(64, 64)

    for number in itertools.count():
        if len(running) < 6:
            running.append((number + lengths.randint(2, 12), []))
        for _, blocks in running:
            blocks.append(take())
            blocks[-1].copy_(answer_of(trainer, batch()))
        for end, blocks in running:
            if end <= number:
                free.extend(blocks)
        running = [(end, blocks) for end, blocks in running if end > number]
        yield


@healthy
def sessions_unsubscribe() -> Iterator[None]:
    """Five are open at a time."""
    trainer, subscribers = Trainer(), dict[int, Any]()

    def on_progress(state: Any, step: int) -> None:
        state[step % len(state)] = step

    for number in itertools.count():
        subscribers[number] = functools.partial(on_progress, torch.zeros(128, 64))
        trainer.train()
        for tell in subscribers.values():
            tell(number)
        if number >= 5:
            del subscribers[number - 5]
        yield


@healthy
def a_finite_list_of_tenants() -> Iterator[None]:
    """Nine tenants, each with a cache of four entries, ask for any of ten items."""

    def embed_for() -> Any:
        @functools.lru_cache(maxsize=4)
        def embed(item: int) -> Any:
            return torch.rand(64, 64) + item

        return embed

    trainer, chance, caches = Trainer(), random.Random(2), [embed_for() for _ in range(9)]
    while True:
        for _ in range(3):
            trainer.train(chance.choice(caches)(chance.randrange(10)))
        yield


@healthy
def a_queue_with_backpressure() -> Iterator[None]:
    """Who fills it waits when there are eight in it."""
    trainer, loop = Trainer(), asyncio.new_event_loop()
    waiting = asyncio.Queue[Any](maxsize=8)

    async def produce() -> None:
        while True:
            await waiting.put(batch(128))

    producer = loop.create_task(produce())
    try:
        while True:
            trainer.train(loop.run_until_complete(waiting.get()))
            yield
    finally:
        producer.cancel()
        loop.run_until_complete(asyncio.gather(producer, return_exceptions=True))
        loop.close()


@healthy
def a_failed_request_is_tried_again() -> Iterator[None]:
    """Every third fails, is kept with its error, and is done in the next step."""
    trainer, failed = Trainer(), list[Any]()

    def handle(number: int, inputs: Any) -> Any:
        hidden = trainer.model[0](inputs)
        if number % 3 == 0:
            raise TimeoutError(f"request {number}")
        return trainer.model[2](hidden)

    for number in itertools.count():
        inputs = batch(128)
        for _, again in failed:
            handle(1, again).mean().backward()
        failed.clear()
        try:
            handle(number, inputs).mean().backward()
        except TimeoutError as error:
            failed.append((error, inputs))
        yield


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


@healthy
def requests_in_flight_by_weak_reference() -> Iterator[None]:
    """A registry knows all of them by number, and forgets those that are done: six are in flight."""

    class Request:
        def __init__(self, inputs: Any) -> None:
            self.inputs = inputs

    trainer, in_flight = Trainer(), deque[Request]()
    registry = weakref.WeakValueDictionary[int, Request]()
    for number in itertools.count():
        request = Request(batch(128))
        registry[number] = request
        in_flight.append(request)
        if len(in_flight) > 6:
            answer_of(trainer, in_flight.popleft().inputs)
        yield


@healthy
def attention_sinks_and_a_window() -> Iterator[None]:
    """The keys of an endless stream: the first 16 and the last 256."""
    trainer, keys = Trainer(), torch.empty(0, 64)
    while True:
        keys = torch.cat([keys, answer_of(trainer, batch(16))])
        if len(keys) > 272:
            keys = torch.cat([keys[:16], keys[-256:]])
        (answer_of(trainer, batch(16)) @ keys.T).softmax(-1) @ keys
        yield


@healthy
def a_sketch_is_compressed() -> Iterator[None]:
    """Scores for percentiles are joined, and made 512 again when there are more than 20000."""
    trainer, scores, levels = Trainer(), torch.empty(0), torch.linspace(0, 1, 512)
    while True:
        trainer.train()
        scores = torch.cat([scores, answer_of(trainer, batch(48)).flatten()])
        if len(scores) > 20000:
            scores = scores.quantile(levels)
        yield


@healthy
def streams_are_read_to_their_end() -> Iterator[None]:
    """Each step opens one; each gives six chunks, one a step."""
    trainer, streams = Trainer(), list[Iterator[Any]]()

    def chunks() -> Iterator[Any]:
        state = batch()
        for _ in range(6):
            state = answer_of(trainer, state)
            yield state

    while True:
        trainer.train()
        streams.append(chunks())
        streams = [stream for stream in streams if next(stream, None) is not None]
        yield
