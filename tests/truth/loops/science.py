"""Equations, simulations and Gaussian processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.truth.loops.loop import GRAPH, GROWING, NO_USUAL, OUTPUTS, Trainer, batch, healthy, leaks


class Particles:
    """Particles on springs, which a policy pushes. It can be differentiated, and drawn."""

    def __init__(self) -> None:
        self.rest, self.drawn = torch.rand(300, 3), list[Any]()
        self.reset()

    def reset(self) -> None:
        self.places, self.speeds = self.rest.clone(), torch.zeros(300, 3)

    def advance(self, push: Any) -> None:
        forces = 4.0 * (self.rest - self.places) - 0.1 * self.speeds + push
        self.speeds = self.speeds + 0.05 * forces
        self.places = self.places + 0.05 * self.speeds
        self.drawn.append(self.places)


@leaks("advance", cause=GRAPH | GROWING | NO_USUAL)
def places_of_a_differentiable_simulation() -> Iterator[None]:
    """Each step simulates anew and trains through it; reset() forgets the state, but not what is drawn."""
    world, policy = Particles(), nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.001)
    while True:
        world.reset()
        for _ in range(5):
            world.advance(policy(torch.cat([world.places, world.speeds], 1)))
        optimizer.zero_grad()
        (world.places.mean(0) - 1.0).square().sum().backward()
        optimizer.step()
        yield


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


@leaks("observe", cause=GROWING)
def a_surrogate_of_all_that_was_tried() -> Iterator[None]:
    """The kernel matrix of a Gaussian process gets eight rows and columns in each step."""
    trainer, surrogate = Trainer(), Surrogate()
    while True:
        surrogate.observe(torch.rand(8, 16))
        trainer.train(surrogate.mean(torch.rand(64, 16)).repeat(1, 4))
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
