"""What training of vision models and agents keeps for good: trackers, caches, evaluators, prototypes.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    METRICS,
    NO_USUAL,
    OUTPUTS,
    Convolutions,
    Trainer,
    batch,
    images,
    leaks,
)
from tests.truth.vision import (
    ActivationsAndGradients,
    Adversaries,
    Evaluator,
    FrameMemory,
    NormOfEachStep,
    OneStage,
    Posterior,
    Round,
    SmoothedValue,
    Track,
    of_any_size,
)

CACHE = frozenset({"growing cache"})


@leaks("crop follow update", cause=OUTPUTS | NO_USUAL)
def tracks_that_were_removed() -> Iterator[None]:
    """A tracker of people has a list of all tracks that it has removed, so as not to find them again."""
    trainer, embed, chance = Convolutions(), nn.Conv2d(3, 32, 3, stride=2), random.Random(3)
    tracked, removed = list[Track](), list[Track]()

    def crop(frame: Any) -> Any:
        return frame[:, :, 16:48, 16:48].clone()

    @torch.no_grad()
    def follow(frame: Any, number: int) -> None:
        for track in tracked:
            track.update(embed(crop(frame)))
        removed.extend(track for track in tracked if track.end <= number)
        tracked[:] = [track for track in tracked if track.end > number]
        tracked.append(Track(crop(frame), embed(crop(frame)), number + chance.randint(3, 6)))

    for number in itertools.count():
        follow(images(1, 96), number)
        trainer.train(images())
        yield


@leaks("validate losses update forward", cause=GRAPH)
def losses_of_a_detector_in_validation() -> Iterator[None]:
    """A detector gives losses only in training mode, so that validation has graphs, and a meter sums them."""
    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    heads = nn.ModuleDict({"objects": nn.Conv2d(16, 3, 1), "boxes": nn.Conv2d(16, 12, 1)})
    optimizer = torch.optim.SGD([*backbone.parameters(), *heads.parameters()], lr=0.01)
    meters = defaultdict[str, SmoothedValue](SmoothedValue)

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

    for number in itertools.count():
        train_step()
        if number % 2:
            validate()
        yield


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


@leaks("act store forward", cause=GRAPH)
def recurrent_states_in_the_replay() -> Iterator[None]:
    """A replay also has the recurrent state before each action, with the graph of its episode."""
    cell, head = nn.LSTMCell(32, 64), nn.Linear(64, 4)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.001)
    replay: dict[str, list[Any]] = {"states": [], "hidden": [], "rewards": []}

    def act(states: Any, hidden: Any) -> Any:
        hidden = cell(states, hidden)
        head(hidden[0]).argmax(1)
        return hidden

    def store(states: Any, hidden: Any, rewards: Any) -> None:
        replay["states"].append(states)
        replay["hidden"].append(hidden)
        replay["rewards"].append(rewards)

    def learn() -> None:
        chosen = random.randrange(len(replay["states"]))
        before = [part.detach() for part in replay["hidden"][chosen]]
        values = head(cell(replay["states"][chosen], before)[0]).amax(1)
        optimizer.zero_grad()
        (values - replay["rewards"][chosen]).square().mean().backward()
        optimizer.step()

    for number in itertools.count():
        if number % 5 == 0:
            hidden = (torch.zeros(16, 64), torch.zeros(16, 64))
        states = torch.rand(16, 32)
        store(states, hidden, torch.rand(16))
        hidden = act(states, hidden)
        learn()
        yield


@leaks("save save_gradient train forward", cause=OUTPUTS | GRADIENTS)
def hooks_of_a_class_activation_map() -> Iterator[None]:
    """They are forgotten when a map is drawn anew, but one was drawn, and training calls the model itself."""
    trainer = Convolutions()
    watched = ActivationsAndGradients(trainer.model, trainer.model[2])
    watched(images()).amax(1).sum().backward()
    while True:
        trainer.train(images())
        yield


@leaks("paste update evaluate", cause=OUTPUTS | NO_USUAL)
def masks_of_all_evaluated_images() -> Iterator[None]:
    """Masks are NumPy arrays by number of image, and each second step evaluates images that are new."""
    trainer, evaluator = Convolutions(), Evaluator()
    segment = nn.Conv2d(3, 1, 3)

    @torch.no_grad()
    def evaluate(number: int) -> None:
        evaluator.update(4 * number, segment(images(4, 26)))

    for number in itertools.count():
        trainer.train(images())
        if number % 2 == 0:
            evaluate(number)
        yield


@leaks("make_grid sample", cause=OUTPUTS | NO_USUAL)
def grids_of_generated_images() -> Iterator[None]:
    """For an animation of its progress, a generator gets the same noise at each fifth step."""
    adversaries, noise, grids = Adversaries(), torch.randn(32, 16), list[Any]()

    def make_grid(pictures: Any) -> Any:
        padded = functional.pad(pictures, (1, 1, 1, 1), value=-1.0)
        return torch.cat([torch.cat(list(row), 2) for row in padded.split(8)], 1)

    def sample() -> None:
        with torch.no_grad():
            pictures = adversaries.generator(noise)
        grids.append(make_grid(pictures))

    for number in itertools.count():
        adversaries.train_discriminator()
        adversaries.train_generator()
        if number % 5 == 0:
            sample()
        yield


@leaks("collect", cause=GROWING)
def deviations_of_all_weights() -> Iterator[None]:
    """Uncertainty from the path of the weights: a buffer gets a row each second step, with no real bound."""
    trainer = Trainer()
    posterior = Posterior(trainer.model, most=100_000)
    for number in itertools.count():
        trainer.train()
        if number % 2:
            posterior.collect(trainer.model)
        yield


@leaks("train_step update forward", cause=GRAPH)
def prototypes_that_know_all_batches() -> Iterator[None]:
    """Contrastive learning smooths a prototype of each class, and forgot no_grad for the second view."""
    encoder = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(32),
    )
    encoder(images())
    optimizer, prototypes = torch.optim.SGD(encoder.parameters(), lr=0.01), dict[int, Any]()

    def update(label: int, mean: Any) -> None:
        known = prototypes.get(label)
        prototypes[label] = mean if known is None else 0.9 * known + 0.1 * mean

    def train_step() -> None:
        pictures, labels = images(8), torch.randint(5, (8,))
        queries, keys = encoder(pictures), encoder(pictures.flip(-1))
        optimizer.zero_grad()
        functional.cross_entropy(queries @ keys.detach().T, torch.arange(8)).backward()
        optimizer.step()
        for label in labels.unique().tolist():
            update(label, keys[labels == label].mean(0))

    while True:
        train_step()
        yield


@leaks("forward adapt", cause=METRICS | NO_USUAL)
def statistics_of_each_inner_step() -> Iterator[None]:
    """Each inner step has batch statistics of its own, but the number of a step is never 0 again."""
    first, norm, last = nn.Linear(32, 256), NormOfEachStep(), nn.Linear(256, 4)
    optimizer, numbers = (
        torch.optim.Adam([*first.parameters(), *last.parameters()], lr=0.001),
        itertools.count(),
    )

    def loss(weight: Any) -> Any:
        hidden = norm(functional.linear(torch.rand(16, 32), weight, first.bias), next(numbers))
        return (last(hidden.relu()) - 1.0).square().mean()

    def adapt() -> Any:
        (gradient,) = torch.autograd.grad(loss(first.weight), [first.weight], create_graph=True)
        return first.weight - 0.1 * gradient

    while True:
        optimizer.zero_grad()
        loss(adapt()).backward()
        optimizer.step()
        yield


@leaks("predict acquire", cause=OUTPUTS | NO_USUAL)
def rounds_of_active_learning() -> Iterator[None]:
    """Each fifth step asks for labels of what dropout is unsure of; rounds have all probabilities."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    optimizer, rounds = torch.optim.SGD(model.parameters(), lr=0.01), list[Round]()

    @torch.no_grad()
    def predict(pool: Any) -> Any:
        return torch.stack([model(pool).softmax(1) for _ in range(8)])

    def acquire(number: int) -> None:
        probabilities = predict(batch(512))
        chosen = probabilities.var(0).sum(1).topk(8).indices.tolist()
        rounds.append(Round(number, probabilities, chosen))

    for number in itertools.count():
        optimizer.zero_grad()
        functional.cross_entropy(model(batch()), torch.randint(10, (64,))).backward()
        optimizer.step()
        if number % 5 == 0:
            acquire(number)
        yield


