"""Jobs that run out of a GPU's memory, of reasons that people ask about on forums: agents, science, searches.

What helps was found by running each with the advice, before any of them was diagnosed.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, failing
from tests.truth.gpu_snapshot import Gpu


def _layers(before: int, hidden: int, after: int, layers: int = 2) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(before, hidden), nn.SiLU())
    for _ in range(layers - 1):
        model.extend([nn.Linear(hidden, hidden), nn.SiLU()])
    return model.append(nn.Linear(hidden, after))


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


class _World(nn.Module):
    """Guesses the next state of an environment, and the reward."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.act, self.gate = nn.Linear(width, 8), nn.Linear(width + 8, width)
        self.new, self.reward = nn.Linear(width + 8, width), nn.Linear(width, 1)

    def forward(self, state: Any) -> Any:
        both = torch.cat([state, self.act(state).tanh()], -1)
        gate = self.gate(both).sigmoid()
        state = gate * state + (1 - gate) * self.new(both).tanh()
        return state, self.reward(state)


@failing(Gpu(480 * MIB, scale=16), "checkpoint accumulate", "shard others expandable giant inference")
def dreams_of_an_agent() -> None:
    """An agent learns from imagined futures: 512 of them, for 40 steps, with the gradient through all."""
    world = _World()
    optimizer = torch.optim.Adam(world.parameters(), lr=1e-4)
    for horizon in (5, 15, 40):
        state, rewards = torch.randn(512, 96), []
        for _ in range(horizon):
            state, reward = world(state)
            rewards.append(reward)
        optimizer.zero_grad()
        (-torch.stack(rewards).mean()).backward()
        optimizer.step()


@failing(Gpu(1000 * MIB, scale=16), "graph gradients", "shard others expandable giant accumulate")
def molecules_that_move_under_learned_forces() -> None:
    """A trained potential moves atoms; its forces have create_graph=True, so all steps hang together."""
    potential = _layers(16, 32, 1)
    optimizer = torch.optim.Adam(potential.parameters(), lr=1e-3)
    centres = torch.linspace(0, 6, 16)

    def energy(places: Any) -> Any:
        apart = (places[:, None] - places[None]).square().sum(-1).add(1e-3).sqrt()
        return potential((-(apart[..., None] - centres).square()).exp()).sum()

    def forces(places: Any) -> Any:
        return -torch.autograd.grad(energy(places), places, create_graph=True)[0]

    for _ in range(4):
        places = torch.randn(48, 3, requires_grad=True)
        optimizer.zero_grad()
        functional.mse_loss(forces(places), torch.randn(48, 3)).backward()
        optimizer.step()
    places, speed = torch.randn(64, 3, requires_grad=True), torch.zeros(64, 3)
    for _ in range(40):
        speed = speed + 0.01 * forces(places)
        places = places + 0.01 * speed


@failing(Gpu(500 * MIB, scale=32), "checkpoint", "shard accumulate others expandable giant inference")
def a_spill_traced_back_through_a_flow() -> None:
    """The source of a spill is fitted through 100 steps of a simulation of one field."""
    source = torch.zeros(128, 128, requires_grad=True)
    spread = torch.full((128, 128), 0.1, requires_grad=True)
    optimizer = torch.optim.Adam([source, spread], lr=0.05)

    def after(field: Any) -> Any:
        around = field.roll(1, 0) + field.roll(-1, 0) + field.roll(1, 1) + field.roll(-1, 1) - 4 * field
        carried = field.roll(1, 1) - field
        return field + spread * around + 0.05 * carried * (1 - field.square())

    measured = torch.rand(128, 128)
    for steps in (30, 100):
        field = source
        for _ in range(steps):
            field = after(field)
        optimizer.zero_grad()
        functional.mse_loss(field, measured).backward()
        optimizer.step()


