"""Parts that loops of vision and of agents share, whether these keep too much or not."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import Trainer, images


class Track:
    """Somebody who is followed through a video: how they looked at first, and their smoothed features."""

    def __init__(self, template: Any, features: Any, end: int) -> None:
        self.template, self.features, self.end = template, features, end

    def update(self, features: Any) -> None:
        self.features = 0.9 * self.features + 0.1 * features


class SmoothedValue:
    """The mean of the last twenty values, and that of all."""

    def __init__(self) -> None:
        self.window, self.count, self.total = deque[float](maxlen=20), 0, torch.zeros(())

    def update(self, value: Any) -> None:
        self.window.append(value.item())
        self.count += 1
        self.total = self.total + value


class FrameMemory:
    """Keys and values of frames of a video, at which the segmentation of later ones looks back."""

    def __init__(self) -> None:
        self.keys, self.values = torch.zeros(1, 32, 0), torch.zeros(1, 64, 0)

    def memorize(self, keys: Any, values: Any) -> None:
        self.keys = torch.cat([self.keys, keys.flatten(2)], 2)
        self.values = torch.cat([self.values, values.flatten(2)], 2)

    def look_back(self, queries: Any) -> Any:
        weights = (self.keys.transpose(1, 2) @ queries.flatten(2)).softmax(1)
        return self.values @ weights


class ActivationsAndGradients:
    """Has the activations of a layer, and their gradients, of the last call of a model by way of it."""

    def __init__(self, model: nn.Module, layer: nn.Module) -> None:
        self.model, self.activations, self.gradients = model, list[Any](), list[Any]()
        layer.register_forward_hook(self.save)

    def save(self, _layer: Any, _inputs: Any, output: Any) -> None:
        self.activations.append(output.detach())
        output.register_hook(self.save_gradient)

    def save_gradient(self, gradient: Any) -> None:
        self.gradients.append(gradient.detach())

    def __call__(self, inputs: Any) -> Any:
        self.activations, self.gradients = [], []
        return self.model(inputs)


class Evaluator:
    """Has the masks and scores that were found in each image, until they are compared with the true ones."""

    def __init__(self) -> None:
        self.predictions = dict[int, dict[str, Any]]()

    def paste(self, logits: Any) -> Any:
        return functional.interpolate(logits, (96, 96), mode="bilinear").squeeze(1) > 0.0

    def update(self, first: int, logits: Any) -> None:
        scores = logits.sigmoid().amax((1, 2, 3)).numpy()
        for place, mask in enumerate(self.paste(logits)):
            self.predictions[first + place] = {"mask": mask.numpy(), "score": scores[place]}


class Adversaries:
    """A generator of images of 16 by 16, and a discriminator that has an opinion of each patch."""

    def __init__(self) -> None:
        self.generator = nn.Sequential(
            nn.Linear(16, 128), nn.Unflatten(1, (8, 4, 4)), nn.ConvTranspose2d(8, 3, 4, stride=4), nn.Tanh()
        )
        self.discriminator = nn.Sequential(nn.Conv2d(3, 16, 5), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 5))
        self.optimizers = [
            torch.optim.Adam(network.parameters(), lr=0.0002)
            for network in (self.generator, self.discriminator)
        ]

    def generate(self) -> Any:
        return self.generator(torch.randn(32, 16))

    def train_generator(self) -> Any:
        self.optimizers[0].zero_grad()
        opinion = self.discriminator(self.generate())
        functional.softplus(-opinion).mean().backward()
        self.optimizers[0].step()
        return opinion

    def train_discriminator(self) -> tuple[Any, Any]:
        self.optimizers[1].zero_grad()
        real, fake = self.discriminator(images(32, 16)), self.discriminator(self.generate().detach())
        (functional.softplus(-real) + functional.softplus(fake)).mean().backward()
        self.optimizers[1].step()
        return real, fake


class Posterior(nn.Module):
    """The mean of weights over time, and how those of each time deviate from it, in buffers."""

    def __init__(self, model: nn.Module, most: int) -> None:
        super().__init__()
        self.most, self.count = most, 0
        self.register_buffer("mean", nn.utils.parameters_to_vector(model.parameters()).detach())
        self.register_buffer("deviations", torch.zeros(0, len(self.mean)))
        self.mean: Any
        self.deviations: Any

    @torch.no_grad()
    def collect(self, model: nn.Module) -> None:
        weights = nn.utils.parameters_to_vector(model.parameters())
        self.count += 1
        self.mean += (weights - self.mean) / self.count
        self.deviations = torch.cat([self.deviations, (weights - self.mean)[None]])[-self.most :]


class NormOfEachStep(nn.Module):
    """Batch normalization that has statistics of its own for each inner step of a meta-learner."""

    def __init__(self) -> None:
        super().__init__()
        self.statistics = dict[int, tuple[Any, Any]]()

    def forward(self, inputs: Any, step: int) -> Any:
        if step not in self.statistics:
            self.statistics[step] = torch.zeros(inputs.shape[1]), torch.ones(inputs.shape[1])
        variance, mean = torch.var_mean(inputs, 0)
        for old, new in zip(self.statistics[step], (mean, variance), strict=True):
            old.lerp_(new.detach(), 0.1)
        return (inputs - mean) * (variance + 1e-5).rsqrt()


@dataclass
class Round:
    """A round of active learning."""

    number: int
    probabilities: Any
    chosen: list[int]


class Anchors(nn.Module):
    """Nine boxes at each eighth pixel of an image, in a cache by the size of the image."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.cache = most, dict[tuple[int, int], Any]()
        self.register_buffer("cells", torch.rand(9, 4))

    def grid(self, height: int, width: int) -> Any:
        down, right = torch.arange(0, height, 8), torch.arange(0, width, 8)
        y, x = torch.meshgrid(down, right, indexing="ij")
        return (torch.stack([x, y, x, y], -1).reshape(-1, 1, 4) + self.cells).reshape(-1, 4)

    def forward(self, pictures: Any) -> Any:
        size = (pictures.shape[2], pictures.shape[3])
        if len(self.cache) >= self.most:
            self.cache.clear()
        if size not in self.cache:
            self.cache[size] = self.grid(*size)
        return self.cache[size]


class OneStage(Trainer):
    """A detector that corrects anchors by what it knows of each patch."""

    def __init__(self, most: int) -> None:
        self.model = nn.Sequential(nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 36))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.anchors = Anchors(most)

    def loss(self, inputs: Any) -> Any:
        patches = functional.pixel_unshuffle(inputs, 8).permute(0, 2, 3, 1)
        boxes = self.model(patches).reshape(-1, 4) + self.anchors(inputs)
        return (boxes / 256 - 0.5).square().mean()


def of_any_size(chance: random.Random) -> Any:
    return torch.rand(1, 3, 8 * chance.randint(8, 64), 8 * chance.randint(8, 64))
