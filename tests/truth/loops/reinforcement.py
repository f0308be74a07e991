"""Agents: replays, rollouts, search trees and what policies log."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import ConcatDataset, Dataset, TensorDataset

from tests.truth.loops.loop import (
    GRAPH,
    METRICS,
    NO_USUAL,
    Convolutions,
    Trainer,
    batch,
    healthy,
    images,
    leaks,
)


@leaks("act log_prob", cause=GRAPH | METRICS)
def log_probabilities_of_all_episodes() -> Iterator[None]:
    """The end of an episode empties the list of rewards, but not that of log probabilities."""
    policy = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 6))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.001)
    log_probs, rewards = list[Any](), list[Any]()

    def act(states: Any) -> None:
        choice = Categorical(logits=policy(states))
        actions = choice.sample()
        log_probs.append(choice.log_prob(actions))
        rewards.append((actions == 2).float())

    def finish_episode() -> None:
        optimizer.zero_grad()
        (-torch.stack(log_probs[-len(rewards) :]) * torch.stack(rewards)).mean().backward()
        optimizer.step()
        rewards.clear()

    for number in itertools.count(1):
        act(torch.rand(4096, 16))
        if number % 4 == 0:
            finish_episode()
        yield


class SafePolicy:
    """A policy with a limit on its cost: the multiplier of the constraint rises while it is broken."""

    def __init__(self) -> None:
        self.policy = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8))
        self.rewards, self.costs = nn.Linear(8, 1), nn.Linear(8, 1)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.001)
        self.multiplier = torch.zeros(())

    def cost(self, states: Any) -> Any:
        return nn.functional.softplus(self.costs(self.policy(states))).mean()

    def improve(self, states: Any) -> None:
        self.optimizer.zero_grad()
        reward = self.rewards(self.policy(states)).mean()
        (self.multiplier.detach() * self.cost(states) - reward).backward()
        self.optimizer.step()

    def tighten(self, states: Any) -> None:
        self.multiplier = (self.multiplier + 0.05 * (self.cost(states) - 0.2)).clamp(min=0)


@leaks("tighten cost", cause=GRAPH)
def a_multiplier_that_knows_all_costs() -> Iterator[None]:
    """A constraint's multiplier is raised by a cost that is not detached, so its graph has all costs."""
    agent = SafePolicy()
    while True:
        states = batch()
        agent.improve(states)
        agent.tighten(states)
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


@healthy
def a_rollout_of_24_actions() -> Iterator[None]:
    """Their probabilities and values keep their graphs until the update."""
    trainer, kept = Trainer(), list[Any]()

    def act() -> None:
        output = trainer.model(batch())
        kept.append((output.log_softmax(dim=-1).max(dim=-1).values, output.mean(dim=-1)))

    def update() -> None:
        trainer.optimizer.zero_grad()
        sum(-(chosen * value).mean() for chosen, value in kept).backward()
        trainer.optimizer.step()
        kept.clear()

    for number in itertools.count(1):
        act()
        if number % 24 == 0:
            update()
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
