"""Jobs of other fields that run out of memory, as in threads on forums and in issues: genomics, weather,
medicine, Gaussian processes, diffusion, translation, detection. What helps was written down first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, failing, texts
from tests.truth.gpu_snapshot import Gpu


class _Mixes(nn.Module):
    """A residual convolution, and attention over the pixels."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.attends = Block(width)

    def forward(self, x: Any) -> Any:
        x = x + self.conv(functional.silu(self.norm(x)))
        return self.attends(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, x.shape[2:])


class _Denoiser(nn.Module):
    def __init__(self, depth: int = 6, width: int = 64) -> None:
        super().__init__()
        self.enters, self.leaves = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.blocks = nn.ModuleList(_Mixes(width) for _ in range(depth))

    def forward(self, latents: Any, prompt: Any) -> Any:
        x = self.enters(latents) + prompt[:, :, None, None]
        for block in self.blocks:
            x = block(x)
        return self.leaves(x)


@failing(Gpu(1200 * MIB, scale=32), BATCH, "shard others expandable giant inference graph")
def a_subject_taught_to_a_denoiser() -> None:
    """A denoiser and its text encoder are fine-tuned on photos of a subject; the first step does not fit."""
    encoder, denoiser = nn.Sequential(nn.Embedding(256, 64), Block(), Block()), _Denoiser()
    optimizer = torch.optim.AdamW([*encoder.parameters(), *denoiser.parameters()], lr=1e-5)
    for _ in range(2):
        latents, noise = torch.randn(4, 4, 16, 16), torch.randn(4, 4, 16, 16)
        prompt = encoder(texts(4, 77))[:, -1]
        loss = functional.mse_loss(denoiser(latents + noise, prompt), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _Deconvolution(nn.Module):
    """Counts of genes at each spot of a tissue, as a mixture of kinds of cells."""

    def __init__(self, spots: int, genes: int, kinds: int = 20) -> None:
        super().__init__()
        self.abundance = nn.Parameter(torch.randn(spots, kinds))
        self.signature = nn.Parameter(torch.rand(kinds, genes))
        self.scale, self.spread = nn.Parameter(torch.zeros(genes)), nn.Parameter(torch.ones(genes))

    def forward(self, counts: Any, rows: Any) -> Any:
        mean = functional.softplus(self.abundance[rows]) @ self.signature.exp() * self.scale.exp()
        spread = functional.softplus(self.spread)
        fits = torch.lgamma(counts + spread) - torch.lgamma(spread)
        fits = fits + spread * torch.log(spread / (mean + spread))
        return -(fits + counts * torch.log(mean / (mean + spread))).sum()


# The thread's fix is a batch size: the whole data set was one batch. A DataLoader (inputs) says it, too.
@failing(Gpu(550 * MIB, scale=16), f"{BATCH} inputs", "shard others expandable inference graph")
def counts_of_all_spots_as_one_batch() -> None:
    """Variational inference has batch_size=None: all spots of the tissue with all genes in each step."""
    counts = torch.tensor(np.random.default_rng(0).poisson(3.0, (2000, 400)).astype(np.float32))
    model = _Deconvolution(2000, 400)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for _ in range(2):
        optimizer.zero_grad()
        model(counts, slice(0, 2000)).backward()
        optimizer.step()


class _Weather(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.steps = nn.Sequential(
            nn.Conv2d(8, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, 8, 3, padding=1),
        )

    def forward(self, state: Any) -> Any:
        return state + self.steps(state)


@failing(Gpu(1250 * MIB, scale=32), BATCH, "shard others giant inference")
def days_of_weather_learned_by_rollout() -> None:
    """After single steps, a forecast is fine-tuned through twelve steps of its own results."""
    model = _Weather()
    optimizer = torch.optim.AdamW(model.parameters())
    for hours in (1, 1, 1, 12):
        state, loss = torch.randn(4, 8, 32, 64), torch.zeros(())
        for _ in range(hours):
            state = model(state)
            loss = loss + functional.mse_loss(state, torch.randn_like(state))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# The thread deletes the old output. Whoever sees large logits first and takes fewer at once is right as well.
@failing(Gpu(1250 * MIB, scale=32), f"{BATCH} giant other hooks before", "shard others inference graph")
def logits_that_live_into_the_next_step() -> None:
    """A variable of the loop holds the last step's logits until the next ones are there."""
    model = nn.Sequential(nn.Embedding(256, 64), Block(), nn.Linear(64, 4096))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        tokens = texts(8, 64)
        outputs = model(tokens)
        loss = functional.cross_entropy(outputs.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _Process(nn.Module):
    def __init__(self, inputs: Any, targets: Any) -> None:
        super().__init__()
        self.inputs, self.targets = inputs, targets
        self.length, self.noise = nn.Parameter(torch.ones(8)), nn.Parameter(torch.tensor(0.1))

    def covariance(self, first: Any, second: Any) -> Any:
        distances = torch.cdist(first / self.length, second / self.length)
        return torch.exp(-0.5 * distances.square())

    def factor(self) -> Any:
        own = self.covariance(self.inputs, self.inputs)
        return torch.linalg.cholesky(own + self.noise.square() * torch.eye(len(own)))

    def likelihood(self) -> Any:
        factor = self.factor()
        solved = torch.cholesky_solve(self.targets[:, None], factor)
        return 0.5 * (self.targets @ solved).sum() + factor.diagonal().log().sum()

    def forward(self, points: Any) -> Any:
        factor = self.factor()
        cross = self.covariance(self.inputs, points)
        mean = cross.T @ torch.cholesky_solve(self.targets[:, None], factor)
        explained = torch.linalg.solve_triangular(factor, cross, upper=False)
        return mean[:, 0], self.covariance(points, points) - explained.T @ explained


# The thread: no gradients, and fewer points at once. Each of them is enough.
@failing(Gpu(650 * MIB, scale=8), "inference giant graph", "shard others expandable accumulate")
def variances_at_every_point_of_a_map() -> None:
    """A Gaussian process predicts all test points at once, with autograd on: a square of covariances."""
    inputs = torch.randn(200, 8)
    model = _Process(inputs, inputs.sin().sum(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        model.likelihood().backward()
        optimizer.step()
    model.eval()
    mean, covariance = model(torch.randn(2400, 8))
    print(mean.mean().item(), covariance.diagonal().mean().item())


# The thread sums up on the CPU: what the windows give goes there (inference, other).
@failing(Gpu(400 * MIB, scale=16), "inference other hooks", "shard others checkpoint accumulate graph")
def organs_stitched_from_windows() -> None:
    """Volumes are segmented in windows, all classes are summed up on the GPU, and one volume is larger."""
    model = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 14, 1)).eval()
    dice = []
    with torch.no_grad():
        for side in (32, 32, 48, 32, 64):
            volume = torch.randn(1, 1, 48, side, side)
            summed, counted = torch.zeros(1, 14, 48, side, side), torch.zeros(1, 14, 48, side, side)
            for row in range(0, side, 16):
                for column in range(0, side, 16):
                    window = (..., slice(row, row + 16), slice(column, column + 16))
                    summed[window] += model(volume[window])
                    counted[window] += 1
            dice.append((summed / counted).argmax(1).float().mean().item())
