"""Real jobs that run out of a GPU's memory, as colleagues ask about them at work.

What helps was written down, and tried, before any of them was diagnosed.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu

GIB = 1024 * MIB


@failing(Gpu(12 * GIB, scale=512), BATCH, "shard giant inference others")
def encoder_unfrozen_after_a_warm_up() -> None:
    """A head trains on a frozen encoder; once the encoder trains too, its activations no longer fit."""
    embed, head = nn.Embedding(256, 64), nn.Linear(64, 5)
    encoder = nn.Sequential(*(Block() for _ in range(6)))
    embed.requires_grad_(False)
    encoder.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    for step in range(7):
        if step == 5:
            encoder.requires_grad_(True)
            optimizer.add_param_group({"params": encoder.parameters(), "lr": 1e-5})
        optimizer.zero_grad()
        features = encoder(embed(texts(16)))
        loss = functional.cross_entropy(head(features.mean(1)), torch.randint(0, 5, (16,)))
        loss.backward()
        optimizer.step()


@failing(Gpu(5 * GIB, scale=256), "hooks other inference", "checkpoint accumulate shard expandable others")
def logits_of_the_whole_validation_set() -> None:
    """A validation keeps the logits of every batch, to compute the perplexity of all at once."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, texts(8)).backward()
        optimizer.step()
    model.eval()
    logits, targets = [], []
    with torch.no_grad():
        for _ in range(40):
            tokens = texts(8)
            logits.append(model(tokens[:, :-1]))
            targets.append(tokens[:, 1:])
        print(functional.cross_entropy(torch.cat(logits).flatten(0, 1), torch.cat(targets).flatten()).exp())


class _Denoiser(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(3))

    def forward(self, images: Any, time: Any) -> Any:
        x = self.into(torch.cat([images, time.view(-1, 1, 1, 1).expand_as(images[:, :1])], 1))
        for norm, convolution in zip(self.norms, self.middle, strict=True):
            x = x + convolution(functional.silu(norm(x)))
        return self.out(x)


@failing(Gpu(8 * GIB, scale=128), "graph inference", "shard accumulate expandable giant others")
def samples_drawn_after_an_epoch_of_diffusion() -> None:
    """A diffusion model trains well; drawing samples for the log after an epoch runs with autograd on."""
    model = _Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)

    def epoch() -> None:
        for _ in range(4):
            images, noise, time = torch.rand(16, 3, 32, 32), torch.randn(16, 3, 32, 32), torch.rand(16)
            mixed = torch.lerp(images, noise, time.view(-1, 1, 1, 1))
            optimizer.zero_grad()
            functional.mse_loss(model(mixed, time), noise).backward()
            optimizer.step()

    def sample(count: int = 8, steps: int = 25) -> Any:
        model.eval()
        images = torch.randn(count, 3, 32, 32)
        for step in range(steps):
            time = torch.full((count,), 1 - step / steps)
            images = images - model(images, time) / steps
        model.train()
        return images.clamp(0, 1)

    for _ in range(2):
        epoch()
        sample()


@failing(
    Gpu(4 * GIB, scale=256),
    "models before other",
    "checkpoint accumulate shard giant inference expandable",
)
def learning_rates_tried_in_a_notebook() -> None:
    """A cell is run for one learning rate after another; a dict keeps each model with its optimizer."""
    results = {}

    def cell(rate: float) -> None:
        model = nn.Sequential(
            nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(4):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(0, 10, (64,)))
            loss.backward()
            optimizer.step()
        results[rate] = {"model": model, "optimizer": optimizer, "loss": loss.item()}

    for rate in (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00003):
        cell(rate)


@failing(Gpu(6000 * MIB, scale=256), "load", "checkpoint accumulate giant inference expandable")
def training_resumed_from_a_file() -> None:
    """A training that fitted is resumed; what was read from its file stays beside the model."""

    def made() -> tuple[Any, Any, Any]:
        model, average = (nn.Sequential(*(Block(192) for _ in range(2))) for _ in range(2))
        average.requires_grad_(False)
        return model, average, torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train(model: Any, average: Any, optimizer: Any, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 48, 192)).square().mean().backward()
            optimizer.step()
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight.detach(), 0.01)

    def interrupted(file: Any) -> None:
        model, average, optimizer = made()
        train(model, average, optimizer, 1)
        parts = {"model": model, "average": average, "optimizer": optimizer}
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)

    def resumed(file: Any) -> None:
        model, average, optimizer = made()
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        average.load_state_dict(saved["average"])
        optimizer.load_state_dict(saved["optimizer"])
        train(model, average, optimizer, 2)

    file = io.BytesIO()
    interrupted(file)
    file.seek(0)
    resumed(file)


@failing(Gpu(4352 * MIB, scale=128), "accumulate giant precision", "shard inference graph others")
def dice_loss_with_classes_as_one_hot() -> None:
    """A segmentation's own dice loss makes one-hot targets of all its classes, in 64-bit integers."""
    classes = 48
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, classes, 1),
    )
    optimizer = torch.optim.Adam(model.parameters())

    def dice(logits: Any, target: Any) -> Any:
        found = logits.softmax(1)
        wanted = functional.one_hot(target, classes).permute(0, 3, 1, 2).float()
        both = (found * wanted).sum((2, 3))
        return 1 - (2 * both / (found.sum((2, 3)) + wanted.sum((2, 3)) + 1)).mean()

    for _ in range(2):
        images, target = torch.randn(8, 3, 64, 64), torch.randint(0, classes, (8, 64, 64))
        optimizer.zero_grad()
        dice(model(images), target).backward()
        optimizer.step()


