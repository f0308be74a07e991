"""What only looks as if it were kept in the memory of a GPU: slots, streams, shots, slow starts.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.gpu_code import AdapterServer, SideStream
from tests.truth.leak_loop import Trainer, batch, healthy


@healthy
def batches_three_steps_behind() -> Iterator[None]:
    """A stream holds a batch until the event after its step has come, three steps later."""
    trainer, stream, events = Trainer(), SideStream(), deque[int]()
    stream.copy(0)
    for number in itertools.count():
        stream.copy(number + 1)
        trainer.train(stream.batch(number))
        events.append(number)
        while events[0] <= number - 3:
            stream.wait(events.popleft())
        yield


@healthy
def chats_within_a_budget_of_words() -> Iterator[None]:
    """Keys of chats stay for their next turn; those not used for longest go if all have over 128 words."""
    project, chance, chats = nn.Linear(64, 64), random.Random(1), OrderedDict[int, Any]()

    @torch.inference_mode()
    def turn(chat: int, words: Any) -> None:
        keys = project(words)
        chats[chat] = torch.cat([chats[chat], keys]) if chat in chats else keys
        chats.move_to_end(chat)
        functional.scaled_dot_product_attention(keys[None], chats[chat][None], chats[chat][None])

    def evict() -> None:
        while sum(map(len, chats.values())) > 128:
            chats.popitem(last=False)

    for number in itertools.count():
        turn(number // 4 - chance.randint(0, min(2, number // 4)), batch(12))
        evict()
        yield


@healthy
def errors_of_sparse_gradients_are_fed_back() -> Iterator[None]:
    """Only the largest of each gradient is sent, and the rest is kept until the next step, by its name."""
    trainer, errors = Trainer(), dict[str, Any]()

    @torch.no_grad()
    def compress(name: str, weight: Any) -> None:
        gradient = weight.grad + errors.get(name, 0.0)
        least = gradient.abs().flatten().topk(max(1, gradient.numel() // 16)).values[-1]
        sent = torch.where(gradient.abs() >= least, gradient, 0.0)
        errors[name] = gradient - sent
        weight.grad = sent

    while True:
        trainer.optimizer.zero_grad()
        trainer.loss(batch()).backward()
        for name, weight in trainer.model.named_parameters():
            compress(name, weight)
        trainer.optimizer.step()
        yield


@dataclass
class Learner:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    score: float = 0.0


@healthy
def the_worst_learner_becomes_a_copy_of_the_best() -> Iterator[None]:
    """Five learners take turns, and each eighth step the worst is thrown away for a copy of the best."""

    def learner(model: nn.Module, rate: float) -> Learner:
        return Learner(model, torch.optim.Adam(model.parameters(), lr=rate))

    learners = [learner(Trainer().model, 0.001 * (1 + number)) for number in range(5)]

    def train(one: Learner) -> None:
        loss = one.model(batch()).square().mean()
        one.optimizer.zero_grad()
        loss.backward()
        one.optimizer.step()
        one.score = -loss.item()

    def exploit() -> None:
        learners.sort(key=lambda one: one.score)
        rate = learners[-1].optimizer.param_groups[0]["lr"] * random.choice((0.8, 1.25))
        learners[0] = learner(copy.deepcopy(learners[-1].model), rate)

    for number in itertools.count():
        train(learners[number % 5])
        if number % 8 == 7:
            exploit()
        yield


@healthy
def clicks_that_come_six_steps_later() -> Iterator[None]:
    """Guesses wait for their clicks with their graphs, in a dict, and are learned from six steps later."""
    encoder, head = nn.Linear(64, 128), nn.Linear(128, 16)
    optimizer, waiting = torch.optim.SGD(head.parameters(), lr=0.01), dict[int, Any]()

    def show(number: int) -> None:
        with torch.no_grad():
            features = encoder(batch()).relu()
        waiting[number] = head(features)

    def learn(number: int, clicks: Any) -> None:
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(waiting.pop(number), clicks).backward()
        optimizer.step()

    for number in itertools.count():
        show(number)
        if number >= 6:
            learn(number - 6, torch.randint(2, (64, 16)).float())
        yield


@healthy
def traces_of_eligible_weights() -> Iterator[None]:
    """Learning from temporal differences adds the gradient of each step to fading traces."""
    values = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    weights = list(values.parameters())
    traces = [torch.zeros_like(weight) for weight in weights]

    def trace(states: Any) -> None:
        gradients = torch.autograd.grad(values(states).mean(), weights)
        traces[:] = [0.9 * old + new for old, new in zip(traces, gradients, strict=True)]

    @torch.no_grad()
    def learn(states: Any, after: Any) -> None:
        surprise = (torch.rand(32, 1) + 0.99 * values(after) - values(states)).mean()
        for weight, eligible in zip(weights, traces, strict=True):
            weight += 0.001 * surprise * eligible

    states = batch(32)
    while True:
        after = batch(32)
        trace(states)
        learn(states, after)
        states = after
        yield


@healthy
def activations_until_the_ranges_are_known() -> Iterator[None]:
    """Hooks note what layers say of 18 batches; then there are ranges, and neither hooks nor activations."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    seen, scales = dict[nn.Module, list[Any]](), dict[nn.Module, Any]()

    def note(layer: nn.Module, args: Any, output: Any) -> None:
        seen.setdefault(layer, []).append(output)

    def finish() -> None:
        for handle in handles:
            handle.remove()
        scales.update({layer: torch.cat(one).abs().quantile(0.99) / 127 for layer, one in seen.items()})
        seen.clear()

    @torch.no_grad()
    def answer(inputs: Any) -> Any:
        for layer in model:
            inputs = layer(inputs)
            if layer in scales:
                inputs = (inputs / scales[layer]).round().clamp(-128, 127) * scales[layer]
        return inputs

    handles = [model[layer].register_forward_hook(note) for layer in (0, 2)]
    for number in itertools.count():
        answer(batch())
        if number == 17:
            finish()
        yield


