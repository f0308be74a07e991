"""What looks as if training kept it for good, in places where nobody looks, and goes in time.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import queue
import random
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils import dlpack

from tests.truth.leak_loop import Convolutions, Trainer, batch, healthy, images


class Perturbed(nn.Module):
    """Adds the same noise to a weight whenever it is used."""

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.register_buffer("noise", 0.001 * torch.randn(shape))

    def forward(self, weight: Any) -> Any:
        return weight + self.noise


class Stream(nn.Module):
    """Has the last frames that it has encoded, in a list of TorchScript."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.encode, self.most = nn.Linear(64, 64), most
        self.frames = torch.jit.Attribute([], list[torch.Tensor])

    def forward(self, frame: torch.Tensor) -> torch.Tensor:
        self.frames.append(self.encode(frame))
        if len(self.frames) > self.most:
            self.frames.pop(0)
        return torch.stack(self.frames[-4:]).mean(0)


def scripted(most: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(Stream(most))


@healthy
def timeouts_are_cancelled() -> Iterator[None]:
    """A request takes five steps, and then its timeout of ten minutes is taken out of the event loop."""
    trainer, loop, late = Trainer(), asyncio.new_event_loop(), list[int]()
    running = deque[tuple[asyncio.TimerHandle, Any]]()

    def on_timeout(inputs: Any) -> None:
        late.append(len(inputs))

    async def handle(inputs: Any) -> None:
        running.append((asyncio.get_running_loop().call_later(600, on_timeout, inputs), inputs))
        if len(running) > 5:
            timeout, inputs = running.popleft()
            trainer.train(inputs)
            timeout.cancel()

    try:
        while True:
            loop.run_until_complete(handle(torch.rand(96, 64)))
            yield
    finally:
        loop.close()


@healthy
def workspaces_of_threads_that_end() -> Iterator[None]:
    """A new thread prepares each batch in a workspace of its own, which goes with the thread."""
    trainer, own, ready = Trainer(), threading.local(), queue.Queue[Any]()

    def prepare() -> None:
        own.workspace = torch.empty(64, 64)
        ready.put(own.workspace.uniform_().sqrt())

    while True:
        thread = threading.Thread(target=prepare)
        thread.start()
        trainer.train(ready.get())
        thread.join()
        yield


@healthy
def capsules_are_taken_later() -> Iterator[None]:
    """Predictions are offered as DLPack, and taken six steps later."""
    trainer, offered = Trainer(), deque[Any]()
    while True:
        with torch.no_grad():
            offered.append(dlpack.to_dlpack(trainer.model(batch(80))))
        if len(offered) > 6:
            trainer.train(torch.from_dlpack(offered.popleft()))
        yield


@healthy
def gradients_of_samples_until_the_update() -> Iterator[None]:
    """Hooks list the gradient of each sample, for clipping at the update after seven batches."""
    trainer = Trainer()
    layer, samples = trainer.model[2], list[Any]()

    def remember(_layer: Any, inputs: Any, _output: Any) -> None:
        layer.activations = inputs[0].detach()

    def capture(_layer: Any, _inputs: Any, outputs: Any) -> None:
        samples.append(torch.einsum("bo,bi->boi", outputs[0], layer.activations))

    layer.register_forward_hook(remember)
    layer.register_full_backward_hook(capture)
    for number in itertools.count(1):
        trainer.loss(batch(6)).backward()
        if number % 7 == 0:
            every = torch.cat(samples)
            norms = every.flatten(1).norm(dim=1).clamp(min=1)
            layer.weight.grad = (every / norms[:, None, None]).mean(0)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
            samples.clear()
        yield


@healthy
def parametrizations_become_weights() -> Iterator[None]:
    """Every second step perturbs a convolution's weight, and the next one makes that its weight."""
    trainer = Convolutions(channels=64)
    layer = trainer.model[2]
    for number in itertools.count():
        if number % 2 == 0:
            parametrize.register_parametrization(layer, "weight", Perturbed(layer.weight.shape))
        trainer.train(images(2))
        if number % 2:
            parametrize.remove_parametrizations(layer, "weight")
        yield


@healthy
def features_of_the_critic_until_the_generator_trains() -> Iterator[None]:
    """The critic trains for five steps, and its features of real images are matched by the generator then."""
    critic, generator = Convolutions(), nn.ConvTranspose2d(8, 3, 24)
    optimizer = torch.optim.Adam(generator.parameters(), lr=0.001)
    real = list[Any]()
    for number in itertools.count(1):
        features = critic.model[:3](images())
        real.append(features.detach())
        critic.optimizer.zero_grad()
        (
            critic.model[3:](features).mean() - critic.model(generator(torch.randn(4, 8, 1, 1))).mean()
        ).backward()
        critic.optimizer.step()
        if number % 5 == 0:
            optimizer.zero_grad()
            matched = critic.model[:3](generator(torch.randn(4, 8, 1, 1)))
            (matched.mean(0) - torch.cat(real).mean(0)).square().mean().backward()
            optimizer.step()
            real.clear()
        yield


@healthy
def factors_of_curvature() -> Iterator[None]:
    """Hooks keep the last inputs and gradients; averages of their squares are inverted every tenth step."""
    trainer = Trainer()
    layer, last, factors, inverses = trainer.model[0], dict[str, Any](), dict[str, Any](), dict[str, Any]()

    def remember(_layer: Any, inputs: Any, _output: Any) -> None:
        last["input"] = inputs[0].detach()

    def capture(_layer: Any, _inputs: Any, outputs: Any) -> None:
        last["output"] = outputs[0]

    layer.register_forward_hook(remember)
    layer.register_full_backward_hook(capture)
    for number in itertools.count():
        trainer.train()
        for name, values in last.items():
            factors[name] = 0.95 * factors.get(name, torch.eye(64)) + 0.05 * values.T @ values
        if number % 10 == 0:
            inverses.update({name: (one + 0.1 * torch.eye(64)).inverse() for name, one in factors.items()})
        layer.weight.grad = inverses["output"] @ layer.weight.grad @ inverses["input"]
        yield


@healthy
def a_static_cache_for_each_request() -> Iterator[None]:
    """Keys and values have room for a whole answer from its first token on. Nine requests run, one ends."""
    attention = nn.MultiheadAttention(64, 4, batch_first=True)
    running = deque[tuple[int, Any]]()
    for number in itertools.count():
        running.append((number, torch.zeros(4, 24, 64)))
        with torch.no_grad():
            for start, cache in running:
                place, token = number - start, torch.rand(4, 1, 64)
                cache[:, place : place + 1] = token
                attention(token, cache[:, : place + 1], cache[:, : place + 1])
        if len(running) == 9:
            running.popleft()
        yield


@healthy
def caches_of_beams_are_reordered() -> Iterator[None]:
    """The caches of four beams become longer by a token a step, in the order of the best, up to 17."""
    layer, head = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), nn.Linear(64, 64)
    layer.eval()
    while True:
        cache = torch.zeros(4, 0, 64)
        for _ in range(17):
            with torch.no_grad():
                hidden = layer(torch.cat([cache, torch.rand(4, 16, 64)], dim=1))
                best = head(hidden[:, -1]).max(dim=1).values.argsort()[[0, 0, 1, 2]]
                cache = hidden.index_select(0, best)
            yield