@leaks("grid forward", cause=OUTPUTS | CACHE | NO_USUAL)
def anchors_of_every_image_size() -> Iterator[None]:
    """A detector caches its anchors by the size of an image, and hardly any size comes twice."""
    detector, chance = OneStage(most=1_000_000), random.Random(5)
    while True:
        detector.train(of_any_size(chance))
        yield


@leaks("bonus forward", cause=OUTPUTS)
def an_episodic_memory_without_an_end() -> Iterator[None]:
    """Curiosity compares with all states of an episode, but the environments begin anew by themselves."""
    trainer, embed, memory = Trainer(), nn.Linear(64, 32), list[Any]()

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
        yield


@leaks("latents_of encode forward", cause=OUTPUTS | CACHE | NO_USUAL)
def latents_of_an_endless_stream() -> Iterator[None]:
    """Training of a diffusion model caches what its encoder says of a file, and no file comes twice."""
    encoder, denoiser = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, padding=1)
    optimizer, cache = torch.optim.AdamW(denoiser.parameters(), lr=0.001), dict[str, Any]()

    @torch.no_grad()
    def encode(pictures: Any) -> Any:
        return encoder(pictures) * 0.18

    def latents_of(name: str) -> Any:
        if name not in cache:
            cache[name] = encode(images(8, 256))
        return cache[name]

    def train_step(latents: Any) -> None:
        noise, level = torch.randn_like(latents), torch.rand(8, 1, 1, 1)
        optimizer.zero_grad()
        (denoiser(latents * (1 - level) + noise * level) - noise).square().mean().backward()
        optimizer.step()

    for number in itertools.count():
        train_step(latents_of(f"shard-{number // 100:05}/{number:08}"))
        yield


reported = defaultdict[str, list[Any]](list)


def report(name: str, values: Any) -> None:
    reported[name].append(values.detach())


@leaks("report forward", cause=OUTPUTS)
def reports_that_nobody_collects() -> Iterator[None]:
    """What the discriminator thinks of patches is reported to a global dict of lists, and never collected."""
    adversaries = Adversaries()
    try:
        for number in itertools.count():
            if number % 2:
                report("loss/generator", adversaries.train_generator())
            else:
                real, fake = adversaries.train_discriminator()
                report("scores/real", real)
                report("scores/fake", fake)
            yield
    finally:
        reported.clear()
