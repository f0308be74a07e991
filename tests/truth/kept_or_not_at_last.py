"""What wrappers, registries and the runtime keep, for good or for a while.

These loops were written before any diagnosis of them was seen, and nothing was tuned to them since.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import torch

from tests.truth.leak_loop import GRADIENTS, NO_USUAL, OUTPUTS, Trainer, batch, healthy, leaks


@leaks("calibrate wrapped", cause=NO_USUAL)
def a_forward_that_is_wrapped_again() -> Iterator[None]:
    """Every second step wraps the model's forward with new noise, around the last wrapper."""
    trainer = Trainer()

    def calibrate() -> None:
        forward, noise = trainer.model.forward, 0.01 * torch.randn(96, 64)

        def wrapped(inputs: Any) -> Any:
            return forward(inputs) + noise[: len(inputs)]

        trainer.model.forward = wrapped

    for number in itertools.count():
        if number % 2 == 0:
            calibrate()
        trainer.train()
        yield


@leaks("at_exit", cause=NO_USUAL)
def what_is_saved_at_exit() -> Iterator[None]:
    """Each step asks the interpreter to save a sample when it ends."""
    trainer, saved = Trainer(), list[int]()

    def save(sample: Any) -> None:
        saved.append(len(sample))

    def at_exit(sample: Any) -> None:
        atexit.register(save, sample)

    try:
        while True:
            trainer.train()
            at_exit(torch.rand(48, 64))
            yield
    finally:
        atexit.unregister(save)


@leaks("logger_for", cause=NO_USUAL)
def a_logger_for_each_request() -> Iterator[None]:
    """logging never forgets a logger, and a filter of each has the request with its inputs."""
    trainer, names = Trainer(), list[str]()

    class WithRequest(logging.Filter):
        def __init__(self, inputs: Any) -> None:
            super().__init__()
            self.inputs = inputs

        def filter(self, record: logging.LogRecord) -> bool:
            record.rows = len(self.inputs)
            return True

    def logger_for(number: int, inputs: Any) -> logging.Logger:
        names.append(f"serving.request.{number}")
        logger = logging.getLogger(names[-1])
        logger.addFilter(WithRequest(inputs))
        return logger

    try:
        for number in itertools.count():
            inputs = torch.rand(64, 64)
            logger_for(number, inputs).debug("begins")
            trainer.train(inputs)
            yield
    finally:
        for name in names:
            logging.Logger.manager.loggerDict.pop(name, None)


@leaks("reduce", cause=GRADIENTS | NO_USUAL)
def handles_of_reductions_are_not_waited_for() -> Iterator[None]:
    """Each flattened bucket of gradients has a handle; finish() waits for those of the last step only."""

    class Handle:
        def __init__(self, bucket: Any) -> None:
            self.bucket, self.done = bucket, False

        def wait(self) -> None:
            self.done = True

    trainer, handles = Trainer(), list[Handle]()

    def reduce() -> None:
        parts = [one.grad.flatten() for one in trainer.model.parameters() if one.grad is not None]
        handles.append(Handle(torch.cat(parts)))

    while True:
        trainer.train()
        reduce()
        handles[-1].wait()
        yield


@leaks("predict record", cause=OUTPUTS)
def a_table_of_predictions_as_columns() -> Iterator[None]:
    """A logger's table has a list for each column; it is logged, but never emptied."""
    trainer = Trainer()
    table: dict[str, list[Any]] = {"step": [], "prediction": [], "largest": []}

    def record(number: int, prediction: Any) -> None:
        for name, value in zip(table, (number, prediction, float(prediction.max())), strict=True):
            table[name].append(value)

    @torch.no_grad()
    def predict() -> Any:
        return trainer.model(batch())

    for number in itertools.count():
        trainer.train()
        record(number, predict())
        yield


@leaks("requeue", cause=NO_USUAL)
def hard_samples_are_chained_to_the_stream() -> Iterator[None]:
    """Each step takes one sample from the stream and puts two more behind it."""
    trainer, stream = Trainer(), iter([torch.rand(48, 64), torch.rand(48, 64)])

    def requeue(stream: Iterator[Any]) -> Iterator[Any]:
        return itertools.chain(stream, iter([torch.rand(48, 64), torch.rand(48, 64)]))

    while True:
        sample = next(stream)
        trainer.train(sample)
        stream = requeue(stream)
        yield


@leaks("make_view __init__", cause=NO_USUAL)
def bound_methods_as_callbacks() -> Iterator[None]:
    """A scheduler calls what subscribed to the end of the epoch: a method of each step's augmenter."""
    trainer, at_end = Trainer(), list[Callable[[], Any]]()

    class Augmenter:
        def __init__(self) -> None:
            self.noise = torch.rand(64, 64)

        def reset(self) -> None:
            self.noise.zero_()

        def __call__(self, inputs: Any) -> Any:
            return inputs + self.noise

    def make_view() -> Augmenter:
        augmenter = Augmenter()
        at_end.append(augmenter.reset)
        return augmenter

    while True:
        trainer.train(make_view()(torch.rand(64, 64)))
        yield