@healthy
def a_registry_hears_when_batches_go() -> Iterator[None]:
    """It has a workspace for each batch, and takes it out when the batch goes: seven are in use."""

    class Batch:
        def __init__(self) -> None:
            self.inputs = batch()

    trainer, workspaces, in_use = Trainer(), dict[Any, Any](), deque[Batch]()
    while True:
        one = Batch()
        workspaces[weakref.ref(one, workspaces.pop)] = torch.rand(64, 64)
        in_use.append(one)
        del one
        if len(in_use) > 7:
            first = in_use.popleft()
            trainer.train(first.inputs + workspaces[weakref.getweakrefs(first)[0]])
            del first
        yield


@healthy
def the_mean_of_the_last_checkpoints() -> Iterator[None]:
    """Every third step gives a checkpoint, and the mean of the last 14 is evaluated: full after 42 steps."""
    trainer, average, last = Trainer(), Trainer(), deque[list[Any]](maxlen=14)
    for number in itertools.count(1):
        trainer.train()
        if number % 3 == 0:
            last.append([one.detach().clone() for one in trainer.model.parameters()])
            with torch.no_grad():
                for one, values in zip(average.model.parameters(), zip(*last, strict=True), strict=True):
                    one.copy_(sum(values) / len(last))
                average.loss(batch())
        yield


