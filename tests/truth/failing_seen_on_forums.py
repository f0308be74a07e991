"""Jobs that run out of a GPU's memory, of reasons that people ask about on forums: vision and generation.

What helps was found by running each with the advice, before any of them was diagnosed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, failing
from tests.truth.gpu_snapshot import Gpu


def _stage(before: int, after: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride=stride, padding=1), nn.BatchNorm2d(after), nn.ReLU()
    )


@failing(Gpu(900 * MIB, scale=32), "graph metrics inference", "shard others expandable giant accumulate")
def organs_validated_with_a_running_sum() -> None:
    """The losses of the validation scans are added up with autograd on, so each graph hangs on the sum."""
    model = nn.Sequential(_stage(1, 12), _stage(12, 24, 2), _stage(24, 24), nn.Upsample(scale_factor=2))
    model.append(nn.Conv2d(24, 5, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        model.train()
        for _ in range(4):
            scans, organs = torch.randn(4, 1, 48, 48), torch.randint(0, 5, (4, 48, 48))
            optimizer.zero_grad()
            functional.cross_entropy(model(scans), organs).backward()
            optimizer.step()
        model.eval()
        total = torch.zeros(())
        for _ in range(30):
            scans, organs = torch.randn(4, 1, 48, 48), torch.randint(0, 5, (4, 48, 48))
            total = total + functional.cross_entropy(model(scans), organs)
        print(f"validation {total.item() / 30:.3f}")


class _SpaceTime(nn.Module):
    """Every patch of every frame attends to every other one."""

    def __init__(self, width: int = 48, heads: int = 3) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.heads = heads

    def forward(self, x: Any) -> Any:
        rows, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(rows, length, width))


@failing(Gpu(1250 * MIB, scale=16), "attention checkpoint", "shard others expandable inference accumulate")
def a_clip_as_one_sequence_of_patches() -> None:
    """A video transformer attends over all patches of one clip, and keeps the weights of each layer."""
    patch = nn.Conv3d(3, 48, (2, 8, 8), stride=(2, 8, 8))
    layers = nn.Sequential(*(_SpaceTime() for _ in range(8)))
    head = nn.Linear(48, 20)
    parameters = [*patch.parameters(), *layers.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-4)
    for frames in (4, 8, 16):
        clip, action = torch.randn(1, 3, frames, 96, 96), torch.randint(0, 20, (1,))
        tokens = patch(clip).flatten(2).transpose(1, 2)
        loss = functional.cross_entropy(head(layers(tokens).mean(1)), action)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _HeatMap:
    """Grad-CAM: weighs the activations of a layer by their gradients."""

    def __init__(self, model: nn.Module, layer: nn.Module) -> None:
        self.model = model
        self.activations: list[Any] = []
        self.gradients: list[Any] = []
        layer.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self.activations.append(output)
        output.register_hook(self.gradients.append)

    def of(self, images: Any) -> Any:
        scores = self.model(images)
        self.model.zero_grad()
        scores.max(1).values.sum().backward()
        weights = self.gradients[-1].mean((2, 3), keepdim=True)
        return (weights * self.activations[-1]).sum(1).relu()


@failing(Gpu(1000 * MIB, scale=32), "hooks other", "shard checkpoint others expandable giant accumulate")
def heat_maps_of_x_rays() -> None:
    """Each patient gets a new heat map with new hooks, and none of them is removed."""
    model = nn.Sequential(_stage(1, 16, 2), _stage(16, 32), _stage(32, 32, 2))
    model.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 14)])
    model.eval()
    shown = []
    for _ in range(30):
        maps = _HeatMap(model, model[1]).of(torch.randn(4, 1, 80, 80))
        shown.append(maps.detach().mean((1, 2)).tolist())


@failing(Gpu(3300 * MIB, scale=32), "shard", "checkpoint accumulate others expandable giant inference")
def faces_of_many_people() -> None:
    """The last layer has a row for each person; its weights and gradients fit, the state of Adam does not."""
    people = 60_000
    model = nn.Sequential(_stage(3, 16, 2), _stage(16, 32, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    model.append(nn.Linear(128, people, bias=False))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        faces, names = torch.randn(4, 3, 32, 32), torch.randint(0, people, (4,))
        optimizer.zero_grad()
        functional.cross_entropy(model(faces), names, label_smoothing=0.1).backward()
        optimizer.step()


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


@failing(Gpu(1500 * MIB, scale=16), "inference giant", "shard checkpoint accumulate others expandable graph")
def likelihood_by_many_importance_samples() -> None:
    """A VAE's test likelihood takes 400 samples of each digit, and decodes them all at once."""
    encoder = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 40))
    decoder = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 784))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)

    def bound(digits: Any, samples: int) -> Any:
        mean, log_deviation = encoder(digits).chunk(2, -1)
        noise = torch.randn(samples, *mean.shape)
        codes = mean + noise * log_deviation.exp()
        wanted = digits.expand(samples, *digits.shape)
        fit = -functional.binary_cross_entropy_with_logits(decoder(codes), wanted, reduction="none").sum(-1)
        prior = -0.5 * codes.square().sum(-1)
        guess = -0.5 * noise.square().sum(-1) - log_deviation.sum(-1)
        return (fit + prior - guess).logsumexp(0).mean()

    for _ in range(6):
        optimizer.zero_grad()
        (-bound(torch.rand(64, 784), 1)).backward()
        optimizer.step()
    with torch.no_grad():
        for digits in torch.rand(128, 784).split(64):
            bound(digits, 400)


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


@failing(Gpu(1300 * MIB, scale=8), "giant inference", "shard checkpoint accumulate others expandable graph")
def distance_between_two_scans() -> None:
    """The Chamfer distance of a test scan subtracts all points from all points, in each coordinate."""
    model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def nearest(points: Any, others: Any) -> Any:
        return (points[:, None] - others[None]).square().sum(-1).min(1).values

    def chamfer(found: Any, wanted: Any) -> Any:
        return nearest(found, wanted).mean() + nearest(wanted, found).mean()

    for _ in range(8):
        scan = torch.randn(512, 3)
        optimizer.zero_grad()
        chamfer(scan + model(scan), scan + 0.1).backward()
        optimizer.step()
    with torch.no_grad():
        for points in (1024, 4096):
            scan = torch.randn(points, 3)
            chamfer(scan + model(scan), scan + 0.1)
