"""What research code keeps for good: preferences, adapters, answers, rollouts, games.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.lab_code import (
    Camera,
    LoraLinear,
    QNetwork,
    Sample,
    Tuner,
    generate,
    log_probs,
)
from tests.truth.leak_loop import (
    GRAPH,
    GROWING,
    METRICS,
    NO_USUAL,
    OUTPUTS,
    leaks,
)
from tests.truth.text_models import WORDS, sentences


class Preferences(Tuner):
    """Direct preference optimization. Metrics wait by split until log() averages them."""

    def __init__(self) -> None:
        super().__init__()
        self.reference = copy.deepcopy(self.model).requires_grad_(requires_grad=False)
        self.stored: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))

    def rewards(self, tokens: Any) -> tuple[Any, Any]:
        with torch.no_grad():
            reference = log_probs(self.reference, tokens)
        policy = log_probs(self.model, tokens)
        return 0.1 * (policy - reference), policy.detach()

    def get_batch_loss_metrics(self, length: int) -> tuple[Any, dict[str, Any]]:
        chosen, of_chosen = self.rewards(sentences(4, length))
        rejected, of_rejected = self.rewards(sentences(4, length))
        loss = -functional.logsigmoid(chosen.sum(1) - rejected.sum(1)).mean()
        return loss, {
            "rewards/chosen": chosen.detach(),
            "rewards/rejected": rejected.detach(),
            "logps/chosen": of_chosen,
            "logps/rejected": of_rejected,
        }

    def store_metrics(self, metrics: dict[str, Any], split: str) -> None:
        for name, value in metrics.items():
            self.stored[split][name].append(value)

    def training_step(self) -> None:
        loss, metrics = self.get_batch_loss_metrics(32)
        self.store_metrics(metrics, "train")
        self.minimize(loss)

    @torch.no_grad()
    def evaluate(self) -> None:
        for _ in range(3):
            _, metrics = self.get_batch_loss_metrics(80)
            self.store_metrics(metrics, "eval")

    def log(self) -> dict[str, float]:
        stored = self.stored.pop("train", {})
        return {name: float(torch.cat(values).mean()) for name, values in stored.items()}


@leaks("store_metrics rewards log_probs get_batch_loss_metrics evaluate", cause=METRICS | NO_USUAL)
def rewards_of_tokens_in_evaluations() -> Iterator[None]:
    """Preference training logs and drops the metrics of training, but those of evaluation only wait."""
    trainer = Preferences()
    for number in itertools.count():
        trainer.training_step()
        if number % 2:
            trainer.evaluate()
        if number % 5 == 4:
            trainer.log()
        yield


class MergeAdapters:
    """Puts adapters into the weights for fast sampling, and the weights before back afterwards."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = [one for one in model.modules() if isinstance(one, LoraLinear)]
        self.backups = list[list[Any]]()

    @torch.no_grad()
    def merge(self) -> None:
        self.backups.append([layer.base.weight.detach().clone() for layer in self.layers])
        for layer in self.layers:
            layer.base.weight += layer.delta()

    @torch.no_grad()
    def unmerge(self) -> None:
        for layer, weight in zip(self.layers, self.backups[-1], strict=True):
            layer.base.weight.copy_(weight)


@leaks("merge", cause=NO_USUAL)
def weights_before_each_merge_of_adapters() -> Iterator[None]:
    """Each fourth step merges adapters to sample, and looks at the weights before without taking them off."""
    tuner = Tuner()
    adapters = MergeAdapters(tuner.model)
    for number in itertools.count():
        tuner.train()
        if number % 4 == 3:
            adapters.merge()
            generate(tuner.model, sentences(1, 8), 4)
            adapters.unmerge()
        yield


class BestOf:
    """Samples four answers to a prompt; the best of them becomes training data."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.accepted = model, list[Sample]()

    def collect(self) -> None:
        prompt = sentences(1, 12)
        answers = [generate(self.model, prompt, 3) for _ in range(3)]
        self.accepted.append(max(answers, key=lambda one: one.score))

    def draw(self, rows: int) -> Any:
        return torch.cat([one.tokens for one in self.accepted[-rows:]])


@leaks("collect generate forward", cause=OUTPUTS | GROWING | NO_USUAL)
def best_answers_with_keys_and_values() -> Iterator[None]:
    """Accepted answers are kept to be trained on, but as generate() gave them, with keys and values."""
    tuner = Tuner()
    best = BestOf(tuner.model)
    while True:
        best.collect()
        tuner.minimize(-log_probs(tuner.model, best.draw(4)).mean())
        yield


@functools.lru_cache(maxsize=None)  # noqa: UP033
def block_mask(lengths: tuple[int, ...]) -> Any:
    """Tokens see earlier ones of the same document only."""
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return (document[:, None] == document).tril()


@leaks("block_mask", cause=NO_USUAL)
def masks_by_lengths_of_packed_documents() -> Iterator[None]:
    """The mask of a packed sequence is cached by its documents' lengths, which are never the same again."""
    tuner, chance = Tuner(), random.Random(4)

    def pack(length: int = 128) -> tuple[Any, tuple[int, ...]]:
        lengths = list[int]()
        while sum(lengths) < length:
            lengths.append(min(chance.randint(5, 60), length - sum(lengths)))
        return torch.cat([sentences(1, one) for one in lengths], 1), tuple(lengths)

    try:
        while True:
            tokens, lengths = pack()
            logits, _ = tuner.model(tokens, mask=block_mask(lengths))
            tuner.minimize(functional.cross_entropy(logits[0, :-1], tokens[0, 1:]))
            yield
    finally:
        block_mask.cache_clear()