@healthy
def samples_are_merged_and_reduced() -> Iterator[None]:
    """Two sets of samples of one level become one of the next, half as dense: there are as many as levels."""
    trainer, levels = Trainer(), dict[int, Any]()
    while True:
        samples, level = torch.rand(64, 64), 0
        trainer.train(samples)
        while level in levels:
            both = torch.cat([levels.pop(level), samples])
            samples, level = both[torch.randperm(len(both))[:64]], level + 1
        levels[level] = samples
        yield


@healthy
def gradients_arrive_late() -> Iterator[None]:
    """Workers send gradients that arrive one to ten steps later, in any order."""
    trainer, chance, under_way = Trainer(), random.Random(3), list[tuple[int, int, list[Any]]]()
    for number in itertools.count():
        trainer.optimizer.zero_grad()
        trainer.loss(batch()).backward()
        gradients = [one.grad for one in trainer.model.parameters()]
        heapq.heappush(under_way, (number + chance.randint(1, 10), number, gradients))
        while under_way and under_way[0][0] <= number:
            _, _, gradients = heapq.heappop(under_way)
            for one, gradient in zip(trainer.model.parameters(), gradients, strict=True):
                one.grad = gradient
            trainer.optimizer.step()
        yield


@healthy
def successive_halving() -> Iterator[None]:
    """Eight trials train in turn; the worse half goes after six steps, and again, until one is left."""
    while True:
        trials = [Trainer() for _ in range(8)]
        while len(trials) > 1:
            for _ in range(6):
                for trial in trials:
                    trial.train()
                yield
            trials = sorted(trials, key=lambda one: float(one.loss(batch())))[: len(trials) // 2]


@healthy
def a_scripted_module_keeps_twelve_frames() -> Iterator[None]:
    """A stream goes through a module of TorchScript that has the last twelve frames."""
    trainer, stream = Trainer(), scripted(most=12)
    while True:
        with torch.no_grad():
            frame = stream(batch())
        trainer.train(frame)
        yield


@healthy
def a_pool_sorted_by_length() -> Iterator[None]:
    """A sampler reads 20 batches at once, and gives them out by length; then it reads the next ones."""
    trainer, pool, chance = Trainer(), list[Any](), random.Random(1)
    while True:
        if not pool:
            pool = sorted((batch(chance.randint(40, 120)) for _ in range(20)), key=len)
        trainer.train(pool.pop())
        yield


@healthy
def updates_of_nine_clients() -> Iterator[None]:
    """Federated training: nine clients train one after the other, then their weights are averaged."""
    shared = Trainer()
    while True:
        updates = list[list[Any]]()
        for _ in range(9):
            client = Trainer()
            client.model.load_state_dict(shared.model.state_dict())
            for _ in range(3):
                client.train()
            updates.append([one.detach() for one in client.model.parameters()])
            yield
        with torch.no_grad():
            for one, values in zip(shared.model.parameters(), zip(*updates, strict=True), strict=True):
                one.copy_(sum(values) / len(values))