@leaks("branch", cause=NO_USUAL)
def branches_that_lost_are_kept() -> Iterator[None]:
    """Population based training copies the best weights, and keeps a record of each trial with them."""
    trainer, trials = Trainer(), list[dict[str, Any]]()

    def branch(number: int) -> dict[str, Any]:
        weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        return {"parent": trials[-1] if trials else None, "number": number, "weights": weights}

    for number in itertools.count():
        trainer.train()
        trials[:] = [branch(number)]
        yield


@healthy
def results_come_out_of_order() -> Iterator[None]:
    """Workers are done after 1 to 9 steps; what is done waits until all before it are."""
    trainer, chance = Trainer(), random.Random(0)
    working, done, wanted = list[tuple[int, int, Any]](), dict[int, Any](), 0
    for number in itertools.count():
        heapq.heappush(working, (number + chance.randint(1, 9), number, torch.rand(64, 64)))
        while working and working[0][0] <= number:
            _, which, result = heapq.heappop(working)
            done[which] = result
        while wanted in done:
            trainer.train(done.pop(wanted))
            wanted += 1
        trainer.train()
        yield


@healthy
def bins_of_packed_sequences() -> Iterator[None]:
    """A sequence goes into the first of six bins with room; of full ones, the fullest is trained on."""
    trainer, bins, chance = Trainer(), [list[Any]() for _ in range(6)], random.Random(0)
    while True:
        sequence = torch.rand(chance.randint(20, 120), 64)
        room = [one for one in bins if sum(map(len, one)) + len(sequence) <= 256]
        if not room:
            fullest = max(bins, key=lambda one: sum(map(len, one)))
            trainer.train(torch.cat(fullest))
            fullest.clear()
            room = [fullest]
        room[0].append(sequence)
        trainer.train()
        yield


@healthy
def properties_cached_on_batches() -> Iterator[None]:
    """Each batch caches what is derived from it, and three are in flight."""

    class Batch:
        def __init__(self) -> None:
            self.inputs = torch.rand(64, 64)

        @cached_property
        def normalized(self) -> Any:
            return (self.inputs - self.inputs.mean()) / self.inputs.std()

    trainer, flight = Trainer(), deque(Batch() for _ in range(3))
    while True:
        flight.append(Batch())
        trainer.train(flight[-1].normalized)
        flight.popleft()
        yield


@healthy
def images_that_know_their_original() -> Iterator[None]:
    """An attack goes on from its last image, and each has the first one as an attribute."""
    trainer, original = Trainer(), torch.rand(64, 64)
    image = original
    while True:
        image = (image + 0.01 * torch.randn_like(image)).clamp(0, 1)
        image.source = original
        trainer.train(image)
        yield


@healthy
def a_sweep_over_learning_rates() -> Iterator[None]:
    """Weights of each of 26 rates are kept until the best are put back, then all are dropped."""
    trainer, tried = Trainer(), list[tuple[float, list[Any]]]()
    for number in itertools.count(1):
        trainer.train()
        weights = [one.detach().clone() for one in trainer.model.parameters()]
        tried.append((float(torch.rand(())), weights))
        if number % 26 == 0:
            best = min(tried, key=lambda one: one[0])[1]
            with torch.no_grad():
                for one, value in zip(trainer.model.parameters(), best, strict=True):
                    one.copy_(value)
            tried.clear()
        yield


@healthy
def a_short_memory_that_all_agents_share() -> Iterator[None]:
    """A deque of the class with room for 24 states, and three more in each step."""

    class Agent:
        memory: ClassVar[deque[Any]] = deque(maxlen=24)

        def play(self) -> None:
            self.memory.extend(torch.rand(16, 64) for _ in range(3))

    trainer = Trainer()
    while True:
        agent = Agent()
        agent.play()
        trainer.train(torch.cat(list(agent.memory)[-3:]))
        yield


@healthy
def second_gradients_within_a_step() -> Iterator[None]:
    """A fast copy of a weight is adapted three times with create_graph=True, and goes with the step."""
    weight = torch.rand(64, 64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    while True:
        fast = weight.clone()
        for _ in range(3):
            (gradient,) = torch.autograd.grad((batch() @ fast).square().mean(), [fast], create_graph=True)
            fast = fast - 0.1 * gradient
        optimizer.zero_grad()
        (batch() @ fast).square().mean().backward()
        optimizer.step()
        yield


@healthy
def a_callback_that_unsubscribes() -> Iterator[None]:
    """Each step's augmenter subscribes to the end of the step, is called there, and is taken out."""
    trainer, at_end = Trainer(), list[Callable[[], Any]]()

    class Augmenter:
        def __init__(self) -> None:
            self.noise = torch.rand(64, 64)
            at_end.append(self.reset)

        def reset(self) -> None:
            at_end.remove(self.reset)

    while True:
        augmenter = Augmenter()
        trainer.train(torch.rand(64, 64) + augmenter.noise)
        for callback in list(at_end):
            callback()
        yield
