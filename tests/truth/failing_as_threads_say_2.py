"""Jobs that run out of memory as in threads on forums whose cause was found: validation, sampling, physics.

Each is code of its own with the mechanism that the thread ended with. What helps was written down, and tried
in the model of the allocator, before any of them was diagnosed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, failing
from tests.truth.failing_as_threads_say import update
from tests.truth.gpu_snapshot import Gpu


class _Translator(nn.Module):
    """Images and a domain for each to images of that domain."""

    def __init__(self, domains: int = 5, width: int = 16) -> None:
        super().__init__()
        self.domains, self.first = domains, nn.Conv2d(3 + domains, width, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.InstanceNorm2d(width), nn.ReLU())
            for _ in range(4)
        )
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, images: Any, domain: Any) -> Any:
        planes = functional.one_hot(domain, self.domains).float()[:, :, None, None]
        x = self.first(torch.cat([images, planes.expand(-1, -1, *images.shape[2:])], 1))
        for block in self.body:
            x = x + block(x)
        return self.last(x).tanh()


@failing(Gpu(500 * MIB, scale=32), "graph inference hooks other", "shard others expandable giant accumulate")
def a_grid_of_domains_sampled_with_gradients() -> None:
    """Every third step, a translator of images joins a grid of samples of all domains, with autograd on."""
    generator, critic = _Translator(), nn.Sequential(nn.Conv2d(3, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 1, 4))
    makes, judges = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    shown = torch.randn(4, 3, 32, 32)
    for step in range(6):
        images, domain = torch.randn(4, 3, 32, 32), torch.randint(0, 5, (4,))
        fake = generator(images, domain)
        update(judges, critic(fake.detach()).mean() - critic(images).mean())
        update(makes, -critic(fake).mean())
        if step % 3 == 2:
            grid = [shown]
            for wanted in range(5):
                grid.append(generator(shown, torch.full((4,), wanted)))
            torch.cat(grid, 3).add(1).div(2)


class _Streets(nn.Module):
    """Scores of 19 classes for each pixel, at the size of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 19, 1),
        )

    def forward(self, images: Any) -> Any:
        return functional.interpolate(self.body(images), images.shape[2:], mode="bilinear")


@failing(Gpu(720 * MIB, scale=64), "inference precision", "shard checkpoint accumulate others expandable")
def streets_validated_at_several_scales() -> None:
    """After an epoch on crops, a validation scores whole photos at three scales and averages them."""
    model = _Streets()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(4):
        images, labels = torch.randn(2, 3, 48, 48), torch.randint(0, 19, (2, 48, 48))
        update(optimizer, functional.cross_entropy(model(images), labels))
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            photo = torch.randn(1, 3, 96, 192)
            scores: Any = 0
            for scale in (0.5, 1.0, 2.0):
                found = model(functional.interpolate(photo, scale_factor=scale)).softmax(1)
                scores = scores + functional.interpolate(found, photo.shape[2:], mode="bilinear")
            scores.argmax(1)


class _Speech(nn.Module):
    """Whether somebody speaks, for each 16 samples."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 32, 8, 4, padding=2),
            nn.ReLU(),
            nn.Conv1d(32, 64, 8, 4, padding=2),
            nn.ReLU(),
            nn.Conv1d(64, 64, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(64, 1, 1),
        )

    def forward(self, sound: Any) -> Any:
        return self.body(sound[:, None])[:, 0]


@failing(Gpu(1200 * MIB, scale=32), "inference precision", "shard checkpoint accumulate others expandable")
def calls_without_a_limit_in_validation() -> None:
    """The training cuts recordings after some seconds, and the validation takes calls of any length."""
    model = _Speech()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        found = model(torch.randn(8, 4000))
        update(optimizer, functional.binary_cross_entropy_with_logits(found, torch.rand_like(found)))
    model.eval()
    with torch.no_grad():
        for samples in (6000, 16000, 9000, 640000):
            model(torch.randn(1, samples)).sigmoid()


@failing(Gpu(800 * MIB, scale=64), "graph inference hooks other", "shard others expandable giant")
def clips_described_by_a_video_network() -> None:
    """Clip by clip, a network in eval mode describes a video; the features are kept with their graphs."""
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3, (1, 2, 2), padding=1),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 16, 3, (1, 2, 2), padding=1),
        nn.BatchNorm3d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
    )
    model.eval()
    features = []
    for _ in range(32):
        clip = torch.randn(1, 3, 16, 32, 32)
        features.append(model(clip))
    torch.cat(features)


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


def _residual(model: nn.Module, points: Any) -> Any:
    """What is left of the heat equation, for each point (x, t)."""
    points.requires_grad_()
    heat = model(points)
    first = torch.autograd.grad(heat.sum(), points, create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0]
    return first[:, 1] - 0.1 * second[:, 0]


@failing(
    Gpu(800 * MIB, scale=32),
    "graph metrics gradients other",
    "shard others expandable giant inference",
)
def residuals_added_up_for_the_report() -> None:
    """A physics network adds up its error at test points, a tensor with the graph of its derivatives."""
    model = nn.Sequential(
        nn.Linear(2, 48),
        nn.Tanh(),
        nn.Linear(48, 48),
        nn.Tanh(),
        nn.Linear(48, 48),
        nn.Tanh(),
        nn.Linear(48, 1),
    )
    optimizer = torch.optim.Adam(model.parameters())
    error: Any = 0
    for _ in range(16):
        update(optimizer, _residual(model, torch.rand(400, 2)).square().mean())
        error = error + _residual(model, torch.rand(400, 2)).square().mean()


@failing(Gpu(740 * MIB, scale=64), f"inference graph {BATCH}", "shard others expandable giant")
def latents_encoded_inside_the_step() -> None:
    """The steps of a diffusion model encode images with an autoencoder that does not train, with autograd."""
    encoder = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(32, 32, 3, 2, padding=1),
        nn.SiLU(),
        nn.Conv2d(32, 4, 3, 2, padding=1),
    )
    denoiser = nn.Sequential(
        nn.Conv2d(8, 48, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(48, 48, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(48, 4, 3, padding=1),
    )
    optimizer = torch.optim.AdamW(denoiser.parameters())
    for _ in range(3):
        given, wanted = encoder(torch.rand(4, 3, 48, 48)), encoder(torch.rand(4, 3, 48, 48))
        noise = torch.randn_like(wanted)
        found = denoiser(torch.cat([given, wanted + noise], 1))
        update(optimizer, functional.mse_loss(found, noise))


@failing(Gpu(1000 * MIB, scale=16), "giant", "shard checkpoint accumulate others expandable")
def labels_voted_by_neighbours() -> None:
    """A classifier by nearest neighbours takes the distances of all test images to all training images."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 32)).eval()
    with torch.no_grad():
        known = torch.cat([model(torch.randn(500, 3, 8, 8)) for _ in range(12)])
        asked = torch.cat([model(torch.randn(500, 3, 8, 8)) for _ in range(8)])
        labels = torch.randint(0, 10, (6000,))
        nearest = torch.cdist(asked, known).topk(5, largest=False).indices
        labels[nearest].mode(1)
