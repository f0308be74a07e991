"""What research code keeps for good: sequences, images, equations, tasks, series, graphs, patches, kernels.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.lab_code import Convolution, Equation, SmallGPT, kernel, trained
from tests.truth.leak_loop import GRADIENTS, GRAPH, GROWING, NO_USUAL, OUTPUTS, batch, images, leaks
from tests.truth.text_models import sentences


class TruncatedBackpropagation:
    """Backpropagation through the last `back` steps, after every `every` steps."""

    def __init__(self, cell: nn.Module, head: nn.Module, every: int, back: int) -> None:
        self.cell, self.head, self.every, self.back = cell, head, every, back
        self.optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
        self.states: list[tuple[Any, Any]] = [(None, torch.zeros(16, 64))]
        self.outputs, self.targets = list[Any](), list[Any]()
        self.number = 0

    def feed(self, inputs: Any, target: Any) -> None:
        state = self.states[-1][1].detach().requires_grad_()
        new = self.cell(inputs, state)
        self.outputs.append(self.head(new))
        self.targets.append(target)
        self.states.append((state, new))
        while len(self.states) > self.back:
            del self.states[0]
        self.number += 1
        if self.number % self.every == 0:
            self.backward()

    def backward(self) -> None:
        self.optimizer.zero_grad()
        pairs = zip(self.outputs[-self.every :], self.targets[-self.every :], strict=True)
        sum(functional.mse_loss(*pair) for pair in pairs).backward(retain_graph=True)
        for (before, _), (_, earlier) in zip(self.states[:0:-1], self.states[-2::-1], strict=True):
            if before is None or before.grad is None or earlier.grad_fn is None:
                break
            earlier.backward(before.grad, retain_graph=True)
        self.optimizer.step()


@leaks("feed forward", cause=GRAPH | OUTPUTS)
def outputs_of_truncated_backpropagation() -> Iterator[None]:
    """Only the last six states are kept, but all outputs are, with the graph that is retained for others."""
    training = TruncatedBackpropagation(nn.GRUCell(64, 64), nn.Linear(64, 32), every=6, back=6)
    while True:
        training.feed(torch.rand(16, 64), torch.rand(16, 32))
        yield


class ImagePool:
    """Fakes of earlier steps for the discriminator: half of what is asked for is an old one."""

    def __init__(self, size: int) -> None:
        self.size, self.fakes, self.chance = size, list[Any](), random.Random(2)

    def query(self, fakes: Any) -> Any:
        answers = list[Any]()
        for fake in fakes.detach():
            if len(self.fakes) < self.size or self.chance.random() < 0.5:
                self.fakes.append(fake)
                answers.append(fake)
            else:
                answers.append(self.chance.choice(self.fakes))
        return torch.stack(answers)


class Translator:
    """Makes images of one kind from those of another one, against a discriminator with a pool."""

    def __init__(self) -> None:
        self.generator = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1)
        )
        self.discriminator = nn.Sequential(nn.Conv2d(3, 8, 4, stride=2), nn.LeakyReLU(), nn.Conv2d(8, 1, 4))
        self.of_generator = torch.optim.Adam(self.generator.parameters(), lr=0.0002)
        self.of_discriminator = torch.optim.Adam(self.discriminator.parameters(), lr=0.0002)
        self.pool = ImagePool(12)

    def optimize_parameters(self) -> None:
        fakes = self.generator(images(2))
        self.of_generator.zero_grad()
        (self.discriminator(fakes) - 1).square().mean().backward()
        self.of_generator.step()
        self.of_discriminator.zero_grad()
        real, fake = self.discriminator(images(2)), self.discriminator(self.pool.query(fakes))
        ((real - 1).square().mean() + fake.square().mean()).backward()
        self.of_discriminator.step()


@leaks("query forward optimize_parameters", cause=OUTPUTS)
def fakes_of_a_pool_that_never_replaces() -> Iterator[None]:
    """When the pool of twelve fakes is full, a new one is put behind the others instead of into a place."""
    translator = Translator()
    while True:
        translator.optimize_parameters()
        yield


class WeightedEquation(Equation):
    """Weighs the residual by its share of the loss, for which it has the residuals of its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.evaluated, self.weight = list[tuple[Any, Any]](), 1.0

    def evaluate(self) -> None:
        points = torch.rand(128, 2)
        self.evaluated.append((points, self.residual(points)))
        self.weight = 1 / (1 + float(self.evaluated[-1][1].abs().mean()))

    def fit(self) -> None:
        self.optimizer.zero_grad()
        (self.weight * self.residual(torch.rand(128, 2)).square().mean() + self.boundary()).backward()
        self.optimizer.step()


