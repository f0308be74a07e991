"""More jobs of other fields that run out of memory, as in threads on forums and in issues: evaluation, and
scripts and notebooks around training. What helps was written down first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


def _classifier() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


# What piles up are the inputs: keep none (other, hooks), or leave them on the host (inputs, inference).
@failing(Gpu(500 * MIB, scale=16), "other hooks inputs inference", "shard others checkpoint accumulate graph")
def pictures_returned_with_their_predictions() -> None:
    """A prediction over the test set returns its inputs, too, and holds them on the GPU until the end."""
    model, inputs, predictions = _classifier().eval(), [], []
    with torch.no_grad():
        for seed in range(48):
            pictures = torch.tensor(np.random.default_rng(seed).random((16, 3, 64, 64), dtype=np.float32))
            inputs.append(pictures)
            predictions.append(model(pictures).softmax(1))


@failing(Gpu(700 * MIB, scale=16), "graph inference hooks other", "shard others expandable giant accumulate")
def pictures_embedded_for_a_linear_probe() -> None:
    """Features of all pictures are collected for a linear probe, and eval() is taken to be enough."""
    patches, encoder = nn.Linear(192, 64), nn.Sequential(Block(), Block())
    patches.eval()
    encoder.eval()
    features, labels = [], []
    for _ in range(40):
        pictures = torch.randn(8, 64, 192)
        features.append(functional.normalize(encoder(patches(pictures)).mean(1), dim=-1))
        labels.append(torch.randint(0, 10, (8,)))
    torch.cat(features)


@failing(Gpu(640 * MIB, scale=64), "inference", "shard checkpoint accumulate graph others giant")
def sentences_validated_by_the_default_batch() -> None:
    """Training has batches of four; the option of the validation's batch was left at its default, 48."""
    model = Language(2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(model, texts(4)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            loss_of(model, texts(48))


class _Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, stride=4, padding=1), nn.ReLU())
        self.prototypes = nn.Conv2d(16, 4, 1)

    def forward(self, frame: Any) -> Any:
        return self.prototypes(self.backbone(frame))


@failing(Gpu(460 * MIB, scale=16), "other hooks inference", "shard others checkpoint accumulate graph giant")
def masks_of_a_film_at_full_size() -> None:
    """Each frame's masks are scaled up to the frame, and a list has the results of the whole film."""
    model, results = _Segmenter().eval(), []
    with torch.inference_mode():
        for _ in range(60):
            frame = torch.randn(1, 3, 160, 192)
            masks = functional.interpolate(model(frame), size=frame.shape[2:], mode="bilinear")
            results.append({"boxes": torch.randn(4, 6), "masks": masks.sigmoid()})


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


@failing(Gpu(500 * MIB, scale=16), "gradients other", "shard others checkpoint accumulate giant expandable")
def gradients_of_every_batch_of_validation() -> None:
    """To rate samples by their influence, a script keeps the gradient of each batch of the validation."""
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    gradients = []
    for _ in range(40):
        loss = functional.cross_entropy(model(torch.randn(8, 128)), torch.randint(0, 10, (8,)))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.stack([gradient[0].norm() for gradient in gradients])
