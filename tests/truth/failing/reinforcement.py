"""Agents and their memories."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.truth.failing.job import MIB, failing
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(180 * MIB, scale=16), "other metrics hooks", "shard checkpoint others giant graph")
def replay_memory_without_end() -> None:
    """States of each step are kept on the GPU, in a list that is never cut."""
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256))
    optimizer, memory = torch.optim.Adam(model.parameters()), []

    def remember(state: Any) -> None:
        memory.append(state * 2)

    for _ in range(60):
        state = torch.randn(128, 256)
        remember(state)
        optimizer.zero_grad()
        (model(state) - state).square().mean().backward()
        optimizer.step()


@failing(
    Gpu(900 * MIB, scale=16), "larger cache other", "shard checkpoint accumulate others expandable giant"
)
def observations_of_many_robots_joined() -> None:
    """An agent collects a rollout; each step joins what 128 robots see with all that they saw before."""
    policy = nn.Sequential(nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 6))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    seen, taken = torch.empty(0, 128, 1, 24, 24), torch.empty(0, 128, dtype=torch.long)
    with torch.no_grad():
        for _ in range(128):
            now = torch.rand(128, 1, 24, 24)
            action = policy(now).softmax(-1).multinomial(1).squeeze(1)
            seen, taken = torch.cat([seen, now[None]]), torch.cat([taken, action[None]])
    rewards = torch.randn(taken.shape)
    for step in range(0, 128, 4):
        chances = policy(seen[step : step + 4].flatten(0, 1)).log_softmax(-1)
        chosen = chances.gather(1, taken[step : step + 4].reshape(-1, 1)).squeeze(1)
        optimizer.zero_grad()
        (-chosen * rewards[step : step + 4].flatten()).mean().backward()
        optimizer.step()


@failing(Gpu(700 * MIB, scale=16), "giant", "shard others expandable pad checkpoint accumulate inference")
def a_target_for_every_pair_of_states() -> None:
    """Values of shape [N, 1] minus targets of shape [N], in the update of a Q network."""
    online, target = (nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 6)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    for rows in (256, 512, 3072):
        states, following = torch.randn(rows, 24), torch.randn(rows, 24)
        actions, rewards = torch.randint(0, 6, (rows, 1)), torch.randn(rows)
        with torch.no_grad():
            wanted = rewards + 0.99 * target(following).max(1).values
        error = online(states).gather(1, actions) - wanted
        loss = torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