@failing(Gpu(4608 * MIB, scale=128), "accumulate precision", "gradients shard giant inference others")
def critic_with_a_penalty_every_fourth_step() -> None:
    """A GAN fits; each fourth step, a penalty on the critic's gradients needs their graph too."""
    generator = nn.Sequential(nn.Linear(32, 3 * 32 * 32), nn.Tanh(), nn.Unflatten(1, (3, 32, 32)))
    critic = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(32, 32, 3, padding=1, stride=2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(32 * 256, 1),
    )
    first = torch.optim.Adam(generator.parameters(), lr=1e-4)
    second = torch.optim.Adam(critic.parameters(), lr=1e-4)
    for step in range(1, 9):
        real, fake = torch.rand(16, 3, 32, 32), generator(torch.randn(16, 32))
        second.zero_grad()
        loss = functional.softplus(critic(fake.detach())).mean() + functional.softplus(-critic(real)).mean()
        loss.backward()
        if step % 4 == 0:
            real.requires_grad_(True)
            (slope,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
            (5 * slope.square().sum((1, 2, 3)).mean()).backward()
        second.step()
        first.zero_grad()
        functional.softplus(-critic(fake)).mean().backward()
        first.step()


class _Patches(torch.utils.data.Dataset[Any]):
    """All patches of some slides, on the GPU, so that loading them takes no time."""

    def __init__(self, slides: int) -> None:
        self.patches = []
        for _ in range(slides):
            pixels = np.random.randint(0, 255, (32, 3, 32, 32), dtype=np.uint8)
            self.patches.append(torch.tensor(pixels, dtype=torch.float32).div_(255))

    def __len__(self) -> int:
        return 32 * len(self.patches)

    def __getitem__(self, index: int) -> Any:
        return self.patches[index // 32][index % 32]


@failing(Gpu(8 * GIB, scale=256), "inputs other", "checkpoint accumulate shard giant graph expandable")
def data_set_moved_to_the_gpu() -> None:
    """A data set puts all its images on the GPU when it is made, beside the model."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(_Patches(120), batch_size=16)
    for _, batch in zip(range(8), loader, strict=False):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


@failing(Gpu(11 * GIB, scale=256), BATCH, "shard giant inference others")
def one_long_document_among_short_ones() -> None:
    """A batch is padded to its longest text, and one text is far longer than all others."""
    model = Language(3)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(8):
        lengths = np.random.randint(30, 80, 8)
        if step == 6:
            lengths[3] = 420
        rows = [torch.randint(0, 256, (int(length),)) for length in lengths]
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()


class _Recommender(nn.Module):
    def __init__(self, users: int = 6000, items: int = 3000, width: int = 64) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.rate = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, user: Any, item: Any) -> Any:
        return self.rate(torch.cat([self.users(user), self.items(item)], 1)).squeeze(1)


@failing(Gpu(9 * GIB, scale=1024), "shard", "checkpoint accumulate giant inference graph expandable")
def embeddings_of_a_recommender_with_adam() -> None:
    """Tables of users and items fit with their gradients; Adam's first step makes two more of each."""
    model = _Recommender()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        user, item = torch.randint(0, 6000, (64,)), torch.randint(0, 3000, (64,))
        optimizer.zero_grad()
        functional.mse_loss(model(user, item), torch.rand(64)).backward()
        optimizer.step()


@failing(Gpu(8 * GIB, scale=256), "cache other", "checkpoint accumulate shard giant graph")
def chat_bot_in_channels_without_end() -> None:
    """A bot keeps keys and values of all that was said in each of its channels."""
    model, project = Language(1).eval(), nn.Linear(256, 2048)
    channels: dict[str, Any] = {}

    def answer(channel: str, tokens: Any) -> Any:
        new = project(model(tokens))
        channels[channel] = torch.cat([channels[channel], new], 1) if channel in channels else new
        return new[:, -1].argmax(-1)

    with torch.inference_mode():
        for _ in range(20):
            for channel in ("general", "help", "sales", "support", "random", "news"):
                answer(channel, texts(1, 48))


class _Norm(nn.Module):
    """As batch normalization, with statistics for evaluation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.mean, self.variance = torch.zeros(width), torch.ones(width)

    def forward(self, x: Any) -> Any:
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            self.mean = 0.9 * self.mean + 0.1 * mean
            self.variance = 0.9 * self.variance + 0.1 * x.var(0)
        return (x - mean) / (variance + 1e-5).sqrt() * self.scale + self.shift


@failing(Gpu(4 * GIB, scale=256), "graph", "shard checkpoint accumulate giant inference expandable")
def own_layer_with_running_statistics() -> None:
    """A layer of one's own averages its statistics over steps, and forgets to detach them."""
    layers = [part for _ in range(3) for part in (nn.Linear(128, 128), _Norm(128), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(28):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.randn(512, 128)), torch.randint(0, 10, (512,)))
        loss.backward()
        optimizer.step()
