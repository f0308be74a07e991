"""What looks as if research code kept it for good, and goes: sequences, samplers, equations, graphs, patches.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.lab_code import Convolution, Equation, SmallGPT, kernel
from tests.truth.leak_loop import batch, healthy
from tests.truth.text_models import sentences


@healthy
def states_of_truncated_backpropagation() -> Iterator[None]:
    """States with their graphs are listed for nine steps, then the loss of their last six is propagated."""
    cell, head = nn.LSTMCell(64, 64), nn.Linear(64, 16)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
    states = [(torch.zeros(32, 64), torch.zeros(32, 64))]
    while True:
        states.append(cell(torch.rand(32, 64), states[-1]))
        yield
        if len(states) > 9:
            loss = sum(functional.mse_loss(head(hidden), torch.rand(32, 16)) for hidden, _ in states[-6:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hidden, memory = states[-1]
            states = [(hidden.detach(), memory.detach())]


class Multistep:
    """A scheduler of fourth order: goes on with a mean of the last four derivatives."""

    def __init__(self) -> None:
        self.derivatives, self.images = list[Any](), list[Any]()

    def step(self, derivative: Any, sample: Any) -> Any:
        self.derivatives = self.derivatives[-3:]
        self.derivatives.append(derivative)
        mean = torch.stack(self.derivatives).mean(0)
        self.images.append(sample - 0.05 * mean)
        return self.images[-1]


@healthy
def samples_of_a_multistep_scheduler() -> Iterator[None]:
    """A sampler needs its last four derivatives, and has all images of a sample, which takes 17 steps."""
    network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 3, 3, padding=1))
    with torch.no_grad():
        while True:
            scheduler, sample = Multistep(), torch.randn(4, 3, 24, 24)
            for _ in range(17):
                with_text, without = network(torch.cat([sample, sample + 0.1])).chunk(2)
                sample = scheduler.step(without + 3 * (with_text - without), sample)
                yield
            torch.stack(scheduler.images[::4]).clamp(-1, 1)


class Adaptive(Equation):
    """Points are drawn anew where the residual is large; the last residuals are kept with their graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.candidates = torch.rand(64, 2), list[tuple[Any, Any]]()

    def fit(self) -> None:
        self.optimizer.zero_grad()
        (self.residual(self.points).square().mean() + self.boundary()).backward()
        self.optimizer.step()
        self.points = self.points.detach()

    def look(self) -> None:
        candidates = torch.rand(64, 2)
        self.candidates.append((candidates, self.residual(candidates)))

    def draw(self) -> None:
        points, residuals = (torch.cat(one).detach() for one in zip(*self.candidates, strict=True))
        self.points = points[torch.multinomial(residuals.abs() + 1e-6, 64)]
        self.candidates.clear()


@healthy
def points_are_drawn_from_eleven_residuals() -> Iterator[None]:
    """Residuals of an equation wait for eleven steps with their graphs, then points are drawn by them."""
    equation = Adaptive()
    for number in itertools.count(1):
        equation.fit()
        equation.look()
        if number % 11 == 0:
            equation.draw()
        yield


@healthy
def a_trajectory_of_a_neural_equation() -> Iterator[None]:
    """A neural differential equation is solved over fourteen intervals, a step each, then learned from."""
    field = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(field.parameters(), lr=0.001)

    def advance(state: Any, length: float = 0.1) -> Any:
        first = field(state)
        second = field(state + length / 2 * first)
        third = field(state + length / 2 * second)
        return state + length / 6 * (first + 2 * second + 2 * third + field(state + length * third))

    while True:
        trajectory = [torch.rand(48, 16)]
        for _ in range(14):
            trajectory.append(advance(trajectory[-1]))
            yield
        optimizer.zero_grad()
        functional.mse_loss(torch.stack(trajectory[1:]), torch.rand(14, 48, 16)).backward()
        optimizer.step()