@dataclass
class Experience:
    """Answers, what the policy thought of them then, and how much better than others they are."""

    tokens: Any
    old: Any
    advantages: Any


class GroupPolicy(Tuner):
    """Policy optimization with groups of answers to one prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.reference = copy.deepcopy(self.model).eval()
        self.curves: dict[str, list[Any]] = defaultdict(list)

    def make_experience(self) -> Experience:
        tokens = generate(self.model, sentences(1, 16).expand(4, -1), 6).tokens
        old = log_probs(self.model, tokens)
        with torch.no_grad():
            reference = log_probs(self.reference, tokens)
        rewards = tokens.float().mean(1) - WORDS / 2
        self.curves["kl"].append((old - reference).mean())
        self.curves["reward"].append(rewards.mean())
        return Experience(tokens, old.detach(), (rewards - rewards.mean()) / (rewards.std() + 1e-6))

    def learn(self, experience: Experience) -> None:
        ratio = torch.exp(log_probs(self.model, experience.tokens) - experience.old)
        clipped = ratio.clamp(0.8, 1.2) * experience.advantages[:, None]
        self.minimize(-torch.minimum(ratio * experience.advantages[:, None], clipped).mean())


@leaks("make_experience log_probs forward", cause=GRAPH)
def divergences_for_a_curve() -> Iterator[None]:
    """The divergence from the reference is listed for a curve; its log probabilities have a graph."""
    policy = GroupPolicy()
    while True:
        policy.learn(policy.make_experience())
        yield


class Actor:
    """Plays in four environments, and makes transitions over three steps of what each of them gave last."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.environments = network, [Camera() for _ in range(4)]
        self.last: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=3))
        self.chance = random.Random(6)

    @torch.no_grad()
    def act(self, state: Any) -> int:
        if self.chance.random() < 0.3:
            return self.chance.randrange(6)
        return int(self.network(state[None]).argmax())

    def play(self) -> list[tuple[Any, float, Any]]:
        transitions = list[tuple[Any, float, Any]]()
        for number, environment in enumerate(self.environments):
            last = self.last[environment.name]
            action = self.act(last[-1][0] if last else torch.rand(32, 32))
            state, reward, done = environment.step(action)
            last.append((state, reward))
            if len(last) == last.maxlen:
                transitions.append((last[0][0], sum(gain for _, gain in last), state))
            if done:
                self.environments[number] = Camera()
        return transitions


@leaks("play step", cause=NO_USUAL | METRICS)
def last_steps_of_environments_that_are_over() -> Iterator[None]:
    """Q-learning has the last three states of each environment by name, and a new episode has a new name."""
    network = QNetwork()
    optimizer, actor = torch.optim.Adam(network.parameters(), lr=0.001), Actor(network)
    replay = deque[tuple[Any, float, Any]](maxlen=40)
    while True:
        replay.extend(actor.play())
        if replay:
            states, rewards, following = zip(*list(replay)[-8:], strict=True)
            with torch.no_grad():
                targets = torch.tensor(rewards) + 0.9 * network(torch.stack(following)).amax(1)
            optimizer.zero_grad()
            functional.mse_loss(network(torch.stack(states)).amax(1), targets).backward()
            optimizer.step()
        yield


class Evaluations:
    """What a network thinks of positions, until a better one takes its place."""

    def __init__(self, network: nn.Module) -> None:
        self.network, self.known = network, dict[bytes, tuple[Any, Any]]()

    @torch.no_grad()
    def evaluate(self, positions: Any) -> None:
        new = [one for one in positions if one.numpy().tobytes() not in self.known]
        if not new:
            return
        answers = self.network(torch.stack(new))
        for position, answer in zip(new, answers, strict=True):
            self.known[position.numpy().tobytes()] = answer[:-1], answer[-1]

    def promote(self, candidate: nn.Module) -> None:
        self.network.load_state_dict(candidate.state_dict())
        self.known.clear()


@leaks("evaluate", cause=OUTPUTS)
def positions_until_a_network_is_promoted() -> Iterator[None]:
    """Self-play caches what the best network thinks of positions, and no candidate beats it by enough."""
    best = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 82))
    candidate, won = copy.deepcopy(best), 0.5
    optimizer, evaluations = torch.optim.SGD(candidate.parameters(), lr=0.01), Evaluations(best)
    while True:
        positions = torch.randint(-1, 2, (40, 64)).float()
        evaluations.evaluate(positions)
        targets = torch.stack([evaluations.known[one.numpy().tobytes()][0] for one in positions])
        optimizer.zero_grad()
        functional.mse_loss(candidate(positions)[:, :-1], targets.softmax(1)).backward()
        optimizer.step()
        won = 0.9 * won + 0.1 * float(torch.rand(()) > 0.5)
        if won > 0.95:
            evaluations.promote(candidate)
        yield
