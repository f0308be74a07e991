"""Images, videos and points: what detectors, trackers and pools of images keep."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.truth.loops.loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    NO_USUAL,
    OUTPUTS,
    SAMPLES,
    Convolutions,
    Trainer,
    batch,
    healthy,
    images,
    leaks,
    values,
)


@leaks("step generate", cause=GRAPH | OUTPUTS)
def images_for_a_score_with_their_graph() -> Iterator[None]:
    generator, trainer, images = Trainer().model, Trainer(), list[Any]()

    def generate() -> Any:
        return generator(batch())

    def step() -> None:
        trainer.train()
        images.append(generate())

    while True:
        step()
        yield


@leaks("attack", cause=NO_USUAL)
def images_that_know_where_they_came_from() -> Iterator[None]:
    """An attribute of each perturbed tensor is the tensor that it was made from."""
    trainer = Trainer()

    def attack(image: Any) -> Any:
        changed = (image + 0.01 * torch.randn_like(image)).clamp(0, 1)
        changed.source = image
        return changed

    image = torch.rand(64, 64)
    while True:
        image = attack(image)
        trainer.train(image)
        yield


@dataclass
class Explanation:
    label: int
    saliency: Any


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


@leaks("memorize segment", cause=GROWING)
def a_memory_of_every_fifth_frame() -> Iterator[None]:
    """Segmentation of an endless video looks back at each fifth frame since its beginning."""
    trainer, memory = Convolutions(), FrameMemory()
    key, value = nn.Conv2d(3, 32, 3, stride=4), nn.Conv2d(3, 64, 3, stride=4)

    @torch.no_grad()
    def segment(frame: Any, number: int) -> None:
        if number % 5 == 0:
            memory.memorize(key(frame), value(frame))
        memory.look_back(key(frame))

    for number in itertools.count():
        segment(images(1, 40), number)
        trainer.train(images())
        yield


@leaks("augmented step")
def dataset_remembers_every_sample() -> Iterator[None]:
    trainer, memory = Trainer(), dict[int, Any]()

    def augmented(number: int) -> Any:
        if number not in memory:
            memory[number] = torch.rand(SAMPLES, 64).flip(0)
        return memory[number]

    for number in itertools.count():
        trainer.train(augmented(number))
        yield


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


@leaks("save save_gradient train forward", cause=OUTPUTS | GRADIENTS)
def hooks_of_a_class_activation_map() -> Iterator[None]:
    """They are forgotten when a map is drawn anew, but one was drawn, and training calls the model itself."""
    trainer = Convolutions()
    watched = ActivationsAndGradients(trainer.model, trainer.model[2])
    watched(images()).amax(1).sum().backward()
    while True:
        trainer.train(images())
        yield


@healthy
def a_pool_of_images() -> Iterator[None]:
    """Half of the results replace one of the pool at random."""
    trainer, pool, chance = Trainer(), [values() for _ in range(50)], random.Random(2)
    while True:
        trainer.train()
        result = values()
        if chance.random() < 0.5:
            pool[chance.randrange(50)] = result
        yield


@healthy
def queues_of_rare_classes() -> Iterator[None]:
    """Four sets of features for each of 20 classes; most come seldom, so that they are filled late."""
    trainer, chance = Trainer(), random.Random(5)
    queues = [deque[Any](maxlen=4) for _ in range(20)]
    often = [1 / (number + 1) for number in range(20)]
    while True:
        trainer.train()
        for label in chance.choices(range(20), often, k=3):
            with torch.no_grad():
                queues[label].append(trainer.model(batch(48)))
        yield


@healthy
def a_queue_of_keys_as_a_tensor() -> Iterator[None]:
    trainer, keys = Trainer(), torch.zeros(512, 64)
    while True:
        trainer.train()
        with torch.no_grad():
            keys = torch.cat([keys[64:], trainer.model(batch())])
        yield
