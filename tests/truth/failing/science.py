"""Physics, weather, proteins and Gaussian processes."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import MIB, Block, failing
from tests.truth.gpu_snapshot import Gpu


def _layers(before: int, hidden: int, after: int, layers: int = 2) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(before, hidden), nn.SiLU())
    for _ in range(layers - 1):
        model.extend([nn.Linear(hidden, hidden), nn.SiLU()])
    return model.append(nn.Linear(hidden, after))


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


@failing(Gpu(420 * MIB, scale=16), "inputs", "shard others checkpoint accumulate graph giant")
def coordinates_of_a_year_sent_ahead() -> None:
    """Where a forecast is wanted is sent to the GPU for all steps before the first step of the forecast."""
    steps, decoder = Block(), nn.Sequential(nn.Linear(64 + 32, 128), nn.GELU(), nn.Linear(128, 4))
    places = np.random.default_rng(0).random((60, 4000, 32), dtype=np.float32)
    with torch.no_grad():
        coordinates = [torch.tensor(part) for part in places]
        state = torch.randn(1, 64, 64)
        errors = []
        for wanted in coordinates:
            state = steps(state)
            decoded = decoder(torch.cat([state.mean(1).expand(len(wanted), -1), wanted], 1))
            errors.append(decoded.square().mean().item())


@failing(Gpu(900 * MIB, scale=32), "graph gradients metrics", "shard others expandable giant inference")
def sharpness_of_each_step_with_its_graph() -> None:
    """A list for the plot keeps a curvature of each step, made with create_graph and so with a graph."""
    model = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weights = list(model.parameters())
    sharpness = []
    for _ in range(10):
        inputs, targets = torch.randn(512, 32), torch.randn(512, 1)
        loss = functional.mse_loss(model(inputs), targets)
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        direction = [torch.randn_like(weight) for weight in weights]
        slope = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
        products = torch.autograd.grad(slope, weights, create_graph=True)
        sharpness.append(sum((p * d).sum() for p, d in zip(products, direction, strict=True)))
        optimizer.zero_grad()
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.detach()
        optimizer.step()
    print([round(float(value), 3) for value in sharpness])
