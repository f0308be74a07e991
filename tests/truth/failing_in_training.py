"""Ordinary trainings that run out of memory, mostly by what a forward pass keeps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, failing
from tests.truth.gpu_snapshot import Gpu

NOT_ACTIVATIONS = "shard others expandable pad giant inference"


@failing(Gpu(780 * MIB, scale=16), BATCH, "shard others expandable pad inference")
def rays_of_a_radiance_field() -> None:
    """A radiance field is trained on all samples of all rays of a batch at once."""
    field = nn.Sequential(
        nn.Linear(36, 128),
        *(nn.Sequential(nn.Linear(128, 128), nn.Softplus()) for _ in range(6)),
        nn.Linear(128, 4),
    )
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
    depths = torch.linspace(2, 6, 64)
    for _ in range(3):
        origins, directions, wanted = torch.randn(128, 3), torch.randn(128, 3), torch.rand(128, 3)
        points = origins[:, None] + directions[:, None] * depths[:, None]
        waves = (points[..., None] * 2.0 ** torch.arange(6)).flatten(2)
        found = field(torch.cat([waves.sin(), waves.cos()], -1))
        opacity = 1 - torch.exp(-functional.relu(found[..., 3]) * 0.06)
        weights = opacity * torch.cumprod(1 - opacity + 1e-10, 1)
        colors = (weights[..., None] * torch.sigmoid(found[..., :3])).sum(1)
        loss = functional.mse_loss(colors, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(740 * MIB, scale=16), BATCH, NOT_ACTIVATIONS)
def a_generator_that_doubles_its_images() -> None:
    """A GAN grows: images of 16 and 32 pixels fit, the first batch of 64 pixels does not."""

    def stage(channels: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.LeakyReLU(0.2),
        )

    draws = nn.ModuleList(stage(16) for _ in range(3))
    judges = nn.ModuleList(stage(16) for _ in range(3))
    colors, reads = nn.Conv2d(16, 3, 1), nn.Conv2d(3, 16, 1)
    of_generator = torch.optim.Adam([*draws.parameters(), *colors.parameters()], betas=(0.0, 0.99))
    of_critic = torch.optim.Adam([*judges.parameters(), *reads.parameters()], betas=(0.0, 0.99))

    def drawn(rows: int, phase: int) -> Any:
        x = torch.randn(rows, 16, 8, 8)
        for block in draws[: phase + 1]:
            x = block(functional.interpolate(x, scale_factor=2))
        return colors(x)

    def judged(images: Any, phase: int) -> Any:
        x = reads(images)
        for block in judges[: phase + 1]:
            x = functional.avg_pool2d(block(x), 2)
        return x.mean((1, 2, 3))

    for phase in range(3):
        for _ in range(2):
            real = torch.randn(16, 3, 16 << phase, 16 << phase)
            with torch.no_grad():
                fake = drawn(16, phase)
            of_critic.zero_grad()
            (
                functional.softplus(judged(fake, phase)) + functional.softplus(-judged(real, phase))
            ).mean().backward()
            of_critic.step()
            of_generator.zero_grad()
            functional.softplus(-judged(drawn(16, phase), phase)).mean().backward()
            of_generator.step()


@failing(Gpu(580 * MIB, scale=32), BATCH, NOT_ACTIVATIONS)
def a_decoder_that_attends_at_each_token() -> None:
    """A translation with additive attention keeps an energy for each pair of a source and a target word."""
    embed, encoder, cell = nn.Embedding(256, 64), nn.GRU(64, 64, batch_first=True), nn.GRUCell(128, 64)
    of_source, of_state, energy, head = (
        nn.Linear(64, 64),
        nn.Linear(64, 64),
        nn.Linear(64, 1),
        nn.Linear(64, 256),
    )
    parts = nn.ModuleList([embed, encoder, cell, of_source, of_state, energy, head])
    optimizer = torch.optim.Adam(parts.parameters())

    def context(memory: Any, keys: Any, state: Any) -> Any:
        scores = energy(torch.tanh(keys + of_state(state)[:, None]))
        return (torch.softmax(scores, 1) * memory).sum(1)

    for _ in range(2):
        source, target = torch.randint(0, 256, (32, 64)), torch.randint(0, 256, (32, 24))
        memory, last = encoder(embed(source))
        keys, state, loss = of_source(memory), last[0], torch.zeros(())
        for i in range(target.shape[1] - 1):
            seen = context(memory, keys, state)
            state = cell(torch.cat([embed(target[:, i]), seen], -1), state)
            loss = loss + functional.cross_entropy(head(state), target[:, i + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _Adapted(nn.Module):
    """A frozen layer with a trained matrix of rank 4 beside it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, 4, bias=False)
        self.up = nn.Linear(4, layer.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return self.layer(x) + self.up(self.down(x))


@failing(Gpu(1250 * MIB, scale=32), BATCH, NOT_ACTIVATIONS)
def adapters_on_long_texts() -> None:
    """Adapters are trained on short texts, then on long ones: all layers keep their results."""
    embed, blocks, head = nn.Embedding(256, 64), nn.ModuleList(Block() for _ in range(4)), nn.Linear(64, 256)
    model = nn.ModuleList([embed, blocks, head]).requires_grad_(False)
    for block in blocks:
        block.attends, block.up = _Adapted(block.attends), _Adapted(block.up)
        block.joins, block.down = _Adapted(block.joins), _Adapted(block.down)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    for length in (128, 128, 640, 640):
        tokens = torch.randint(0, 256, (4, length))
        x = embed(tokens[:, :-1])
        for block in blocks:
            x = block(x)
        loss = functional.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


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


@failing(Gpu(600 * MIB, scale=16), BATCH, NOT_ACTIVATIONS)
def heads_of_eight_dense_tasks() -> None:
    """Depth, normals, edges and more: each of eight heads works at the full size of the image."""
    backbone = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
    )
    heads = nn.ModuleDict(
        {
            f"task{i}": nn.Sequential(
                nn.Upsample(scale_factor=2),
                nn.Conv2d(32, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.GELU(),
                nn.Conv2d(16, 1, 1),
            )
            for i in range(8)
        }
    )
    optimizer = torch.optim.AdamW([*backbone.parameters(), *heads.parameters()])
    for _ in range(2):
        images = torch.randn(4, 3, 64, 64)
        features, losses = backbone(images), {}
        for task, head in heads.items():
            losses[task] = functional.l1_loss(head(features), torch.randn(4, 1, 64, 64))
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()


class _OfPixels(nn.Module):
    """Each pixel attends to all others, written with matmul and softmax."""

    def __init__(self, channels: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.joins = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        rows, channels, height, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(rows * self.heads, -1, height * width).chunk(3, 1)
        scores = torch.softmax(q.transpose(1, 2) @ k * (channels // self.heads) ** -0.5, -1)
        return x + self.joins((v @ scores.transpose(1, 2)).reshape(x.shape))


@failing(Gpu(900 * MIB, scale=16), f"attention {BATCH}", "shard others expandable pad inference")
def pixels_that_attend_to_all_pixels() -> None:
    """A diffusion model has attention at a high resolution, and noise is predicted for larger images."""
    enters, leaves = (
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ConvTranspose2d(32, 3, 4, stride=2, padding=1),
    )
    layers = nn.ModuleList(_OfPixels() for _ in range(4))
    model = nn.ModuleList([enters, *layers, leaves])
    optimizer = torch.optim.AdamW(model.parameters())
    for size in (32, 32, 48, 48):
        images, noise = torch.randn(2, 3, size, size), torch.randn(2, 3, size, size)
        x = enters(0.7 * images + 0.7 * noise)
        for layer in layers:
            x = layer(x)
        loss = functional.mse_loss(leaves(functional.silu(x)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(
    Gpu(330 * MIB, scale=16), "graph inference accumulate precision", "shard others expandable pad giant"
)
def a_backbone_frozen_only_in_the_optimizer() -> None:
    """Only the head is given to the optimizer, but the backbone still records a graph of everything."""
    backbone, channels = nn.Sequential(), (3, 16, 32, 32, 64)
    for i in range(4):
        backbone.append(nn.Conv2d(channels[i], channels[i + 1], 3, stride=1 + i % 2, padding=1))
        backbone.append(nn.BatchNorm2d(channels[i + 1]))
        backbone.append(nn.ReLU())
    backbone.eval()
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    for _ in range(3):
        images, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))
        features = backbone(images)
        loss = functional.cross_entropy(head(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(850 * MIB, scale=16), "accumulate", "shard others expandable pad checkpoint inference")
def gradients_of_every_sample() -> None:
    """Private training clips the gradient of each sample: a batch has as many gradients as samples."""
    model = nn.Sequential(nn.Linear(128, 192), nn.Tanh(), nn.Linear(192, 192), nn.Tanh(), nn.Linear(192, 10))
    weights = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of_one(values: Any, x: Any, y: Any) -> Any:
        found = torch.func.functional_call(model, values, (x[None],))
        return functional.cross_entropy(found, y[None])

    gradients_of = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))
    for rows in (32, 32, 192):
        x, y = torch.randn(rows, 128), torch.randint(0, 10, (rows,))
        own = gradients_of({name: weight.detach() for name, weight in weights.items()}, x, y)
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in own.values()]).norm(dim=0)
        clip = (1.0 / norms).clamp(max=1.0)
        for name, weight in weights.items():
            weight.grad = torch.einsum("n,n...->...", clip, own[name]) / rows + 0.01 * torch.randn_like(
                weight
            )
        optimizer.step()


@failing(Gpu(370 * MIB, scale=16), "accumulate", f"checkpoint {NOT_ACTIVATIONS}")
def a_physics_network_with_all_its_points() -> None:
    """A network solves the heat equation, with second derivatives at all points of the domain at once."""
    model = nn.Sequential(nn.Linear(2, 64))
    for _ in range(3):
        model.extend([nn.Tanh(), nn.Linear(64, 64)])
    model.extend([nn.Tanh(), nn.Linear(64, 1)])
    optimizer = torch.optim.Adam(model.parameters())
    points = torch.rand(3000, 2)

    def residual(where: Any) -> Any:
        where = where.clone().requires_grad_()
        u = model(where)
        (first,) = torch.autograd.grad(u.sum(), where, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), where, create_graph=True)
        return first[:, 1] - 0.1 * second[:, 0]

    for _ in range(3):
        optimizer.zero_grad()
        loss = residual(points).square().mean()
        loss.backward()
        optimizer.step()
