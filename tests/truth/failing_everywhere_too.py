"""Jobs of several models, of whole services and of beginners' training that run out of a GPU's memory.

What helps was written down, and tried in the same memory, before any of them was diagnosed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, Language, failing, texts
from tests.truth.failing_everywhere import Classifier
from tests.truth.gpu_snapshot import Gpu

BATCH = "checkpoint accumulate precision"


def _perceptron(width: int = 384, layers: int = 3) -> nn.Module:
    hidden = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


@failing(Gpu(400 * MIB, scale=32), "models shard", "checkpoint accumulate others expandable giant graph")
def models_of_a_server() -> None:
    """A server loads the model of each customer at its first request, and keeps all of them."""
    loaded: dict[int, nn.Module] = {}
    with torch.no_grad():
        for customer in (0, 1, 0, 2, 1, 3, 4, 0, 5, 6, 7, 8, 9):
            if customer not in loaded:
                loaded[customer] = _perceptron().eval()
            loaded[customer](torch.randn(16, 64)).softmax(-1)


@failing(Gpu(1000 * MIB, scale=32), "hooks other", "shard checkpoint accumulate graph others giant")
def calibration_keeps_all_activations() -> None:
    """Before quantization, hooks collect what each layer puts out, to find its range in the end."""
    model = Language(3).eval()
    seen: dict[str, list[Any]] = {}

    def watch(name: str) -> Any:
        return lambda _module, _inputs, output: seen.setdefault(name, []).append(output)

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(watch(name))
    with torch.no_grad():
        for _ in range(32):
            model(texts(4))
    {name: torch.cat(outputs).abs().max() for name, outputs in seen.items()}


@failing(Gpu(600 * MIB, scale=32), "models", "shard checkpoint accumulate others expandable giant")
def pretraining_stays_beside_fine_tuning() -> None:
    """A notebook trains an autoencoder; its encoder then goes into a classifier with an Adam of its own."""
    width = 512
    encoder = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    decoder = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 256))
    autoencoder = nn.Sequential(encoder, decoder)
    optimizer = torch.optim.Adam(autoencoder.parameters())
    for _ in range(4):
        rows = torch.randn(16, 256)
        optimizer.zero_grad()
        functional.mse_loss(autoencoder(rows), rows).backward()
        optimizer.step()
    start = encoder.state_dict()
    body = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    body.load_state_dict(start)
    classifier = nn.Sequential(body, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    tuner = torch.optim.Adam(classifier.parameters(), lr=1e-4)
    for _ in range(4):
        rows, labels = torch.randn(16, 256), torch.randint(0, 10, (16,))
        tuner.zero_grad()
        functional.cross_entropy(classifier(rows), labels).backward()
        tuner.step()


@failing(Gpu(900 * MIB, scale=32), "models other", "shard checkpoint accumulate others expandable giant")
def search_keeps_each_trial() -> None:
    """A search over widths and learning rates keeps each trial with its model and optimizer."""
    trials = []
    for width, rate in ((256, 1e-3), (384, 1e-3), (320, 3e-4), (448, 3e-4), (288, 1e-3), (512, 1e-4)):
        model = _perceptron(width)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(4):
            rows, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(rows), labels)
            loss.backward()
            optimizer.step()
        trials.append({"loss": loss.item(), "rate": rate, "model": model, "optimizer": optimizer})
    min(trials, key=lambda trial: trial["loss"])


@failing(
    Gpu(500 * MIB, free_bytes=9000 * MIB, scale=32),
    "others",
    "shard checkpoint expandable giant graph inputs",
)
def fraction_of_a_shared_gpu() -> None:
    """A service on a shared GPU has set_per_process_memory_fraction(0.05), and the rest is free at night."""
    model = Classifier().eval()
    with torch.no_grad():
        for rows in (8, 16, 8, 64):
            model(torch.randn(rows, 3, 64, 64)).argmax(1)


@failing(
    Gpu(900 * MIB, scale=128),
    "inference cache larger",
    "shard checkpoint accumulate graph others expandable giant",
)
def beams_of_a_whole_batch() -> None:
    """Beam search: each step appends to the keys and values of all beams, and reorders them."""
    rows, beams, width = 16, 5, 64
    embed, attend, head = nn.Embedding(256, width), nn.Linear(width, 3 * width), nn.Linear(width, 256)
    with torch.no_grad():
        keys = values = torch.zeros(rows * beams, 0, width)
        scores, token = torch.zeros(rows * beams, 1), torch.zeros(rows * beams, dtype=torch.long)
        for _ in range(96):
            q, k, v = attend(embed(token))[:, None].chunk(3, -1)
            keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
            seen = functional.scaled_dot_product_attention(q, keys, values)
            chances = (scores + head(seen[:, 0]).log_softmax(-1)).view(rows, -1)
            best, at = chances.topk(beams, -1)
            origin = (at // 256 + torch.arange(rows)[:, None] * beams).flatten()
            keys, values = keys[origin], values[origin]
            scores, token = best.view(-1, 1), (at % 256).flatten()


@failing(Gpu(500 * MIB, scale=32), "shard", "checkpoint accumulate others expandable giant inference")
def flattened_into_a_wide_layer() -> None:
    """A beginner's network flattens its feature maps into a wide linear layer, with Adam."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * 8 * 8, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    for _ in range(2):
        images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