@healthy
def static_inputs_of_each_padded_size() -> Iterator[None]:
    """Batches are padded to one of eight sizes, each of which has inputs and outputs that stay."""
    model, chance = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)), random.Random(3)
    static = dict[int, tuple[Any, Any]]()

    def capture(size: int) -> None:
        inputs = torch.zeros(size, 64)
        static[size] = inputs, model(inputs).clone()

    @torch.inference_mode()
    def replay(requests: Any) -> Any:
        size = 16 * math.ceil(len(requests) / 16)
        if size not in static:
            capture(size)
        inputs, outputs = static[size]
        inputs[: len(requests)] = requests
        outputs.copy_(model(inputs))
        return outputs[: len(requests)].clone()

    while True:
        replay(batch(chance.randint(1, 128)))
        yield


@healthy
def adapters_in_five_slots() -> Iterator[None]:
    """A server of adapters has five slots, and the layers let go of who loses his."""
    server, chance = AdapterServer(slots=5, unloads=True), random.Random(4)
    for number in itertools.count():
        server.answer(f"user-{max(0, number - chance.randint(0, 3))}", batch(16))
        yield


@healthy
def weights_before_each_climb() -> Iterator[None]:
    """Sharpness is minimized: the weights before a climb are in the optimizer's state until the next."""
    trainer = Trainer()
    weights = list(trainer.model.parameters())

    @torch.no_grad()
    def climb() -> None:
        norm = torch.stack([weight.grad.norm() for weight in weights]).norm()
        for weight in weights:
            trainer.optimizer.state[weight]["before"] = weight.clone()
            weight += 0.05 * weight.grad / norm

    @torch.no_grad()
    def go_back() -> None:
        for weight in weights:
            weight.copy_(trainer.optimizer.state[weight]["before"])

    while True:
        inputs = batch()
        trainer.optimizer.zero_grad()
        trainer.loss(inputs).backward()
        climb()
        trainer.optimizer.zero_grad()
        trainer.loss(inputs).backward()
        go_back()
        trainer.optimizer.step()
        yield