class _Notebook:
    """What the last line of a cell gives is shown, and kept in Out."""

    def __init__(self) -> None:
        self.out: dict[int, Any] = {}

    def run(self, cell: Any) -> None:
        result = cell()
        if result is not None:
            self.out[len(self.out) + 1] = result
            print(tuple(result.shape))


@failing(
    Gpu(1250 * MIB, scale=16), "before other hooks", "shard checkpoint accumulate others expandable giant"
)
def pictures_shown_in_a_notebook() -> None:
    """Cells end with a tensor to look at; Out keeps each one, and the training cell has no room left."""
    notebook = _Notebook()
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 12, 3, padding=1))
    model.append(nn.PixelShuffle(2))

    def look(size: int) -> Any:
        with torch.no_grad():
            return model(torch.rand(8, 3, size, size))

    def train() -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            small, large = torch.rand(16, 3, 96, 96), torch.rand(16, 3, 192, 192)
            optimizer.zero_grad()
            functional.l1_loss(model(small), large).backward()
            optimizer.step()

    for size in (64, 96, 96, 128, 128, 128, 128, 128):
        notebook.run(lambda size=size: look(size))
    notebook.run(train)


@failing(Gpu(1500 * MIB, scale=32), "models", "shard checkpoint accumulate others expandable giant")
def the_best_of_six_learning_rates() -> None:
    """A search keeps the best model, and makes each new one beside the last one and its optimizer."""
    best, least = None, float("inf")
    for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5):
        model = _layers(64, 512, 1, layers=9)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(2):
            values, wanted = torch.randn(32, 64), torch.randn(32, 1)
            loss = functional.mse_loss(model(values), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if loss.item() < least or best is None:
            best, least = model, loss.item()


def _saved_detector() -> io.BytesIO:
    """A checkpoint as a file: weights, their average, the best ones, and the state of Adam."""
    with torch.device("meta"):
        model = _detector()

    def arrays() -> dict[str, Any]:
        return {name: torch.from_numpy(np.zeros(x.shape, np.float32)) for name, x in model.named_parameters()}

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    state = [
        {"exp_avg": a, "exp_avg_sq": b} for a, b in zip(arrays().values(), arrays().values(), strict=True)
    ]
    steps = {i: {"step": torch.tensor(100.0), **one} for i, one in enumerate(state)}
    groups = optimizer.state_dict()["param_groups"]
    file = io.BytesIO()
    saved = {"model": arrays(), "ema": arrays(), "best": arrays()}
    torch.save({**saved, "optimizer": {"state": steps, "param_groups": groups}}, file)
    file.seek(0)
    return file


def _detector() -> nn.Sequential:
    backbone = nn.Sequential(nn.Conv2d(3, 64, 7, stride=4, padding=3), nn.ReLU())
    for width in (64, 128, 256):
        backbone.extend([nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU()])
    return backbone.append(nn.Conv2d(512, 9 * 5, 1))


@failing(Gpu(1450 * MIB, scale=32), "load before", "shard checkpoint accumulate others expandable giant")
def a_detector_resumed_from_its_checkpoint() -> None:
    """All of a checkpoint is loaded onto the GPU, and stays there while the training goes on."""
    saved = torch.load(_saved_detector())
    model = _detector()
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    optimizer.load_state_dict(saved["optimizer"])
    for _ in range(3):
        found, wanted = model(torch.rand(2, 3, 128, 128)), torch.rand(2, 45, 4, 4)
        optimizer.zero_grad()
        functional.smooth_l1_loss(found, wanted).backward()
        optimizer.step()


@failing(Gpu(1080 * MIB, scale=32), "expandable", "shard accumulate others giant inference")
def pairs_of_proteins_of_many_lengths() -> None:
    """Each step has two chains of new lengths: one splits large cached blocks, the other fits in none."""
    model = _layers(32, 256, 32, layers=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for receptor, ligand in ((900, 130), (1000, 100), (520, 980)):
        first, second = model(torch.randn(receptor, 32)), model(torch.randn(ligand, 32))
        loss = functional.softplus(-first.mean(0) @ second.mean(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
