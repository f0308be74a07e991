"""What ordinary training, evaluation and inference keep for good: logs, metrics, hooks, caches, states.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import itertools
import random
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.colleague_code import (
    Callback,
    Fit,
    LanguageModel,
    LazyLog,
    Metric,
    Network,
    Perplexity,
    Probe,
    accuracy,
    flat_gradient,
    perceptron,
    pictures,
    rows,
    texts,
)
from tests.truth.leak_loop import GRADIENTS, GRAPH, GROWING, METRICS, NO_USUAL, OUTPUTS, leaks


@leaks("add evaluate loss forward", cause=GRAPH)
def perplexity_of_a_language_model_in_validation() -> Iterator[None]:
    """A sum of the losses of validation, for the perplexity in the end, was made without no_grad."""
    model, perplexity = LanguageModel(), Perplexity()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

    def train(tokens: Any) -> None:
        optimizer.zero_grad()
        model.loss(tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def evaluate(tokens: Any) -> None:
        model.eval()
        perplexity.add(model.loss(tokens), tokens[:, 1:].numel())
        model.train()

    while True:
        train(texts())
        evaluate(texts(4))
        yield


@leaks("collect forward", cause=OUTPUTS)
def features_for_probes_that_are_fitted_in_the_end() -> Iterator[None]:
    """Probes of two layers collect features of a model that is fine-tuned, from its first step on."""
    model = Network()
    for weight in model.stem.parameters():
        weight.requires_grad_(False)
    Probe({"stem": model.stem, "block": model.block})
    fit = Fit(model)
    while True:
        fit.step(*pictures(8))
        yield


class Calibration(Metric):
    """Expected calibration error; also has the logits, to fit a temperature."""

    hits: list[Any]
    confidences: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("hits")
        self.add_state("confidences")
        self.logits: list[Any] = []

    def update(self, logits: Any, labels: Any) -> None:
        self.logits.append(logits)
        confidences, classes = logits.softmax(1).max(1)
        self.hits.append(classes == labels)
        self.confidences.append(confidences)

    def compute(self) -> float:
        gap = torch.cat(self.confidences).mean() - torch.cat(self.hits).float().mean()
        return float(gap.abs())


class Calibrated(Callback):
    """Computes the calibration each eighth step."""

    def __init__(self) -> None:
        self.metric, self.errors = Calibration(), list[float]()

    def after_step(self, run: Fit, outputs: Any, labels: Any) -> None:
        self.metric.update(outputs.detach(), labels)
        if run.number % 8 == 0:
            self.errors.append(self.metric.compute())
            self.metric.reset()


@leaks("update after_step forward", cause=OUTPUTS)
def logits_that_are_no_state_of_their_metric() -> Iterator[None]:
    """A metric is reset each eighth step, but its list of logits was not registered as a state."""
    fit = Fit(perceptron(), [Calibrated()])
    while True:
        fit.step(*rows())
        yield


@leaks("remember td_error act forward", cause=GRAPH)
def errors_with_graphs_as_priorities() -> Iterator[None]:
    """A prioritized replay has the error of each transition as its priority, with the graph of the values."""
    online = perceptron(32, 4)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=0.001)
    replay = deque[tuple[tuple[Any, ...], Any]](maxlen=200_000)

    def td_error(states: Any, actions: Any, rewards: Any, following: Any) -> Any:
        values = online(states).gather(1, actions[:, None]).squeeze(1)
        return rewards + 0.99 * target(following).amax(1) - values

    def remember(*transition: Any) -> None:
        replay.append((transition, td_error(*transition).abs().mean()))

    def learn() -> None:
        weights = [priority.item() for _, priority in replay]
        (transition, _), *_ = random.choices(replay, weights)
        optimizer.zero_grad()
        td_error(*transition).square().mean().backward()
        optimizer.step()

    states = torch.rand(16, 32)
    while True:
        with torch.no_grad():
            actions = online(states).argmax(1)
        following = torch.rand(16, 32)
        remember(states, actions, torch.rand(16), following)
        states = following
        learn()
        yield


class LogAccuracy(Callback):
    """Logs the accuracy of each step."""

    def __init__(self, log: LazyLog) -> None:
        self.log = log

    def after_step(self, run: Fit, outputs: Any, labels: Any) -> None:
        self.log.add(f"accuracy/{run.number}", lambda: accuracy(outputs, labels))


@leaks("add after_step forward", cause=OUTPUTS | GRAPH)
def accuracies_to_be_computed_when_written() -> Iterator[None]:
    """A log takes functions, so as not to wait for the device, and writes them when training has ended."""
    log = LazyLog()
    fit = Fit(perceptron(), [LogAccuracy(log)])
    try:
        while True:
            fit.step(*rows(96))
            yield
    finally:
        log.write()


class NoiseScale(Callback):
    """How much gradients differ from their mean."""

    def __init__(self) -> None:
        self.gradients: list[Any] = []
        self.scale = 0.0

    def after_backward(self, run: Fit) -> None:
        self.gradients.append(flat_gradient(run.model))
        if len(self.gradients) % 10 == 0:
            recent = torch.stack(self.gradients[-10:])
            self.scale = float(recent.var(0).sum() / recent.mean(0).square().sum())


@leaks("after_backward flat_gradient", cause=GRADIENTS)
def gradients_for_the_noise_scale() -> Iterator[None]:
    """A callback has the gradients of all steps, and reads the last ten of them."""
    fit = Fit(perceptron(), [NoiseScale()])
    while True:
        fit.step(*rows())
        yield


class HardSampler:
    """Draws half of a batch among the hardest samples of the last four batches."""

    def __init__(self, samples: int, size: int) -> None:
        self.samples, self.size = samples, size
        self.seen: list[tuple[Any, Any]] = []

    def draw(self) -> Any:
        fresh = torch.randint(self.samples, (self.size,))
        if not self.seen:
            return fresh
        numbers, losses = (torch.cat(parts) for parts in zip(*self.seen[-4:], strict=True))
        hardest = numbers[losses.topk(self.size // 2).indices]
        return torch.cat([hardest, fresh[self.size // 2 :]])

    def update(self, numbers: Any, losses: Any) -> None:
        self.seen.append((numbers, losses))


@leaks("update draw train", cause=METRICS)
def losses_of_all_samples_in_a_sampler() -> Iterator[None]:
    """A sampler of hard examples has numbers and losses of all batches, and looks at the last four."""
    data, labels = rows(4000)
    model, sampler = perceptron(), HardSampler(4000, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def train() -> None:
        numbers = sampler.draw()
        losses = functional.cross_entropy(model(data[numbers]), labels[numbers], reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        sampler.update(numbers, losses.detach())

    while True:
        train()
        yield


class Distillation:
    """Trains a student with the logits of a teacher, which are cached."""

    def __init__(self) -> None:
        self.teacher, self.student = Network(40).eval(), Network(40)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=0.001)
        self.cache: dict[int, Any] = {}

    @torch.no_grad()
    def teacher_logits(self, images: Any) -> Any:
        key = zlib.crc32(images.numpy().tobytes())
        if key not in self.cache:
            self.cache[key] = self.teacher(images)
        return self.cache[key]

    def step(self, images: Any) -> None:
        wanted = self.teacher_logits(images).softmax(1)
        self.optimizer.zero_grad()
        functional.cross_entropy(self.student(images), wanted).backward()
        self.optimizer.step()


@leaks("teacher_logits forward", cause=OUTPUTS | frozenset({"growing cache"}))
def teacher_logits_by_checksum_of_random_crops() -> Iterator[None]:
    """Distillation caches the teacher's logits by a checksum of the images, which are cropped at random."""
    distillation, (images, _) = Distillation(), pictures(16, 28)
    while True:
        top, left = random.randrange(9), random.randrange(9)
        crops = images[:, :, top : top + 20, left : left + 20] + 0.01 * torch.randn(16, 3, 20, 20)
        distillation.step(crops.contiguous())
        yield