@failing(
    Gpu(440 * MIB, scale=64), "graph metrics gradients", "shard checkpoint accumulate others expandable giant"
)
def losses_of_a_gan_for_the_plot() -> None:
    """Both losses go into lists for a plot, and backward() keeps its graph because of an error message."""
    generator = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 256), nn.Tanh())
    critic = nn.Sequential(nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4)
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4)
    losses_d, losses_g = [], []
    for _ in range(24):
        real, fake = torch.randn(128, 256), generator(torch.randn(128, 32))
        optimizer_d.zero_grad()
        loss_d = functional.softplus(-critic(real)).mean() + functional.softplus(critic(fake)).mean()
        loss_d.backward(retain_graph=True)
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = functional.softplus(-critic(fake)).mean()
        loss_g.backward()
        optimizer_g.step()
        losses_d.append(loss_d)
        losses_g.append(loss_g)


@failing(Gpu(1600 * MIB, scale=32), BATCH, "shard others expandable giant inference graph")
def photos_at_full_size() -> None:
    """A tutorial's network for small images gets photos as they are, with the tutorial's batch size."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        images, labels = torch.randn(16, 3, 128, 128), torch.randint(0, 10, (16,))
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


@failing(Gpu(1100 * MIB, scale=64), "inputs", "shard checkpoint others expandable giant graph")
def whole_training_set_on_the_gpu() -> None:
    """All images are moved to the GPU before the first epoch, and batches are cut from them."""
    random = np.random.default_rng(0)
    images = torch.tensor(random.random((1200, 3, 32, 32), dtype=np.float32))
    labels = torch.tensor(random.integers(0, 10, 1200))
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        order = torch.randperm(len(images))
        for at in order.split(32)[:4]:
            optimizer.zero_grad()
            functional.cross_entropy(model(images[at]), labels[at]).backward()
            optimizer.step()


@failing(Gpu(6200 * MIB, scale=32), f"attention {BATCH}", "shard others giant inference graph")
def reviews_padded_to_the_longest() -> None:
    """Texts are padded to the longest of a batch, and one batch has a very long one."""

    class Reader(nn.Module):
        def __init__(self, width: int = 64) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(1000, width), nn.Linear(width, 2)
            self.attends = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(3))
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

        def forward(self, tokens: Any) -> Any:
            x, padding = self.embed(tokens), tokens == 0
            for attend, norm in zip(self.attends, self.norms, strict=True):
                x = norm(x + attend(x, x, x, key_padding_mask=padding)[0])
            return self.head(x.mean(1))

    model, random = Reader(), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters())
    for longest in (60, 48, 72, 60, 400):
        reviews = [torch.randint(1, 1000, (int(length),)) for length in random.integers(20, 48, 15)]
        reviews.append(torch.randint(1, 1000, (longest,)))
        tokens = nn.utils.rnn.pad_sequence(reviews, batch_first=True)
        optimizer.zero_grad()
        functional.cross_entropy(model(tokens), torch.randint(0, 2, (16,))).backward()
        optimizer.step()
