"""Diffusion, adversaries and autoencoders."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, 32, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)
        self.middle = nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: Any) -> Any:
        skip = functional.silu(self.enter(x))
        inner = functional.silu(self.middle(functional.avg_pool2d(skip, 2)))
        return self.leave(torch.cat([skip, functional.interpolate(inner, scale_factor=2)], 1))


@failing(Gpu(500 * MIB, scale=32), "inference", "shard checkpoint accumulate others expandable giant graph")
def images_of_a_sampler_decoded_at_once() -> None:
    """A diffusion sampler's steps fit; its decoder makes 64 times as many pixels of all images at once."""
    denoiser = Denoiser()
    decoder = nn.Sequential(
        nn.Conv2d(4, 32, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=8), nn.Conv2d(32, 3, 3, padding=1)
    )

    def sample() -> Any:
        x = torch.randn(8, 4, 16, 16)
        for _ in range(4):
            guided, free = denoiser(torch.cat([x, x])).chunk(2)
            x = x - 0.1 * (free + 3 * (guided - free))
        return x

    with torch.inference_mode():
        decoder(sample())


NOT_ACTIVATIONS = "shard others expandable pad giant inference"


@failing(Gpu(340 * MIB, scale=8), BATCH, NOT_ACTIVATIONS)
def rewards_through_all_steps_of_a_sampler() -> None:
    """A diffusion model is tuned by a reward, with gradients through each of 20 steps of sampling."""
    denoise = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(24, 3, 3, padding=1),
    )
    reward = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(512, 1))
    reward.requires_grad_(False)
    optimizer = torch.optim.AdamW(denoise.parameters(), lr=1e-4)
    for _ in range(2):
        images = torch.randn(6, 3, 32, 32)
        for _ in range(20):
            images = images - 0.05 * denoise(images)
        loss = -reward(images).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _stage(before: int, after: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride=stride, padding=1), nn.BatchNorm2d(after), nn.ReLU()
    )


@failing(Gpu(400 * MIB, scale=16), "graph inference", "shard others expandable giant")
def latents_of_an_encoder_that_only_evaluates() -> None:
    """A diffusion model learns from latents; their encoder is in eval mode, but runs with autograd."""
    encoder = nn.Sequential(_stage(3, 32), _stage(32, 32), _stage(32, 48, 2), _stage(48, 48, 2))
    encoder.append(nn.Conv2d(48, 4, 1))
    encoder.eval()
    denoiser = nn.Sequential(_stage(4, 32), _stage(32, 32), nn.Conv2d(32, 4, 3, padding=1))
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=1e-4)
    for _ in range(3):
        latents = encoder(torch.randn(8, 3, 64, 64)) * 0.18
        noise, at = torch.randn_like(latents), torch.rand(8, 1, 1, 1)
        loss = functional.mse_loss(denoiser(latents * (1 - at) + noise * at), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _Decoder(nn.Module):
    """From a latent grid to an image of four times its size, with residual cells at each size."""

    def __init__(self, cells: int = 5, width: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(8, width, 1), nn.Conv2d(width, 3, 1)
        self.cells = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.BatchNorm2d(width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
                for _ in range(cells)
            )
            for _ in range(3)
        )

    def forward(self, latent: Any) -> Any:
        x = self.first(latent)
        for size, cells in enumerate(self.cells):
            x = functional.interpolate(x, scale_factor=2) if size else x
            for cell in cells:
                x = x + cell(x)
        return self.last(x).sigmoid()


@failing(Gpu(540 * MIB, scale=64), "inference graph", "shard accumulate others expandable giant")
def an_image_decoded_in_eval_mode() -> None:
    """A trained autoencoder decodes one image in eval mode, which does not turn autograd off."""
    encoder, decoder = nn.Conv2d(3, 8, 4, 4), _Decoder()
    encoder.eval()
    decoder.eval()
    decoder(encoder(torch.rand(1, 3, 96, 96)))


@failing(Gpu(1800 * MIB, scale=32), "fused_optimizer shard", "checkpoint accumulate others giant inference")
def a_wide_generator_updated_at_once() -> None:
    """Adam's foreach update of a GAN's generator makes temporaries as large as all its weights."""
    generator = nn.Sequential(nn.Linear(64, 640), nn.ReLU())
    for _ in range(6):
        generator.extend([nn.Linear(640, 640), nn.ReLU()])
    generator.append(nn.Linear(640, 768))
    critic = nn.Sequential(nn.Linear(768, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    for_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.99), foreach=True)
    for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.99), foreach=True)
    for _ in range(3):
        made = generator(torch.randn(16, 64))
        for_critic.zero_grad()
        false, true = critic(made.detach()), critic(torch.randn(16, 768))
        (functional.softplus(false) + functional.softplus(-true)).mean().backward()
        for_critic.step()
        for_generator.zero_grad()
        functional.softplus(-critic(made)).mean().backward()
        for_generator.step()