class Forecaster(nn.Module):
    """Predicts the next reading of many sensors. The context is saved with the model."""

    context: Any

    def __init__(self, series: int, sensors: int) -> None:
        super().__init__()
        self.register_buffer("context", torch.zeros(series, 0, sensors))
        self.recurrent, self.head = nn.GRU(sensors, 24, batch_first=True), nn.Linear(24, sensors)

    def observe(self, reading: Any) -> None:
        self.context = torch.cat([self.context, reading[:, None]], 1)

    def forward(self) -> Any:
        _, state = self.recurrent(self.context[:, -12:])
        return self.head(state[0])


@leaks("observe", cause=GROWING)
def readings_joined_to_the_context_of_a_forecaster() -> Iterator[None]:
    """A forecaster that learns online joins each reading to its context, and reads the last twelve."""
    model = Forecaster(32, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model.observe(torch.rand(32, 16))
    while True:
        reading = torch.rand(32, 16)
        optimizer.zero_grad()
        functional.mse_loss(model(), reading).backward()
        optimizer.step()
        model.observe(reading)
        yield


@leaks("watch forward", cause=GRAPH)
def states_of_machines_that_are_watched() -> Iterator[None]:
    """Inference for five machines goes on from the state of each, and forgot no_grad."""
    cell, decoder = nn.GRUCell(20, 32).eval(), nn.Linear(32, 20).eval()
    states: dict[str, Any] = {}

    def watch(machine: str, signal: Any) -> bool:
        expected = decoder(states[machine]) if machine in states else signal
        states[machine] = cell(signal, states.get(machine))
        return float((expected - signal).abs().max()) > 3.0

    for number in itertools.count():
        watch(f"press {number % 5}", torch.rand(16, 20))
        yield


class Table:
    """Predictions, a row for each sample."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add_batch(self, first: int, logits: Any) -> None:
        for offset, (row, label) in enumerate(zip(logits, logits.argmax(1).tolist(), strict=True)):
            self.rows.append({"id": first + offset, "label": label, "logits": row})


@leaks("add_batch predict forward", cause=OUTPUTS)
def rows_of_a_table_of_predictions() -> Iterator[None]:
    """Inference over an endless stream makes a row of a table for each sample, with its logits."""
    model, table = Network(64).eval(), Table()

    @torch.inference_mode()
    def predict(number: int) -> None:
        images, _ = pictures(16)
        table.add_batch(16 * number, model(images))

    for number in itertools.count():
        predict(number)
        yield


class Soup(Callback):
    """Collects weights each second step, to average those that turn out best."""

    def __init__(self) -> None:
        self.ingredients: list[dict[str, Any]] = []

    def after_step(self, run: Fit, outputs: Any, labels: Any) -> None:
        if run.number % 2 == 0:
            weights = run.model.state_dict()
            self.ingredients.append({name: value.clone() for name, value in weights.items()})


@leaks("after_step", cause=NO_USUAL)
def ingredients_of_a_soup_of_weights() -> Iterator[None]:
    """A callback takes a copy of the weights each second step; which ones to average is decided later."""
    fit = Fit(Network(), [Soup()])
    while True:
        fit.step(*pictures(8))
        yield