class PathIntegral:
    """Synaptic intelligence: how much each weight did for the loss on its way through a task."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.path, self.importance = dict[str, Any](), dict[str, Any]()
        self.start = self.weights()

    def weights(self) -> dict[str, Any]:
        return {name: weight.detach().clone() for name, weight in self.model.named_parameters()}

    def after_step(self, before: dict[str, Any]) -> None:
        for name, weight in self.model.named_parameters():
            change = -weight.grad * (weight.detach() - before[name])
            self.path[name] = self.path.get(name, 0.0) + change

    def end_task(self) -> None:
        now = self.weights()
        for name, path in self.path.items():
            gained = path.clamp(min=0) / ((now[name] - self.start[name]).square() + 0.1)
            self.importance[name] = self.importance.get(name, 0.0) + gained
        self.path, self.start = {}, now

    def penalty(self) -> Any:
        named = dict(self.model.named_parameters())
        return sum(
            (weight * (named[name] - self.start[name]).square()).sum()
            for name, weight in self.importance.items()
        )


@healthy
def importance_of_weights_along_their_path() -> Iterator[None]:
    """Continual learning sums up what each weight did, in new tensors; a task ends after nine steps."""
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    optimizer, path = torch.optim.SGD(model.parameters(), lr=0.05), PathIntegral(model)
    for number in itertools.count(1):
        before = path.weights()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch(32)), torch.randint(10, (32,)))
        (loss + path.penalty()).backward()
        optimizer.step()
        path.after_step(before)
        if number % 9 == 0:
            path.end_task()
        yield


@healthy
def a_process_for_the_last_times() -> Iterator[None]:
    """A Gaussian process is fitted anew to the last 120 times, of which each step brings ten."""
    log_scale = nn.Parameter(torch.zeros(()))
    optimizer, seen = torch.optim.Adam([log_scale], lr=0.01), torch.zeros(6, 0)
    for number in itertools.count():
        seen = torch.cat([seen, torch.randn(6, 10)], 1)[:, -120:]
        scaled = (seen - seen.mean(1, keepdim=True)) / seen.std(1, keepdim=True)
        times = torch.arange(number, number + seen.shape[1])[:, None] / 10
        covariance = kernel(times, times, log_scale.exp()) + 0.1 * torch.eye(len(times))
        factor = torch.linalg.cholesky(covariance)
        weights = torch.cholesky_solve(scaled.T, factor)
        optimizer.zero_grad()
        (0.5 * (scaled.T * weights).sum() + 6 * factor.diagonal().log().sum()).backward()
        optimizer.step()
        yield


class Histories:
    """Embeddings of the nodes of each part of a graph, as they were when the part came last."""

    def __init__(self) -> None:
        self.of_part = dict[int, Any]()

    def pull(self) -> Any:
        return torch.cat(list(self.of_part.values())).mean(0) if self.of_part else torch.zeros(64)

    def push(self, part: int, embeddings: Any) -> None:
        self.of_part[part] = embeddings.detach()


@healthy
def embeddings_of_the_parts_of_a_graph() -> Iterator[None]:
    """A graph network has historical embeddings of sixteen parts; one of them is replaced in each step."""
    features, adjacency = torch.rand(640, 32), (torch.rand(640, 640) < 0.02).float()
    first, head, histories = Convolution(), nn.Linear(128, 7), Histories()
    optimizer = torch.optim.Adam([*first.parameters(), *head.parameters()], lr=0.01)
    for number in itertools.count():
        part = number % 16
        nodes = slice(40 * part, 40 * part + 40)
        hidden = first(features[nodes], adjacency[nodes, nodes])
        logits = head(torch.cat([hidden, histories.pull().expand_as(hidden)], 1))
        optimizer.zero_grad()
        functional.cross_entropy(logits, torch.arange(40) % 7).backward()
        optimizer.step()
        histories.push(part, hidden)
        yield


@contextlib.contextmanager
def patched(model: SmallGPT, clean: list[Any]) -> Iterator[None]:
    """Blocks give what they gave for a clean prompt, for the last token."""
    handles = list[Any]()
    for block, output in zip(model.blocks, clean, strict=True):

        def replace(_block: Any, _inputs: Any, result: Any, output: Any = output) -> Any:
            return torch.cat([result[0][:, :-1], output[:, -1:]], 1), result[1]

        handles.append(block.register_forward_hook(replace))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Cached:
    """Hooks that list what each block gives, until the study of some prompts is done."""

    def __init__(self, model: SmallGPT) -> None:
        self.outputs = list[list[Any]]()
        for block in model.blocks:
            block.register_forward_hook(lambda _block, _inputs, result: self.outputs[-1].append(result[0]))

    def begin(self) -> None:
        self.outputs.append([])


@healthy
def patches_of_twelve_prompts() -> Iterator[None]:
    """Activation patching caches what blocks give for twelve prompts; patches go after each."""
    model = SmallGPT().eval().requires_grad_(requires_grad=False)
    cached, effects = Cached(model), list[float]()
    for number in itertools.count(1):
        cached.begin()
        model(sentences(2, 40))
        clean = cached.outputs[-1][:2]
        with patched(model, clean):
            logits, _ = model(sentences(2, 40))
        effects.append(float(logits[:, -1].std()))
        if number % 12 == 0:
            cached.outputs.clear()
        yield
