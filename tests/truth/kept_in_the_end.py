"""What ordinary training code keeps for good: arrays of objects, frames, nested data sets, old teachers.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, TensorDataset

from tests.truth.leak_loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    NO_USUAL,
    OUTPUTS,
    Convolutions,
    Trainer,
    batch,
    images,
    leaks,
)
from tests.truth.let_go_in_the_end import Solver, Student, Surrogate, smoothed_scores


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


# The states are made in a module's forward, and have a graph, although its backward pass is done.
@leaks("forward", cause=GRAPH | OUTPUTS)
def states_of_all_solutions() -> Iterator[None]:
    """A solver keeps its states for interpolation, and adds those of each batch."""
    solver = Solver()
    optimizer = torch.optim.Adam(solver.parameters(), lr=0.001)
    while True:
        optimizer.zero_grad()
        solver(batch()).square().mean().backward()
        optimizer.step()
        yield


@leaks("observe", cause=GROWING)
def a_surrogate_of_all_that_was_tried() -> Iterator[None]:
    """The kernel matrix of a Gaussian process gets eight rows and columns in each step."""
    trainer, surrogate = Trainer(), Surrogate()
    while True:
        surrogate.observe(torch.rand(8, 16))
        trainer.train(surrogate.mean(torch.rand(64, 16)).repeat(1, 4))
        yield


@leaks("collect", cause=NO_USUAL)
def a_data_set_around_the_last() -> Iterator[None]:
    """Imitation learning: new states and the data set so far are the next data set."""
    trainer = Trainer()

    def collect() -> Dataset[Any]:
        states = torch.rand(32, 64)
        return TensorDataset(states, states.flip(1))

    dataset: Any = collect()
    while True:
        dataset = ConcatDataset([dataset, collect()])
        rows = torch.randint(len(dataset), (32,)).tolist()
        trainer.train(torch.stack([dataset[row][0] for row in rows]))
        yield


@leaks("no_counts prior_of", cause=NO_USUAL)
def reading_makes_an_entry() -> Iterator[None]:
    """A defaultdict is asked for the counts of each document, of which it has never heard."""
    trainer = Trainer()

    def no_counts() -> Any:
        return torch.zeros(64, 64)

    counts = defaultdict[str, Any](no_counts)

    def prior_of(document: str) -> Any:
        return counts[document] + 1

    for number in itertools.count():
        trainer.train(batch() / prior_of(f"document {number}"))
        yield


@leaks("shuffled", cause=NO_USUAL)
def a_loader_that_calls_itself() -> Iterator[None]:
    """At the end of an epoch of three batches, a generator goes on with a new one of itself."""

    def shuffled(data: Any) -> Iterator[Any]:
        in_order = data[torch.randperm(len(data))]
        yield from in_order.split(64)
        yield from shuffled(data)

    trainer = Trainer()
    for inputs in shuffled(torch.rand(192, 64)):
        trainer.train(inputs)
        yield


class Extrapolating(torch.optim.Optimizer):
    """Goes on from the mean of the last five weights, by the mean of their gradients."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                past = self.state[parameter].setdefault("past", [])
                past.append((parameter.clone(), parameter.grad.clone()))
                weights, gradients = zip(*past[-5:], strict=True)
                parameter.copy_(torch.stack(weights).mean(0) - group["lr"] * torch.stack(gradients).mean(0))


@leaks("step", cause=GRADIENTS | NO_USUAL)
def an_optimizer_that_remembers_all_steps() -> Iterator[None]:
    """It goes on from the last five weights and gradients, but its state has those of all steps."""
    trainer = Trainer()
    trainer.optimizer = Extrapolating(trainer.model.parameters(), lr=0.01)
    while True:
        trainer.train()
        yield


@leaks("distil __deepcopy__", cause=NO_USUAL)
def teachers_of_teachers() -> Iterator[None]:
    """Every second step a copy of the student becomes its teacher, and what is copied has a teacher, too."""
    student = Student()
    optimizer = torch.optim.SGD(student.layers.parameters(), lr=0.1)

    def distil() -> None:
        student.teacher = copy.deepcopy(student)

    for number in itertools.count():
        optimizer.zero_grad()
        student.distance(batch()).backward()
        optimizer.step()
        if number % 2:
            distil()
        yield


@leaks("augment read images log_call", cause=NO_USUAL)
def frames_of_all_callers() -> Iterator[None]:
    """A log of calls has what inspect.stack() says of each caller: also its frame, with all locals."""
    trainer, calls = Convolutions(), list[inspect.FrameInfo]()

    def log_call() -> None:
        calls.append(inspect.stack(0)[1])

    def read() -> Any:
        return images()

    def augment(inputs: Any) -> Any:
        noise = 0.1 * torch.randn_like(inputs)
        mixed = 0.5 * (inputs + inputs.roll(1, 0)) + noise
        log_call()
        return mixed

    while True:
        trainer.train(augment(read()))
        yield


@leaks("evaluate smoothed_scores", cause=OUTPUTS)
def a_coroutine_that_is_sent_scores() -> Iterator[None]:
    """It is to be told when an epoch ends, but the training has no epochs."""
    trainer, meter = Trainer(), smoothed_scores()
    next(meter)

    @torch.no_grad()
    def evaluate() -> Any:
        return trainer.model(batch(96))

    while True:
        trainer.train()
        meter.send(evaluate())
        yield


@leaks("features", cause=OUTPUTS)
def logs_are_merged_into_new_logs() -> Iterator[None]:
    """Each step makes a dict of the old logs and its own features, whose keys have the number of the step."""
    trainer, logs = Trainer(), dict[str, Any]()

    @torch.no_grad()
    def features(number: int) -> dict[str, Any]:
        hidden = trainer.model[:2](batch(96))
        return {f"{number}/hidden": hidden, f"{number}/norms": hidden.norm(dim=1)}

    for number in itertools.count():
        trainer.train()
        logs = {**logs, **features(number)}
        yield


class Reader(nn.Module):
    """Reads a document by segments, and attends to the last 64 tokens that it has read, too."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.memory = torch.zeros(1, 64, 64)

    def forward(self, segment: Any) -> Any:
        context = torch.cat([self.memory, segment], 1)
        output = segment + self.attention(segment, context, context, need_weights=False)[0]
        self.memory = torch.cat([self.memory, output], 1)[:, -64:]
        return output


@leaks("forward", cause=GRAPH)
def a_short_memory_with_a_long_graph() -> Iterator[None]:
    """A reader that is not trained remembers 64 tokens, but their graph goes back to the beginning."""
    trainer, reader = Trainer(), Reader()
    while True:
        trainer.train(reader(torch.rand(1, 32, 64)).detach().flatten(0, 1))
        yield
