"""What research code keeps beside its training, for good.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch.nn.utils import prune

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


class Clipped(UserWarning):
    """A warning that has with it what it is about."""

    def __init__(self, values: Any) -> None:
        super().__init__("values were clipped")
        self.values = values


def clip(values: Any) -> Any:
    if values.max() > 0.9:
        warnings.warn(Clipped(values), stacklevel=2)
    return values.clamp(max=0.9)


def mask_of_largest(weight: Any) -> Any:
    return (weight.abs() > weight.abs().quantile(0.1)).float()


@leaks("sample", cause=OUTPUTS)
def previews_of_each_sampling() -> Iterator[None]:
    """A diffusion model also returns its idea of the image at each of six noises, and all go to a log."""
    trainer, shown = Trainer(), dict[int, Any]()

    @torch.no_grad()
    def sample() -> tuple[Any, list[Any]]:
        image, previews = torch.randn(32, 64), list[Any]()
        for noise in range(6, 0, -1):
            previews.append(trainer.model(image))
            image = image + (previews[-1] - image) / noise
        return image, previews

    for number in itertools.count():
        trainer.train()
        _, shown[number] = sample()
        yield


@leaks("end_task step", cause=GRADIENTS | NO_USUAL)
def fisher_of_each_task() -> Iterator[None]:
    """Weights and squared gradients at the end of each task; the stream makes each batch a task."""
    trainer, tasks = Trainer(), list[list[Any]]()
    parameters = list(trainer.model.parameters())

    def end_task() -> None:
        tasks.append([(one.detach().clone(), one.grad.square()) for one in parameters])

    def step() -> None:
        trainer.optimizer.zero_grad()
        loss = trainer.loss(batch())
        for task in tasks[-5:]:
            for parameter, (anchor, fisher) in zip(parameters, task, strict=True):
                loss = loss + (fisher * (parameter - anchor).square()).sum()
        loss.backward()
        trainer.optimizer.step()

    while True:
        step()
        end_task()
        yield


@leaks("log update evaluate", cause=METRICS)
def a_meter_for_each_name() -> Iterator[None]:
    """The number of the batch is part of the name that its accuracies are logged under."""

    class Meter:
        def __init__(self) -> None:
            self.total, self.count = torch.zeros(()), 0

        def update(self, value: Any) -> None:
            self.total = self.total + value
            self.count += 1

    trainer, meters = Trainer(), dict[str, Meter]()

    def log(name: str, value: Any) -> None:
        meters.setdefault(name, Meter()).update(value)

    for number in itertools.count():
        trainer.train()
        log(f"accuracy/batch_{number}", (torch.rand(16, 2048) > 0.5).float().mean(0))
        yield


@leaks("make_task __init_subclass__", cause=NO_USUAL)
def a_class_for_each_task() -> Iterator[None]:
    """Classes of tasks register themselves when made, and each has its prototypes as an attribute."""

    class Task:
        known: ClassVar[list[type]] = []
        prototypes: Any

        def __init_subclass__(cls) -> None:
            Task.known.append(cls)

    def make_task(number: int) -> Any:
        return type(f"Task{number}", (Task,), {"prototypes": torch.rand(96, 64)})

    trainer = Trainer()
    for number in itertools.count():
        trainer.train(make_task(number).prototypes)
        yield


@leaks("collect observe", cause=NO_USUAL)
def a_rollout_that_misses_its_limit() -> Iterator[None]:
    """It is cleared when it has 63 states, but two come at a time."""

    class Rollout:
        def __init__(self) -> None:
            self.states: list[Any] = []

        def observe(self) -> Any:
            return torch.rand(48, 64)

        def collect(self, trainer: Trainer) -> None:
            self.states += [self.observe(), self.observe()]
            if len(self.states) == 63:
                trainer.train(torch.cat(self.states))
                self.states.clear()

    trainer, rollout = Trainer(), Rollout()
    while True:
        rollout.collect(trainer)
        trainer.train()
        yield


@leaks("adapt", cause=GRAPH)
def test_time_training_makes_graphs() -> Iterator[None]:
    """create_graph=True is left from meta-training, and the adapted weights go on from batch to batch."""
    weights = [torch.rand(64, 64, requires_grad=True) / 8 for _ in range(2)]

    def adapt(inputs: Any) -> None:
        nonlocal weights
        loss = ((inputs @ weights[0]).tanh() @ weights[1] - inputs).square().mean()
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        weights = [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    while True:
        adapt(batch())
        with torch.no_grad():
            (batch() @ weights[0]).tanh() @ weights[1]
        yield


@leaks("mask_of_largest prune_again", cause=NO_USUAL)
def masks_of_iterative_pruning() -> Iterator[None]:
    """torch.nn.utils.prune has a list of all prunings of a weight, each with its mask."""
    trainer = Trainer()
    layer = trainer.model[0]

    def prune_again() -> None:
        prune.custom_from_mask(layer, "weight", mask_of_largest(layer.weight.detach()))

    while True:
        trainer.train()
        prune_again()
        yield


@leaks("make_room add", cause=GROWING | NO_USUAL)
def a_store_that_grows_by_chunks() -> Iterator[None]:
    """The messages of a temporal graph network; there is new room for five steps when all is used."""

    class Messages:
        def __init__(self) -> None:
            self.rows, self.used = torch.empty(320, 64), 0

        def make_room(self) -> None:
            rows = torch.empty(len(self.rows) + 320, 64)
            rows[: self.used] = self.rows[: self.used]
            self.rows = rows

        def add(self, new: Any) -> None:
            if self.used + len(new) > len(self.rows):
                self.make_room()
            self.rows[self.used : self.used + len(new)] = new
            self.used += len(new)

    trainer, messages = Trainer(), Messages()
    while True:
        trainer.train()
        with torch.no_grad():
            messages.add(trainer.model(batch()))
        yield


@leaks("match", cause=GROWING | NO_USUAL)
def a_prefix_tree_with_locks() -> Iterator[None]:
    """What no prompt uses goes when there are more than twelve, but every third prompt is never released."""
    trainer, nodes = Trainer(), dict[tuple[int, ...], list[Any]]()

    def match(prompt: tuple[int, ...]) -> None:
        for end in range(1, len(prompt) + 1):
            if prompt[:end] not in nodes:
                nodes[prompt[:end]] = [0, torch.rand(32, 64)]
            nodes[prompt[:end]][0] += 1

    def release(prompt: tuple[int, ...]) -> None:
        for end in range(1, len(prompt) + 1):
            nodes[prompt[:end]][0] -= 1

    def evict() -> None:
        unused = [key for key, (locks, _) in nodes.items() if not locks]
        for key in unused[:-12]:
            del nodes[key]

    for number in itertools.count():
        prompt = (number % 2, number, number + 1, number + 2)
        match(prompt)
        trainer.train(nodes[prompt][1])
        stopped_at_once = number % 3 == 0
        if not stopped_at_once:
            release(prompt)
        evict()
        yield


@leaks("clip", cause=NO_USUAL)
def warnings_are_recorded() -> Iterator[None]:
    """They are to be shown at the end of the training."""
    trainer = Trainer()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            while True:
                trainer.train(clip(batch(96)))
                yield
        finally:
            seen.clear()


@leaks("__init__ expand", cause=NO_USUAL)
def a_search_tree_with_parents() -> Iterator[None]:
    """A move makes a child the new root, but it still knows its parent, and that its other children."""

    class Node:
        def __init__(self, parent: Any = None) -> None:
            self.parent, self.children = parent, list[Any]()
            self.state = torch.rand(32, 64)

        def expand(self) -> None:
            self.children = [Node(self) for _ in range(3)]

    trainer, root, chance = Trainer(), Node(), random.Random(0)
    while True:
        root.expand()
        trainer.train(torch.cat([child.state for child in root.children]))
        root = chance.choice(root.children)
        yield


@leaks("end_episode", cause=NO_USUAL)
def a_video_of_each_episode() -> Iterator[None]:
    """The frames of six steps are joined and dropped, the videos stay."""
    trainer, frames, videos = Trainer(), list[Any](), dict[str, Any]()

    def end_episode(number: int) -> None:
        videos[f"episode/{number}"] = torch.stack(frames)
        frames.clear()

    for number in itertools.count():
        trainer.train()
        frames.append(torch.rand(3, 32, 32))
        if len(frames) == 6:
            end_episode(number)
        yield