@healthy
def representations_of_a_large_batch_of_pairs() -> Iterator[None]:
    """A contrast over eight small batches: representations first, then their gradients, batch by batch."""
    encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    inputs, represented = list[Any](), list[Any]()

    def represent(some: Any) -> None:
        inputs.append(some)
        with torch.no_grad():
            represented.append(encoder(some))

    def train() -> None:
        everything = torch.cat(represented).requires_grad_()
        scores = everything @ everything.T.roll(1, 0)
        (gradient,) = torch.autograd.grad(scores.logsumexp(1).mean(), [everything])
        optimizer.zero_grad()
        for some, part in zip(inputs, gradient.split(32), strict=True):
            encoder(some).backward(part)
        optimizer.step()
        inputs.clear()
        represented.clear()

    while True:
        represent(batch(32))
        if len(inputs) == 8:
            train()
        yield


@healthy
def particles_with_twelve_ancestors() -> Iterator[None]:
    """A particle filter smooths places of twelve steps ago, so each particle knows its last ancestors."""
    lineage = deque([torch.randn(2048, 2)], maxlen=12)
    place = torch.zeros(2)

    def move() -> Any:
        return lineage[-1] + 0.1 * torch.randn(2048, 2)

    def resample(particles: Any, seen: Any) -> None:
        weights = (-(particles - seen).square().sum(1)).exp()
        chosen = torch.multinomial(weights, len(particles), replacement=True)
        lineage.append(particles)
        for number, past in enumerate(lineage):
            lineage[number] = past[chosen]

    while True:
        place = place + 0.1 * torch.randn(2)
        resample(move(), place + 0.2 * torch.randn(2))
        lineage[0].mean(0)
        yield


@healthy
def wavefields_of_a_shot_until_its_image() -> Iterator[None]:
    """An image of the ground: a wave of 14 steps is kept for each shot, and dropped on the way back."""
    image, kernel = torch.zeros(96, 96), torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]]).float()
    wavefields = list[Any]()

    def onward(now: Any, before: Any) -> Any:
        bent = functional.conv2d(now[None, None], kernel[None, None], padding=1)[0, 0]
        return 2 * now - before + 0.2 * bent

    def rest() -> Any:
        return torch.zeros(96, 96), torch.zeros(96, 96)

    while True:
        now, before = rest()
        now[4, random.randrange(96)] = 1.0
        for _ in range(14):
            now, before = onward(now, before), now
            wavefields.append(now)
            yield
        now, before = rest()
        while wavefields:
            now, before = onward(now, before), now
            now[4] += torch.rand(96)
            image += wavefields.pop() * now
            yield


@healthy
def tiles_of_a_round_trip() -> Iterator[None]:
    """A robot's map makes a tile for each place that is new, but the robot drives round the same block."""
    tiles = dict[tuple[int, int], Any]()

    def tile(x: float, y: float) -> Any:
        where = math.floor(x), math.floor(y)
        if where not in tiles:
            tiles[where] = torch.zeros(48, 48)
        return tiles[where]

    def scan(angle: float) -> None:
        x, y = 3.5 * math.cos(angle), 3.5 * math.sin(angle)
        hits = torch.randint(48, (256, 2))
        counts = torch.zeros(48, 48).index_put((hits[:, 0], hits[:, 1]), torch.ones(256), accumulate=True)
        tile(x, y).add_(counts.clamp(max=3.0)).clamp_(-8.0, 8.0).sub_(0.1)

    for number in itertools.count():
        scan(2 * math.pi * (number % 20 + 0.3) / 20)
        yield


@dataclass
class Segment:
    """vectors: (count, 64). ends: (count,), the step at whose end each is too old."""

    vectors: Any
    ends: Any


@healthy
def segments_of_an_index_are_merged() -> Iterator[None]:
    """News can be found for some ten steps: each fourth step merges the index, without what is too old."""
    segments = list[Segment]()

    def add(number: int) -> None:
        segments.append(Segment(torch.randn(48, 64), number + torch.randint(4, 10, (48,))))

    def merge(number: int) -> None:
        vectors = torch.cat([segment.vectors for segment in segments])
        ends = torch.cat([segment.ends for segment in segments])
        segments[:] = [Segment(vectors[ends > number], ends[ends > number])]

    def search(query: Any) -> Any:
        return torch.cat([(segment.vectors @ query).topk(4).values for segment in segments]).topk(4)

    for number in itertools.count():
        add(number)
        if number % 4 == 3:
            merge(number)
        search(torch.randn(64))
        yield
