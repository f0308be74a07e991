"""What looks as if training of vision models and agents kept it for good, and goes in time.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import Convolutions, Trainer, batch, healthy, images
from tests.truth.vision import (
    Adversaries,
    Evaluator,
    FrameMemory,
    OneStage,
    Posterior,
    SmoothedValue,
    Track,
    of_any_size,
)


@healthy
def tracks_that_were_removed_lately() -> Iterator[None]:
    """A tracker of people has a list of the last sixteen tracks that it has removed."""
    trainer, embed, chance = Convolutions(), nn.Conv2d(3, 32, 3, stride=2), random.Random(3)
    tracked, removed = list[Track](), list[Track]()

    def crop(frame: Any) -> Any:
        return frame[:, :, 16:48, 16:48].clone()

    @torch.no_grad()
    def follow(frame: Any, number: int) -> None:
        nonlocal removed
        for track in tracked:
            track.update(embed(crop(frame)))
        removed = [*removed, *(track for track in tracked if track.end <= number)][-16:]
        tracked[:] = [track for track in tracked if track.end > number]
        tracked.append(Track(crop(frame), embed(crop(frame)), number + chance.randint(3, 6)))

    for number in itertools.count():
        follow(images(1, 96), number)
        trainer.train(images())
        yield


@healthy
def masks_of_an_evaluation_of_18_steps() -> Iterator[None]:
    """Masks are NumPy arrays by number of image; they are compared with the true ones after each epoch."""
    trainer, evaluator, qualities = Convolutions(), Evaluator(), list[float]()
    segment = nn.Conv2d(3, 1, 3)

    @torch.no_grad()
    def evaluate(number: int) -> None:
        evaluator.update(4 * number, segment(images(4, 26)))

    def summarize() -> None:
        masks = [prediction["mask"].mean() for prediction in evaluator.predictions.values()]
        qualities.append(float(sum(masks)) / len(masks))
        evaluator.predictions.clear()

    for number in itertools.count(1):
        trainer.train(images())
        evaluate(number)
        if number % 18 == 0:
            summarize()
        yield


@healthy
def losses_of_a_detector_until_they_are_logged() -> Iterator[None]:
    """Meters sum the losses of validation with their graphs, and are made anew each seventh step."""
    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    heads = nn.ModuleDict({"objects": nn.Conv2d(16, 3, 1), "boxes": nn.Conv2d(16, 12, 1)})
    optimizer = torch.optim.SGD([*backbone.parameters(), *heads.parameters()], lr=0.01)
    meters, logged = defaultdict[str, SmoothedValue](SmoothedValue), list[dict[str, float]]()

    def losses(inputs: Any) -> dict[str, Any]:
        features = backbone(inputs)
        return {name: (head(features) - 0.5).square().mean() for name, head in heads.items()}

    def train_step() -> None:
        optimizer.zero_grad()
        sum(losses(images(2, 48)).values()).backward()
        optimizer.step()

    def validate() -> None:
        for name, loss in losses(images(2, 48)).items():
            meters[name].update(loss)

    def log() -> None:
        logged.append({name: meter.total.item() / meter.count for name, meter in meters.items()})
        meters.clear()

    for number in itertools.count(1):
        train_step()
        validate()
        if number % 7 == 0:
            log()
        yield


@healthy
def a_memory_of_each_short_video() -> Iterator[None]:
    """Segmentation looks back at all frames of a video, which has 8 to 20 of them."""
    trainer, memory, chance = Convolutions(), FrameMemory(), random.Random(2)
    key, value, left = nn.Conv2d(3, 32, 3, stride=4), nn.Conv2d(3, 64, 3, stride=4), 0

    @torch.no_grad()
    def segment(frame: Any) -> None:
        memory.memorize(key(frame), value(frame))
        memory.look_back(key(frame))

    while True:
        if left == 0:
            memory, left = FrameMemory(), chance.randint(8, 20)
        segment(images(1, 40))
        left -= 1
        trainer.train(images())
        yield


@healthy
def sequences_with_their_first_state() -> Iterator[None]:
    """A replay of five sequences of eight steps, which overlap by half, with the recurrent states."""
    cell, head = nn.LSTMCell(32, 64), nn.Linear(64, 4)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.001)
    replay, recent = deque[list[tuple[Any, Any]]](maxlen=5), list[tuple[Any, Any]]()

    @torch.no_grad()
    def act(states: Any, hidden: Any) -> Any:
        recent.append((states, hidden))
        if len(recent) == 8:
            replay.append(recent.copy())
            del recent[:4]
        return cell(states, hidden)

    def learn() -> None:
        optimizer.zero_grad()
        sequence = random.choice(replay)
        hidden, loss = sequence[0][1], torch.zeros(())
        for states, _ in sequence:
            hidden = cell(states, hidden)
            loss = loss + head(hidden[0]).square().mean()
        loss.backward()
        optimizer.step()

    hidden = (torch.zeros(16, 64), torch.zeros(16, 64))
    while True:
        hidden = act(torch.rand(16, 32), hidden)
        if replay:
            learn()
        yield


@healthy
def attention_of_one_sampling() -> Iterator[None]:
    """A diffusion model lists its attention by resolution until the image is done, after 16 steps."""
    trainer, store = Trainer(), defaultdict[str, list[Any]](list)
    project = nn.ModuleDict({"down": nn.Linear(16, 16), "middle": nn.Linear(16, 16)})
    words = torch.rand(2, 24, 16)

    def attend(place: str, pixels: Any) -> Any:
        weights = (project[place](pixels) @ words.transpose(1, 2)).softmax(2)
        store[place].append(weights)
        return weights @ words

    @torch.no_grad()
    def denoise(latents: Any) -> Any:
        latents = latents - 0.1 * attend("down", latents)
        return latents - 0.1 * attend("middle", latents[:, ::4]).repeat(1, 4, 1)

    def show() -> dict[str, Any]:
        means = {place: torch.stack(weights).mean(0) for place, weights in store.items()}
        store.clear()
        return means

    latents = torch.randn(2, 256, 16)
    for number in itertools.count(1):
        latents = denoise(latents)
        trainer.train()
        if number % 16 == 0:
            show()
            latents = torch.randn(2, 256, 16)
        yield


@healthy
def images_become_larger_four_times() -> Iterator[None]:
    """A progressive discriminator gets a layer, and images twice the size, at steps 5, 10, 15 and 20."""
    layers = nn.ModuleList([nn.Conv2d(3, 32, 3, padding=1)])
    optimizer, size = torch.optim.Adam(layers.parameters(), lr=0.001), 4

    def grow() -> None:
        layer = nn.Conv2d(32, 32, 3, padding=1)
        layers.append(layer)
        optimizer.add_param_group({"params": list(layer.parameters())})

    def train_step() -> None:
        features = layers[0](images(4, size))
        for layer in layers[1:]:
            features = functional.avg_pool2d(layer(features).relu(), 2)
        optimizer.zero_grad()
        features.square().mean().backward()
        optimizer.step()

    for number in itertools.count():
        if number in (5, 10, 15, 20):
            grow()
            size *= 2
        train_step()
        yield


@healthy
def deviations_of_the_last_weights() -> Iterator[None]:
    """Uncertainty from the path of the weights: a buffer gets a row each second step, up to nine."""
    trainer = Trainer()
    posterior = Posterior(trainer.model, most=9)
    for number in itertools.count():
        trainer.train()
        if number % 2:
            posterior.collect(trainer.model)
        yield


@healthy
def a_queue_that_begins_late() -> Iterator[None]:
    """Clustering of views also has older embeddings from step 25 on, in a queue that is moved by a batch."""
    encoder, prototypes = nn.Linear(64, 32), nn.Linear(32, 24, bias=False)
    optimizer = torch.optim.SGD([*encoder.parameters(), *prototypes.parameters()], lr=0.01)
    queue: Any = None

    def assign(embeddings: Any) -> Any:
        nonlocal queue
        known = embeddings.detach()
        if queue is not None:
            queue[64:] = queue[:-64].clone()
            queue[:64] = known
            known = torch.cat([known, queue])
        return prototypes(known)[:64].softmax(1).detach()

    for number in itertools.count():
        if number == 25:
            queue = torch.zeros(3840, 32)
        inputs = batch()
        targets = assign(encoder(inputs))
        optimizer.zero_grad()
        functional.cross_entropy(prototypes(encoder(inputs + 0.1)), targets).backward()
        optimizer.step()
        yield


@healthy
def features_of_an_episode_of_few_shots() -> Iterator[None]:
    """Features of the examples of each class are cached, for the seven batches of an episode."""
    encoder, chance = Convolutions(), random.Random(4)
    features, classes = dict[int, Any](), list[int]()

    def examples(label: int) -> Any:
        if label not in features:
            with torch.no_grad():
                features[label] = encoder.model[:4](images(5))
        return features[label]

    for number in itertools.count():
        if number % 7 == 0:
            features.clear()
            classes = chance.sample(range(1000), 12)
        for label in chance.sample(classes, 3):
            examples(label)
        encoder.train(images())
        yield


@healthy
def passes_with_dropout_until_there_are_17() -> Iterator[None]:
    """Active learning: a pass over the pool in each step, and after 17 of them their variance."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    optimizer, pool, passes = torch.optim.SGD(model.parameters(), lr=0.01), batch(512), list[Any]()

    @torch.no_grad()
    def predict() -> None:
        passes.append(model(pool).softmax(1))

    def acquire() -> Any:
        unsure = torch.stack(passes).var(0).sum(1).topk(8).indices
        passes.clear()
        return unsure

    for number in itertools.count(1):
        predict()
        if number % 17 == 0:
            pool[acquire()] = batch(8)
        optimizer.zero_grad()
        functional.cross_entropy(model(batch()), torch.randint(10, (64,))).backward()
        optimizer.step()
        yield


