"""What issues and forum threads report that training and serving keep, for good.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.truth.leak_loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    NO_USUAL,
    OUTPUTS,
    Trainer,
    batch,
    leaks,
)


def new_points(count: int = 64) -> Any:
    return nn.Parameter(torch.rand(count, 64))


def fit_points(optimizer: Any, points: Any) -> None:
    optimizer.zero_grad()
    points.square().mean().backward()
    optimizer.step()


@leaks("snapshot save", cause=NO_USUAL)
def uploads_that_never_end() -> Iterator[None]:
    """A thread uploads each checkpoint, and waits for an answer that nobody sends."""
    trainer, answered = Trainer(), threading.Event()

    def upload(weights: list[Any]) -> None:
        answered.wait()
        weights.clear()

    def snapshot() -> list[Any]:
        return [one.detach().clone() for one in trainer.model.parameters()]

    def save() -> None:
        threading.Thread(target=upload, args=(snapshot(),), daemon=True).start()

    try:
        while True:
            trainer.train()
            save()
            yield
    finally:
        answered.set()


@leaks("densify new_points fit_points", cause=GRADIENTS | NO_USUAL)
def state_of_points_that_were_replaced() -> Iterator[None]:
    """Splatting puts new points into the optimizer, which still has the state of the old ones."""
    points = new_points()
    optimizer = torch.optim.Adam([points], lr=0.01)

    def densify() -> Any:
        fresh = new_points()
        optimizer.param_groups[0]["params"] = [fresh]
        return fresh

    while True:
        fit_points(optimizer, points)
        points = densify()
        yield


@leaks("averaged", cause=NO_USUAL)
def weights_that_are_not_swapped_back() -> Iterator[None]:
    """A context puts averaged weights in and the others on a stack; an error leaves them there."""
    trainer, stack = Trainer(), list[list[Any]]()
    parameters = list(trainer.model.parameters())
    averages = [one.detach().clone() for one in parameters]

    @contextmanager
    def averaged() -> Iterator[None]:
        stack.append([one.detach().clone() for one in parameters])
        for one, average in zip(parameters, averages, strict=True):
            one.data.copy_(average)
        yield
        for one, old in zip(parameters, stack.pop(), strict=True):
            one.data.copy_(old)

    @torch.no_grad()
    def evaluate(number: int) -> None:
        trainer.model(batch())
        if number % 2:
            raise ValueError("no positives in this batch")

    for number in itertools.count():
        trainer.train()
        with suppress(ValueError), averaged():
            evaluate(number)
        yield


@leaks("step observe collect", cause=NO_USUAL)
def an_environment_that_never_ends() -> Iterator[None]:
    """Of four environments, one has got into a loop, so that its episode is never trained on."""

    class Environment:
        def __init__(self, length: float) -> None:
            self.length, self.episode = length, list[Any]()

        def step(self) -> bool:
            self.episode.append(torch.rand(64, 64))
            return len(self.episode) >= self.length

    trainer = Trainer()
    environments = [Environment(length) for length in (4, 7, float("inf"), 9)]

    def collect() -> None:
        for environment in environments:
            if environment.step():
                trainer.train(torch.cat(environment.episode))
                environment.episode = []

    while True:
        collect()
        trainer.train()
        yield


@leaks("adapt", cause=GRAPH | GRADIENTS)
def clones_trained_with_create_graph() -> Iterator[None]:
    """backward(create_graph=True) makes a parameter and its gradient refer to each other, in C++."""
    trainer = Trainer()

    def adapt() -> None:
        weight = torch.rand(64, 64, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (batch() @ weight).tanh().square().mean().backward(create_graph=True)

    while True:
        trainer.train()
        adapt()
        yield


@dataclass
class Phase:
    """What is noted in one phase of a training."""

    losses: dict[str, list[Any]] = field(default_factory=dict)

    def note(self, name: str, value: Any) -> None:
        self.losses.setdefault(name, []).append(value)


@leaks("note train_step", cause=GRAPH)
def losses_of_tokens_in_a_record() -> Iterator[None]:
    """A dataclass has dicts of lists, in which are the losses of all tokens, as they came."""
    trainer, phases = Trainer(), {"train": Phase(), "warm-up": Phase()}

    def train_step(number: int) -> None:
        trainer.optimizer.zero_grad()
        losses = trainer.model(batch(2048)).square().mean(1)
        phases["train" if number > 3 else "warm-up"].note("tokens", losses.log())
        losses.mean().backward()
        trainer.optimizer.step()

    for number in itertools.count():
        train_step(number)
        yield


@leaks("remember play", cause=NO_USUAL)
def a_memory_that_all_agents_share() -> Iterator[None]:
    """Each episode has a new agent, but its memory is a list of the class."""

    class Agent:
        memory: ClassVar[list[tuple[Any, float]]] = []

        def remember(self, state: Any, reward: float) -> None:
            self.memory.append((state, reward))

        def play(self) -> None:
            for reward in range(3):
                self.remember(torch.rand(16, 64), float(reward))

    trainer = Trainer()
    while True:
        agent = Agent()
        agent.play()
        trainer.train(torch.cat([state for state, _ in agent.memory[-3:]]))
        yield


@leaks("train_step", cause=GRADIENTS | GROWING)
def rows_of_an_embedding_are_never_zeroed() -> Iterator[None]:
    """Only the optimizer of the dense weights zeroes gradients; the sparse one gets ever more rows."""
    embedding = nn.Embedding(5000, 64, sparse=True)
    head = nn.Linear(64, 64)
    dense = torch.optim.SGD(head.parameters(), lr=0.01)
    sparse = torch.optim.SGD(embedding.parameters(), lr=0.0001)

    def train_step() -> None:
        dense.zero_grad()
        head(embedding(torch.randint(0, 5000, (64,)))).square().mean().backward()
        dense.step()
        sparse.step()

    while True:
        train_step()
        yield


@leaks("push", cause=GROWING)
def a_backlog_of_audio() -> Iterator[None]:
    """Chunks have 100 rows, and each step takes a frame of 64: the rest waits."""
    trainer, waiting = Trainer(), torch.empty(0, 64)

    def push(chunk: Any) -> Any:
        nonlocal waiting
        waiting = torch.cat([waiting, chunk])
        frame, waiting = waiting[:64], waiting[64:].clone()
        return frame

    while True:
        trainer.train(push(torch.rand(100, 64)))
        yield


@leaks("attack", cause=NO_USUAL)
def images_that_know_where_they_came_from() -> Iterator[None]:
    """An attribute of each perturbed tensor is the tensor that it was made from."""
    trainer = Trainer()

    def attack(image: Any) -> Any:
        changed = (image + 0.01 * torch.randn_like(image)).clamp(0, 1)
        changed.source = image
        return changed

    image = torch.rand(64, 64)
    while True:
        image = attack(image)
        trainer.train(image)
        yield


@leaks("forward", cause=GRAPH)
def a_running_covariance_with_graphs() -> Iterator[None]:
    """A whitening layer averages a covariance over steps, and forgot no_grad."""

    class Whitening(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.covariance = torch.zeros(64, 64)

        def forward(self, inputs: Any) -> Any:
            if self.training:
                self.covariance = 0.9 * self.covariance + 0.1 * inputs.T @ inputs / len(inputs)
            return inputs / self.covariance.detach().diagonal().add(1e-3).sqrt()

    trainer = Trainer()
    trainer.model.insert(2, Whitening())
    while True:
        trainer.train()
        yield


@leaks("__init__ window", cause=NO_USUAL)
def a_cached_method_keeps_its_object() -> Iterator[None]:
    """functools.cache is around a method, so that each spectrogram of the past is a key."""

    class Spectrogram:
        def __init__(self) -> None:
            self.filters = torch.rand(64, 64)

        @functools.cache  # noqa: B019
        def window(self, length: int) -> Any:
            return torch.hann_window(length)

        def __call__(self, inputs: Any) -> Any:
            return (inputs @ self.filters) * self.window(64)

    trainer = Trainer()
    while True:
        trainer.train(Spectrogram()(torch.rand(64, 64)))
        yield


@leaks("update", cause=NO_USUAL)
def priorities_updated_by_pushing_again() -> Iterator[None]:
    """What a heap has is outdated when a sample is pushed again, but only the best are ever taken out."""
    trainer, heap, newest = Trainer(), list[tuple[float, int, Any]](), dict[int, int]()
    count = itertools.count()

    def update(sample: int, priority: float) -> None:
        newest[sample] = next(count)
        heapq.heappush(heap, (priority, newest[sample], torch.rand(64, 64)))

    def take() -> Any:
        while True:
            _, number, features = heapq.heappop(heap)
            if number in newest.values():
                return features

    for number in itertools.count():
        for sample in range(2):
            update((number + sample) % 12, float(torch.rand(())))
        trainer.train(take())
        yield


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


class Log(TorchFunctionMode):
    """Notes what each function of torch returns."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[tuple[str, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (nn.functional.linear, torch.tanh):
            self.results.append((func.__name__, result))
        return result


@leaks("__torch_function__ predict", cause=OUTPUTS | GRAPH)
def a_mode_that_logs_results() -> Iterator[None]:
    """It was to find a NaN, and is still around the model."""
    trainer, log = Trainer(), Log()

    @torch.no_grad()
    def predict() -> None:
        with log:
            trainer.model(batch())

    while True:
        trainer.train()
        predict()
        yield


class Dropped(torch.autograd.Function):
    """Dropout that lists its contexts, for a look at the masks."""

    calls: ClassVar[list[Any]] = []

    @staticmethod
    def forward(ctx: Any, inputs: Any) -> Any:
        ctx.mask = (torch.rand_like(inputs) > 0.1).float()
        Dropped.calls.append(ctx)
        return inputs * ctx.mask

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.mask


@leaks("forward train_step", cause=GRAPH | NO_USUAL)
def contexts_of_a_function_are_listed() -> Iterator[None]:
    """A list of the class of a function has the context of each call, and that the mask."""
    trainer = Trainer()

    def train_step() -> None:
        trainer.optimizer.zero_grad()
        Dropped.apply(trainer.model(batch())).square().mean().backward()
        trainer.optimizer.step()

    try:
        while True:
            train_step()
            yield
    finally:
        Dropped.calls.clear()
