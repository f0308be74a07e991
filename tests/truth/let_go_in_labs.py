"""What looks as if research code kept it for good, and goes: preferences, adapters, answers, rollouts, users.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.lab_code import (
    Camera,
    LoraLinear,
    Past,
    Policy,
    QNetwork,
    SmallGPT,
    Tuner,
    generate,
    log_probs,
    pooled,
)
from tests.truth.leak_loop import batch, healthy
from tests.truth.text_models import sentences


class PrecomputedPreferences(Tuner):
    """Preference optimization with what the reference thinks of each pair, which it is asked once."""

    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.reference = copy.deepcopy(self.model).requires_grad_(requires_grad=False)
        self.pairs = [(sentences(4, 48), sentences(4, 48)) for _ in range(pairs)]
        self.known = dict[int, tuple[Any, Any]]()

    @torch.no_grad()
    def of_reference(self, number: int) -> tuple[Any, Any]:
        if number not in self.known:
            chosen, rejected = self.pairs[number]
            self.known[number] = log_probs(self.reference, chosen), log_probs(self.reference, rejected)
        return self.known[number]

    def training_step(self, number: int) -> None:
        ours = [log_probs(self.model, one) for one in self.pairs[number]]
        chosen, rejected = (
            (one - other).sum(1) for one, other in zip(ours, self.of_reference(number), strict=True)
        )
        self.minimize(-functional.logsigmoid(0.1 * (chosen - rejected)).mean())


@healthy
def log_probabilities_of_fifteen_batches_of_pairs() -> Iterator[None]:
    """The reference is asked for log probabilities in the first epoch of fifteen steps, and they are kept."""
    trainer = PrecomputedPreferences(15)
    for number in itertools.count():
        trainer.training_step(number % 15)
        yield


class Merging:
    """Adapters are in the weights for a while. Can be nested."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = [one for one in model.modules() if isinstance(one, LoraLinear)]
        self.before = list[list[Any]]()

    @torch.no_grad()
    def __enter__(self) -> None:
        self.before.append([layer.base.weight.detach().clone() for layer in self.layers])
        for layer in self.layers:
            layer.base.weight += layer.delta()

    @torch.no_grad()
    def __exit__(self, *_: object) -> None:
        for layer, weight in zip(self.layers, self.before.pop(), strict=True):
            layer.base.weight.copy_(weight)


@healthy
def adapters_are_merged_to_sample() -> Iterator[None]:
    """Adapters go into the weights for three steps of sampling, then what was before comes off a stack."""
    tuner, best = Tuner(), list[Any]()
    merging = Merging(tuner.model)
    while True:
        for _ in range(4):
            tuner.train()
            yield
        with merging:
            for _ in range(3):
                best.append(generate(tuner.model, sentences(2, 8), 5).tokens)
                yield
        tuner.minimize(-log_probs(tuner.model, torch.cat(best)).mean())
        best.clear()


class Answering:
    """Decodes the answers of six requests at once; when one is done, another request takes part."""

    def __init__(self) -> None:
        self.model, self.chance = SmallGPT().eval(), random.Random(1)
        self.tokens = torch.zeros(0, 1, dtype=torch.long)
        self.left, self.past = list[int](), Past()

    def join(self) -> None:
        _, new = self.model(sentences(1, 12))
        if self.left:
            length = max(self.past[0][0].shape[1], 12)
            new = [
                tuple(
                    torch.cat([functional.pad(one, (0, 0, length - one.shape[1], 0)) for one in pair])
                    for pair in zip(old, added, strict=True)
                )
                for old, added in zip(self.past, new, strict=True)
            ]
        self.past, self.left = new, [*self.left, self.chance.randint(4, 16)]
        self.tokens = torch.cat([self.tokens, sentences(1, 1)])

    def leave(self) -> None:
        rows = [row for row, left in enumerate(self.left) if left]
        self.tokens, self.left = self.tokens[rows], [self.left[row] for row in rows]
        self.past = [(keys[rows, -27:], values[rows, -27:]) for keys, values in self.past]

    @torch.inference_mode()
    def decode(self) -> None:
        while len(self.left) < 6:
            self.join()
        logits, self.past = self.model(self.tokens, self.past)
        self.tokens, self.left = logits[:, -1:].argmax(-1), [left - 1 for left in self.left]
        self.leave()


@healthy
def answers_of_a_batch_that_is_never_empty() -> Iterator[None]:
    """Keys and values of six answers get a column in each step; rows go and come with the requests."""
    answering = Answering()
    while True:
        answering.decode()
        yield


