"""What looks as if ordinary training code kept it for good, and goes: solvers, loaders, exemplars.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.truth.leak_loop import Convolutions, Trainer, batch, healthy, images


class Solver(nn.Module):
    """Follows a field with Euler's method. Each call adds its states to those that interpolation may use."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        self.states = list[Any]()

    def forward(self, state: Any, steps: int = 4) -> Any:
        for _ in range(steps):
            state = state + self.field(state) / steps
            self.states.append(state)
        return state


class Surrogate:
    """A Gaussian process of what was tried."""

    def __init__(self) -> None:
        self.points = torch.rand(8, 16)
        self.kernel = self.similarity(self.points, self.points)

    def similarity(self, ones: Any, others: Any) -> Any:
        return (-torch.cdist(ones, others).square()).exp()

    def observe(self, points: Any) -> None:
        across, own = self.similarity(self.points, points), self.similarity(points, points)
        self.kernel = torch.cat([torch.cat([self.kernel, across], 1), torch.cat([across.T, own], 1)])
        self.points = torch.cat([self.points, points])

    def mean(self, points: Any) -> Any:
        noise = 0.1 * torch.eye(len(self.points))
        return self.similarity(points, self.points) @ torch.linalg.solve(self.kernel + noise, self.points)


class Student(nn.Module):
    """Learns from its teacher, which is a copy of what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        self.teacher: Any = None

    def forward(self, inputs: Any) -> Any:
        return self.layers(inputs)

    def distance(self, inputs: Any) -> Any:
        with torch.no_grad():
            wanted = inputs if self.teacher is None else self.teacher(inputs)
        return (self(inputs) - 0.9 * wanted).square().mean()


def smoothed_scores() -> Generator[Any, Any, None]:
    """A coroutine gets scores, and gives the mean of the last eight. None ends the epoch."""
    scores, mean = list[Any](), None
    while True:
        new = yield mean
        if new is None:
            scores.clear()
        else:
            scores.append(new)
            mean = torch.stack(scores[-8:]).mean(0)


@healthy
def dicts_that_share_the_weights() -> Iterator[None]:
    """What state_dict() gives is listed in each step as a checkpoint, but it has no weights of its own."""
    trainer, checkpoints = Trainer(), list[Any]()
    while True:
        trainer.train()
        checkpoints.append(trainer.model.state_dict())
        yield


@healthy
def an_array_of_objects_as_a_ring() -> Iterator[None]:
    """A NumPy array of objects has the last twenty episodes."""
    trainer, episodes = Trainer(), np.empty(20, dtype=object)
    for number in itertools.count():
        episodes[number % 20] = torch.rand(48, 64)
        trainer.train(episodes[random.Random(number).randrange(min(number + 1, 20))])
        yield


@healthy
def states_of_the_last_solution() -> Iterator[None]:
    """A solver keeps its three to nine states for interpolation until the next call."""
    solver, chance = Solver(), random.Random(4)
    optimizer = torch.optim.Adam(solver.parameters(), lr=0.001)
    while True:
        solver.states.clear()
        optimizer.zero_grad()
        last = solver(batch(), steps=chance.randrange(3, 10))
        (last.square().mean() + (solver.states[1] - solver.states[0]).square().mean()).backward()
        optimizer.step()
        yield


@healthy
def a_surrogate_with_a_budget() -> Iterator[None]:
    """A Gaussian process gets eight points in each step; of more than 120, the oldest go."""
    trainer, surrogate = Trainer(), Surrogate()
    while True:
        surrogate.observe(torch.rand(8, 16))
        if len(surrogate.points) > 120:
            surrogate.points, surrogate.kernel = surrogate.points[8:], surrogate.kernel[8:, 8:]
        trainer.train(surrogate.mean(torch.rand(64, 16)).repeat(1, 4))
        yield


@healthy
def loaders_of_six_tasks() -> Iterator[None]:
    """Six generators with shuffled data of three to eight batches are read in turn, and made anew."""

    def shuffled(rows: int) -> Iterator[Any]:
        data = torch.rand(rows, 64)
        yield from data[torch.randperm(rows)].split(32)

    trainer, sizes = Trainer(), [96 + 32 * task for task in range(6)]
    loaders = [shuffled(rows) for rows in sizes]
    for number in itertools.count():
        task = number % 6
        inputs = next(loaders[task], None)
        if inputs is None:
            loaders[task] = shuffled(sizes[task])
            inputs = next(loaders[task])
        trainer.train(inputs)
        yield


@healthy
def teachers_without_their_teacher() -> Iterator[None]:
    """Every second step a copy of the student becomes its teacher, without the teacher that it has."""
    student = Student()
    optimizer = torch.optim.SGD(student.layers.parameters(), lr=0.1)
    for number in itertools.count():
        optimizer.zero_grad()
        student.distance(batch()).backward()
        optimizer.step()
        if number % 2:
            student.teacher = None
            student.teacher = copy.deepcopy(student)
        yield


@healthy
def batches_that_fail_are_halved() -> Iterator[None]:
    """Too large a batch raises an error, and its halves are tried; all errors are kept until the end."""
    trainer, chance = Trainer(), random.Random(6)

    def train(inputs: Any) -> None:
        hidden = trainer.model[0](inputs)
        if len(inputs) > 40:
            raise MemoryError(f"{hidden.shape} is too large")
        trainer.train(inputs)

    while True:
        parts, errors = [batch(chance.randrange(32, 160))], list[MemoryError]()
        while parts:
            try:
                train(parts[-1])
                parts.pop()
            except MemoryError as error:
                errors.append(error)
                parts.extend(parts.pop().chunk(2))
        errors.clear()
        yield


@healthy
def a_coroutine_hears_of_the_end_of_an_epoch() -> Iterator[None]:
    """It has the scores of an epoch, which ends after sixteen steps."""
    trainer, meter = Trainer(), smoothed_scores()
    next(meter)

    @torch.no_grad()
    def evaluate() -> Any:
        return trainer.model(batch(96))

    for number in itertools.count(1):
        trainer.train()
        meter.send(evaluate())
        if number % 16 == 0:
            meter.send(None)
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
def a_workspace_for_the_largest_batch() -> Iterator[None]:
    """It is resized whenever a batch is larger than all before, which comes ever more seldom."""
    trainer, chance, workspace = Trainer(), random.Random(3), torch.empty(0)

    def read(rows: int) -> Any:
        if workspace.numel() < 64 * rows:
            workspace.resize_(64 * rows)
        return workspace[: 64 * rows].view(rows, 64).uniform_()

    while True:
        trainer.train(read(chance.randrange(16, 400)))
        yield


@healthy
def transitions_that_share_their_frames() -> Iterator[None]:
    """Each of the last fifteen transitions has four frames, three of which also the next one has."""
    trainer, stack, transitions = Convolutions(), deque[Any](maxlen=4), list[tuple[Any, ...]]()
    for number in itertools.count():
        stack.append(images(1)[0])
        if len(transitions) < 15:
            transitions.append(tuple(stack))
        else:
            transitions[number % 15] = tuple(stack)
        trainer.train(torch.stack(random.Random(number).choice(transitions)))
        yield


@healthy
def exemplars_of_more_and_more_classes() -> Iterator[None]:
    """At most 48 images are kept, of ever more classes, so that those known already keep fewer."""
    trainer, chance, exemplars = Convolutions(), random.Random(9), dict[int, list[Any]]()

    def keep(label: int, samples: Any) -> None:
        center = samples.mean(0)
        exemplars.setdefault(label, []).extend(sample.clone() for sample in samples)
        most = 48 // len(exemplars)
        exemplars[label].sort(key=lambda sample: float((sample - center).square().sum()))
        for one in exemplars.values():
            del one[most:]

    for number in itertools.count():
        label = number // 3 if number < 36 else chance.randrange(12)
        samples = images(8)
        trainer.train(samples)
        keep(label, samples)
        trainer.train(torch.stack([chance.choice(one) for one in exemplars.values()]))
        yield
