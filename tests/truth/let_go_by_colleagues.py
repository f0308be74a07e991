"""What only looks as if ordinary training, evaluation and inference kept it.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from tests.truth.leak_loop import healthy


@healthy
def perplexity_reported_each_ninth_batch() -> Iterator[None]:
    """Losses of validation are summed with their graphs, and the sum is reset each ninth batch."""
    model, perplexity = LanguageModel(), Perplexity()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for number in itertools.count(1):
        optimizer.zero_grad()
        model.loss(texts()).backward()
        optimizer.step()
        perplexity.add(model.loss(texts(4)), 64)
        if number % 9 == 0:
            perplexity.compute()
            perplexity.reset()
        yield


@healthy
def features_for_probes_fitted_each_eighth_step() -> Iterator[None]:
    """Hooks collect the features of two layers until probes are fitted to those of eight steps."""
    model, labels = Network(), list[Any]()
    probe, fit = Probe({"stem": model.stem, "block": model.block}), Fit(model)
    while True:
        images, classes = pictures(8)
        fit.step(images, classes)
        labels.append(classes)
        if fit.number % 8 == 0:
            probe.fit(torch.cat(labels))
            labels.clear()
        yield


class Ranking(Metric):
    """How often the label is among the first three, over an epoch."""

    logits: list[Any]
    labels: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("logits")
        self.add_state("labels")

    def update(self, logits: Any, labels: Any) -> None:
        self.logits.append(logits)
        self.labels.append(labels)

    def compute(self) -> float:
        first = torch.cat(self.logits).topk(3).indices
        return float((first == torch.cat(self.labels)[:, None]).any(1).float().mean())


class EachEpoch(Callback):
    """Computes a metric in the end of each epoch, and resets it."""

    def __init__(self, metric: Ranking, steps: int) -> None:
        self.metric, self.steps = metric, steps

    def after_step(self, run: Fit, outputs: Any, labels: Any) -> None:
        self.metric.update(outputs.detach(), labels)
        if run.number % self.steps == 0:
            self.metric.compute()
            self.metric.reset()


@healthy
def logits_of_a_metric_of_epochs_of_twenty_steps() -> Iterator[None]:
    """A metric has all logits of an epoch, which has twenty steps, and is then reset."""
    fit = Fit(perceptron(), [EachEpoch(Ranking(), 20)])
    while True:
        fit.step(*rows())
        yield


@dataclass
class Rollout:
    log_probs: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)

    def loss(self) -> Any:
        returns, following = list[Any](), torch.zeros(16)
        for reward in reversed(self.rewards):
            following = reward + 0.95 * following
            returns.insert(0, following)
        advantages = torch.stack(returns) - torch.stack(self.values)
        policy = -(torch.stack(self.log_probs) * advantages.detach()).mean()
        return policy + 0.5 * advantages.square().mean()


@healthy
def values_of_a_critic_in_rollouts_of_six_steps() -> Iterator[None]:
    """Actor and critic act six times with graphs, learn once from that, and begin a new rollout."""
    body, actor, critic = nn.Sequential(nn.Linear(32, 64), nn.Tanh()), nn.Linear(64, 4), nn.Linear(64, 1)
    optimizer = torch.optim.Adam(nn.ModuleList([body, actor, critic]).parameters(), lr=0.001)
    rollout = Rollout()

    def act(states: Any) -> None:
        hidden = body(states)
        choices = torch.distributions.Categorical(logits=actor(hidden))
        actions = choices.sample()
        rollout.log_probs.append(choices.log_prob(actions))
        rollout.values.append(critic(hidden).squeeze(1))
        rollout.rewards.append((actions == 0).float())

    while True:
        act(torch.rand(16, 32))
        if len(rollout.values) == 6:
            optimizer.zero_grad()
            rollout.loss().backward()
            optimizer.step()
            rollout = Rollout()
        yield


@healthy
def accuracies_written_each_fifth_step() -> Iterator[None]:
    """A log holds functions that hold outputs, and calls them all each fifth step."""
    model, log = perceptron(), LazyLog()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def train(inputs: Any, labels: Any) -> None:
        outputs = model(inputs)
        optimizer.zero_grad()
        functional.cross_entropy(outputs, labels).backward()
        optimizer.step()
        log.add("accuracy", lambda: accuracy(outputs, labels))

    for number in itertools.count(1):
        train(*rows(96))
        if number % 5 == 0:
            log.write()
        yield


class Agreement(Callback):
    """How well a gradient agrees with those of the last ten steps."""

    def __init__(self) -> None:
        self.recent = deque[Any](maxlen=10)
        self.agreement = 0.0

    def after_backward(self, run: Fit) -> None:
        gradient = functional.normalize(flat_gradient(run.model), dim=0)
        if self.recent:
            self.agreement = float((torch.stack(list(self.recent)) @ gradient).mean())
        self.recent.append(gradient)


@healthy
def gradients_compared_with_the_last_ten() -> Iterator[None]:
    """A callback has the directions of the last ten gradients in a deque."""
    fit = Fit(perceptron(), [Agreement()])
    while True:
        fit.step(*rows())
        yield


@healthy
def losses_of_the_samples_of_ten_shards() -> Iterator[None]:
    """Training goes over ten shards in turn, and has the losses of the samples of each when last seen."""
    model = perceptron()
    shards, losses_of_shard = [rows(256) for _ in range(10)], dict[int, Any]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def visit(shard: int) -> None:
        inputs, labels = shards[shard]
        losses = functional.cross_entropy(model(inputs), labels, reduction="none")
        weights = (losses.detach() - losses_of_shard.get(shard, 0.0)).softmax(0)
        losses_of_shard[shard] = losses.detach()
        optimizer.zero_grad()
        (losses * weights).sum().backward()
        optimizer.step()

    for number in itertools.count():
        visit(number % 10)
        yield


class ZeroShot:
    """Compares pictures with descriptions of classes, whose embeddings are cached by class."""

    def __init__(self) -> None:
        self.pictures, self.words = Network(256).eval(), nn.EmbeddingBag(500, 256).eval()
        self.cache: dict[str, Any] = {}

    def describe(self, name: str) -> Any:
        if name not in self.cache:
            prompts = torch.randint(500, (8, 6))
            self.cache[name] = functional.normalize(self.words(prompts).mean(0), dim=0)
        return self.cache[name]

    @torch.no_grad()
    def classify(self, images: Any, names: list[str]) -> Any:
        described = torch.stack([self.describe(name) for name in names])
        return (functional.normalize(self.pictures(images)) @ described.T).argmax(1)


@healthy
def descriptions_of_the_classes_of_a_benchmark() -> Iterator[None]:
    """A benchmark goes through its 44 classes in pairs, again and again; their embeddings are cached."""
    model = ZeroShot()
    for number in itertools.count():
        first = 2 * number % 44
        model.classify(pictures(8)[0], [f"class {first}", f"class {first + 1}"])
        yield


@healthy
def readings_of_the_last_twelve_hours() -> Iterator[None]:
    """A forecaster joins each reading to its context, and cuts off what is older than twelve readings."""
    recurrent, head = nn.GRU(16, 24, batch_first=True), nn.Linear(24, 16)
    optimizer = torch.optim.Adam([*recurrent.parameters(), *head.parameters()], lr=0.001)
    context = torch.rand(32, 1, 16)

    def learn(past: Any, reading: Any) -> None:
        optimizer.zero_grad()
        functional.mse_loss(head(recurrent(past)[1][0]), reading).backward()
        optimizer.step()

    while True:
        reading = torch.rand(32, 16)
        learn(context, reading)
        context = torch.cat([context, reading[:, None]], 1)[:, -12:]
        yield


class Visits:
    """A recommender that learns from each visit of a shop when it is over."""

    def __init__(self, length: int) -> None:
        self.items, self.cell, self.length = nn.Embedding(300, 32), nn.GRUCell(32, 32), length
        parameters = [*self.items.parameters(), *self.cell.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.05)
        self.states: dict[str, Any] = {}
        self.losses: dict[str, list[Any]] = {}

    def click(self, visitor: str, clicked: Any) -> None:
        state = self.states.get(visitor)
        losses = self.losses.setdefault(visitor, [])
        if state is not None:
            losses.append(functional.cross_entropy(state @ self.items.weight.detach().T, clicked))
        self.states[visitor] = self.cell(self.items(clicked), state)
        if len(losses) == self.length:
            self.leave(visitor)

    def leave(self, visitor: str) -> None:
        del self.states[visitor]
        torch.stack(self.losses.pop(visitor)).mean().backward()
        if not self.states:  # graphs of other visits need the weights as they are
            self.optimizer.step()
            self.optimizer.zero_grad()


@healthy
def visits_of_three_who_come_in_turn() -> Iterator[None]:
    """Three visitors click in turn; each has a state with its graph until the visit is over."""
    visits = Visits(3)
    for number in itertools.count():
        visitor, visit = number % 3, number // 12
        visits.click(f"visitor {visitor}, visit {visit}", torch.randint(300, (16,)))
        yield


class Gallery(Callback):
    """The pictures of which a model was most sure, and wrong, in the order of their losses."""

    def __init__(self, most: int) -> None:
        self.most, self.worst = most, list[tuple[float, int, Any]]()

    def offer(self, number: int, pictures_of_step: Any, losses: Any) -> None:
        loss, index = losses.max(0)
        self.worst.append((float(loss), number, pictures_of_step[int(index)].clone()))
        self.worst.sort(key=lambda one: one[:2], reverse=True)
        del self.worst[self.most :]


@healthy
def the_ten_worst_pictures_of_an_evaluation() -> Iterator[None]:
    """Each step offers its worst picture to a gallery of ten, which is sorted and cut."""
    fit, gallery = Fit(Network()), Gallery(10)

    @torch.no_grad()
    def evaluate() -> None:
        images, labels = pictures(16)
        losses = functional.cross_entropy(fit.model(images), labels, reduction="none")
        gallery.offer(fit.number, images, losses)

    while True:
        fit.step(*pictures(8))
        evaluate()
        yield


class LatestWeights(Callback):
    """A model whose weights are the mean of the last checkpoints."""

    def __init__(self, checkpoints: int, every: int) -> None:
        self.checkpoints, self.every = deque[dict[str, Any]](maxlen=checkpoints), every
        self.mean: dict[str, Any] = {}

    def after_step(self, run: Fit, outputs: Any, labels: Any) -> None:
        if run.number % self.every:
            return
        weights = run.model.state_dict()
        self.checkpoints.append({name: value.clone() for name, value in weights.items()})
        self.mean = {name: torch.stack([one[name] for one in self.checkpoints]).mean(0) for name in weights}


@healthy
def a_mean_of_five_checkpoints_two_steps_apart() -> Iterator[None]:
    """A callback copies the weights each second step, and averages the last five copies."""
    fit = Fit(Network(), [LatestWeights(5, every=2)])
    while True:
        fit.step(*pictures(8))
        yield