class Rollout:
    """Lists of what happened at each time, until they have been learned from."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = defaultdict(list)

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns[name].append(value)

    def advantages(self, last: Any) -> Any:
        gains, gain, following = list[Any](), torch.zeros(()), last
        for reward, value in zip(self.columns["rewards"][::-1], self.columns["values"][::-1], strict=True):
            gain = reward + 0.99 * following - value + 0.95 * gain
            following = value
            gains.append(gain)
        return torch.stack(gains[::-1])

    def stacked(self) -> dict[str, Any]:
        return {name: torch.stack(values) for name, values in self.columns.items()}


class Proximal:
    """Proximal policy optimization."""

    def __init__(self) -> None:
        self.policy, self.rollout = Policy(), Rollout()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.0003)

    @torch.no_grad()
    def act(self, states: Any) -> None:
        chances, values = self.policy(states)
        actions = torch.multinomial(chances.exp(), 1)
        self.rollout.add(
            states=states,
            actions=actions,
            old=chances.gather(1, actions),
            values=values,
            rewards=torch.rand(len(states)),
        )

    def learn(self, data: dict[str, Any], advantages: Any) -> None:
        chances, values = self.policy(data["states"])
        ratio = torch.exp(chances.gather(-1, data["actions"]) - data["old"])[..., 0]
        surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        loss = -surrogate.mean() + functional.mse_loss(values, advantages + data["values"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


@healthy
def a_rollout_and_four_passes_over_it() -> Iterator[None]:
    """Thirteen steps in 32 environments, then four steps of learning, and the rollout begins anew."""
    proximal = Proximal()
    while True:
        for _ in range(13):
            proximal.act(batch(32))
            yield
        data = proximal.rollout.stacked()
        with torch.no_grad():
            advantages = proximal.rollout.advantages(proximal.policy(batch(32))[1])
        for _ in range(4):
            proximal.learn(data, advantages)
            yield
        proximal.rollout = Rollout()


class Member:
    """One of several networks, with a replay of its own and the last states of the episode it is in."""

    def __init__(self) -> None:
        self.network, self.environment = QNetwork(), Camera()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.001)
        self.replay, self.last = deque[tuple[Any, float, Any]](maxlen=12), dict[str, Any]()

    def play(self) -> None:
        name = self.environment.name
        before = self.last.get(name, torch.zeros(32, 32))
        with torch.no_grad():
            action = int(self.network(before[None]).argmax())
        state, reward, done = self.environment.step(action)
        self.replay.append((before, reward, state))
        self.last[name] = state
        if done:
            del self.last[name]
            self.environment = Camera()

    def learn(self) -> None:
        states, rewards, following = zip(*self.replay, strict=True)
        with torch.no_grad():
            targets = torch.tensor(rewards) + 0.9 * self.network(torch.stack(following)).amax(1)
        self.optimizer.zero_grad()
        functional.mse_loss(self.network(torch.stack(states)).amax(1), targets).backward()
        self.optimizer.step()


@healthy
def replays_of_an_ensemble() -> Iterator[None]:
    """Each of four Q networks has the last twelve transitions, and the last state of its episode by name."""
    members = [Member() for _ in range(4)]
    for number in itertools.count():
        for member in members:
            member.play()
        members[number % 4].learn()
        yield


class Histories:
    """The vectors of the last items of each user, new tensors whenever one is added."""

    def __init__(self, last: int) -> None:
        self.last, self.of_user = last, dict[int, Any]()

    def add(self, user: int, vector: Any) -> None:
        before = self.of_user.get(user)
        joined = vector[None] if before is None else torch.cat([before, vector[None]])
        self.of_user[user] = joined[-self.last :].clone()


@healthy
def histories_of_users_are_cut() -> Iterator[None]:
    """A recommender has vectors of the last eight items of each of 40 users, which are joined anew."""
    items, network = nn.Embedding(1000, 64), nn.GRU(64, 64, batch_first=True)
    optimizer = torch.optim.Adam([*items.parameters(), *network.parameters()], lr=0.001)
    histories = Histories(8)
    while True:
        users, bought = torch.randint(40, (48,)).tolist(), torch.randint(1000, (48,))
        vectors = items(bought)
        for user, vector in zip(users, vectors.detach(), strict=True):
            histories.add(user, vector)
        past = nn.utils.rnn.pad_sequence([histories.of_user[user] for user in users], batch_first=True)
        optimizer.zero_grad()
        scores = network(past)[0][:, -1] @ vectors.T
        functional.cross_entropy(scores, torch.arange(48)).backward()
        optimizer.step()
        yield


@healthy
def negatives_until_the_encoder_has_changed() -> Iterator[None]:
    """Texts are compared with those of the last steps, which go when averaged weights are put in."""
    online, momentum = nn.GRU(64, 128, batch_first=True), nn.GRU(64, 128, batch_first=True)
    optimizer, negatives = torch.optim.Adam(online.parameters(), lr=0.001), list[Any]()

    def step() -> None:
        texts = torch.rand(32, 12, 64)
        with torch.no_grad():
            keys = pooled(momentum(texts)[0])
        queries = pooled(online(texts + 0.1 * torch.randn_like(texts))[0])
        scores = queries @ torch.cat([keys, *negatives]).T / 0.1
        optimizer.zero_grad()
        functional.cross_entropy(scores, torch.arange(32)).backward()
        optimizer.step()
        negatives.append(keys)

    for number in itertools.count(1):
        step()
        if number % 19 == 0:
            negatives.clear()
            with torch.no_grad():
                for old, new in zip(momentum.parameters(), online.parameters(), strict=True):
                    old.lerp_(new, 0.5)
        yield