@healthy
def anchors_of_a_few_image_sizes() -> Iterator[None]:
    """A detector caches its anchors by the size of an image, and forgets all when there are fourteen."""
    detector, chance = OneStage(most=14), random.Random(5)
    while True:
        detector.train(of_any_size(chance))
        yield


@healthy
def an_episodic_memory_of_each_episode() -> Iterator[None]:
    """Curiosity compares with all states of an episode, which has 6 to 20 of them."""
    trainer, embed, memory = Trainer(), nn.Linear(64, 32), list[Any]()
    chance, left = random.Random(6), 13

    @torch.no_grad()
    def bonus(states: Any) -> Any:
        features = embed(states)
        memory.append(features)
        distances = (torch.stack(memory) - features).square().sum(2)
        return distances.topk(min(5, len(memory)), 0, largest=False).values.mean(0)

    while True:
        states = batch(32)
        rewards = bonus(states)
        trainer.train(states * rewards[:, None])
        left -= 1
        if left == 0:
            memory.clear()
            left = chance.randint(6, 20)
        yield


@healthy
def images_that_a_mosaic_may_take() -> Iterator[None]:
    """A data set has room for all images, but only the last twelve that were read; four make a mosaic."""
    trainer, chance = Convolutions(), random.Random(8)
    pictures: list[Any] = [None] * 400
    buffer = list[int]()

    def load(number: int) -> Any:
        if pictures[number] is None:
            pictures[number] = images(1, 48)
            buffer.append(number)
            if len(buffer) > 12:
                pictures[buffer.pop(0)] = None
        return pictures[number]

    def mosaic(number: int) -> Any:
        tiles = [load(number), *(load(chosen) for chosen in chance.choices(buffer, k=3))]
        return torch.cat([torch.cat(tiles[:2], 2), torch.cat(tiles[2:], 2)], 3)

    while True:
        trainer.train(functional.interpolate(mosaic(chance.randrange(400)), (24, 24)))
        yield


@healthy
def scores_until_the_augmentation_changes() -> Iterator[None]:
    """Signs of what a discriminator thinks of patches are listed for 15 steps, then it is adapted."""
    adversaries, signs, strength = Adversaries(), list[Any](), 0.0

    def adapt() -> float:
        mean = float(torch.cat(signs).mean())
        signs.clear()
        return 0.01 if mean > 0.6 else -0.01

    for number in itertools.count(1):
        real, _ = adversaries.train_discriminator()
        adversaries.train_generator()
        signs.append(real.detach().sign())
        if number % 15 == 0:
            strength = max(0.0, strength + adapt())
        yield