@leaks("evaluate residual", cause=GRAPH)
def residuals_of_an_equation() -> Iterator[None]:
    """A network that solves an equation lists residuals of its evaluations, which need a graph."""
    equation = WeightedEquation()
    for number in itertools.count():
        equation.fit()
        if number % 3 == 2:
            equation.evaluate()
        yield


class EpisodicGradients:
    """Gradient episodic memory: no step may go against the gradient of an earlier task."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.references = torch.zeros(sum(one.numel() for one in self.model.parameters()), 0)

    def gradient(self, inputs: Any, labels: Any) -> Any:
        self.optimizer.zero_grad()
        functional.cross_entropy(self.model(inputs), labels).backward()
        return torch.cat([one.grad.flatten() for one in self.model.parameters()])

    def end_task(self, inputs: Any, labels: Any) -> None:
        gradient = self.gradient(inputs, labels)
        self.references = torch.cat([self.references, gradient[:, None]], 1)

    def observe(self, inputs: Any, labels: Any) -> None:
        gradient = self.gradient(inputs, labels)
        if self.references.shape[1]:
            against = self.references.T @ gradient
            worst = self.references[:, against.argmin()]
            gradient -= against.min().clamp(max=0) / worst.square().sum().clamp(min=1e-9) * worst
        torch.nn.utils.vector_to_parameters(
            torch.nn.utils.parameters_to_vector(self.model.parameters()).detach() - 0.05 * gradient,
            self.model.parameters(),
        )


@leaks("end_task gradient", cause=GROWING | GRADIENTS)
def a_reference_gradient_for_each_drift() -> Iterator[None]:
    """Continual learning has a gradient of each task, and any change of the loss begins another task."""
    learner, chance = EpisodicGradients(), random.Random(8)
    while True:
        inputs, labels = batch(32), torch.randint(10, (32,))
        learner.observe(inputs, labels)
        if chance.random() < 0.9:
            learner.end_task(inputs, labels)
        yield


class OnlineScaler:
    """Robust statistics of the last 64 times of 24 series."""

    def __init__(self, window: int = 64) -> None:
        self.window, self.seen = window, torch.zeros(24, 0)

    def update(self, values: Any) -> None:
        self.seen = torch.cat([self.seen, values], 1)[-self.window :]

    def scale(self, values: Any) -> Any:
        low, middle, high = self.seen.quantile(torch.tensor([0.25, 0.5, 0.75]), 1)[..., None]
        return (values - middle) / (high - low + 1e-6)


@leaks("update", cause=GROWING)
def times_cut_along_the_wrong_axis() -> Iterator[None]:
    """An online scaler joins times along one axis, and cuts along the other, which has only 24 series."""
    scaler, network, head = OnlineScaler(), nn.GRU(1, 32, batch_first=True), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=0.001)
    while True:
        values = torch.randn(24, 96).cumsum(1)
        scaler.update(values)
        scaled = scaler.scale(values)
        optimizer.zero_grad()
        functional.mse_loss(head(network(scaled[:, :32, None])[0])[..., 0], scaled[:, 1:33]).backward()
        optimizer.step()
        yield


class History:
    """Embeddings of all nodes as they were when they were computed last."""

    def __init__(self, nodes: int, width: int) -> None:
        self.embeddings = torch.zeros(nodes, width)

    def pull(self, nodes: Any) -> Any:
        return self.embeddings[nodes].detach()

    def push(self, nodes: Any, embeddings: Any) -> None:
        self.embeddings[nodes] = embeddings


@leaks("push refresh forward", cause=GRAPH)
def graphs_of_historical_embeddings() -> Iterator[None]:
    """Every second step refreshes embeddings of nodes out of the batch, and pushes them with their graph."""
    features, adjacency = torch.rand(400, 32), (torch.rand(400, 400) < 0.02).float()
    first, second, history = Convolution(), Convolution(64, 7), History(400, 64)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)

    def train(nodes: Any) -> None:
        hidden = torch.cat([first(features[nodes], adjacency[nodes][:, nodes]), history.pull(nodes)])
        links = torch.eye(len(nodes), 2 * len(nodes)) + 0.1
        logits = functional.relu(links @ second.others(hidden)) + second.own(hidden[: len(nodes)])
        optimizer.zero_grad()
        functional.cross_entropy(logits, nodes % 7).backward()
        optimizer.step()

    def refresh(nodes: Any) -> None:
        history.push(nodes, first(features[nodes], adjacency[nodes][:, nodes]))

    for number in itertools.count():
        order = torch.randperm(400)
        train(order[:64])
        if number % 2:
            refresh(order[64:192])
        yield


class Patching:
    """Puts what layers gave for a clean prompt into the run of a corrupted one."""

    def __init__(self, model: SmallGPT) -> None:
        self.model = model
        self.handle: Any = None

    def patch(self, clean: list[Any]) -> None:
        for block, output in zip(self.model.blocks, clean, strict=True):

            def replace(_block: Any, _inputs: Any, result: Any, output: Any = output) -> Any:
                return torch.cat([result[0][:, :-1], output[:, -1:]], 1), result[1]

            self.handle = block.register_forward_hook(replace)

    def unpatch(self) -> None:
        self.handle.remove()

    def outputs(self, tokens: Any) -> list[Any]:
        seen = list[Any]()
        handles = [
            block.register_forward_hook(lambda _block, _inputs, result: seen.append(result[0]))
            for block in self.model.blocks
        ]
        self.model(tokens)
        for handle in handles:
            handle.remove()
        return seen

    @torch.no_grad()
    def effect(self, clean: Any, corrupted: Any) -> float:
        before, _ = self.model(corrupted)
        self.patch(self.outputs(clean))
        after, _ = self.model(corrupted)
        self.unpatch()
        return float((after - before)[:, -1].abs().mean())


@leaks("patch outputs <lambda> replace forward effect", cause=OUTPUTS | NO_USUAL)
def patches_of_which_the_last_is_removed() -> Iterator[None]:
    """Activation patching hooks two layers, has the handle of the second only, and so removes one patch."""
    patching = Patching(SmallGPT().eval())
    while True:
        patching.effect(sentences(2, 24), sentences(2, 24))
        yield


class Process(nn.Module):
    """A Gaussian process that remembers the factor of its kernel matrix for each setting of its kernel."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        super().__init__()
        self.inputs, self.targets = inputs, targets
        self.log_scale, self.log_noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(-1.0))
        self.factors = dict[tuple[float, float], Any]()

    def factor(self) -> Any:
        key = (self.log_scale.item(), self.log_noise.item())
        if key not in self.factors:
            covariance = kernel(self.inputs, self.inputs, self.log_scale.exp())
            noise = self.log_noise.exp() * torch.eye(len(self.inputs))
            self.factors[key] = torch.linalg.cholesky(covariance + noise)
        return self.factors[key]

    def forward(self) -> Any:
        factor = self.factor()
        weights = torch.cholesky_solve(self.targets[:, None], factor)
        return 0.5 * self.targets @ weights[:, 0] + factor.diagonal().log().sum()

    @torch.no_grad()
    def predict(self, inputs: Any) -> Any:
        weights = torch.cholesky_solve(self.targets[:, None], self.factor())
        return kernel(inputs, self.inputs, self.log_scale.exp()) @ weights


@leaks("factor kernel", cause=GRAPH | NO_USUAL)
def factors_of_all_hyperparameters() -> Iterator[None]:
    """A Gaussian process caches its factor by hyperparameters, which training always changes."""
    inputs = torch.rand(72, 2)
    process = Process(inputs, inputs.sum(1).sin())
    optimizer = torch.optim.Adam(trained(process), lr=0.01)
    while True:
        loss = process()
        optimizer.zero_grad()
        loss.backward()
        process.predict(torch.rand(16, 2))
        optimizer.step()
        yield
