"""What training keeps for good in places where nobody looks: event loops, capsules, memos, hooks, modules.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import queue
import random
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn.utils import parametrize
from torch.utils import dlpack

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
from tests.truth.let_go_in_time import Perturbed, scripted


@leaks("receive handle", cause=NO_USUAL)
def timeouts_that_are_not_cancelled() -> Iterator[None]:
    """Each request has a timeout of ten minutes in an event loop, also when its answer came at once."""
    trainer, loop, late = Trainer(), asyncio.new_event_loop(), list[int]()

    def receive() -> Any:
        return torch.rand(96, 64)

    def on_timeout(inputs: Any) -> None:
        late.append(len(inputs))

    async def handle(inputs: Any) -> None:
        asyncio.get_running_loop().call_later(600, on_timeout, inputs)
        trainer.train(inputs)

    try:
        while True:
            loop.run_until_complete(handle(receive()))
            yield
    finally:
        loop.close()


@leaks("workspace prepare", cause=NO_USUAL)
def workspaces_by_name_of_thread() -> Iterator[None]:
    """A new thread prepares each batch in the workspace that is its own by name, and each has a new name."""
    trainer, workspaces, ready = Trainer(), dict[str, Any](), queue.Queue[Any]()

    def workspace() -> Any:
        name = threading.current_thread().name
        if name not in workspaces:
            workspaces[name] = torch.empty(64, 64)
        return workspaces[name]

    def prepare() -> None:
        ready.put(workspace().uniform_().sqrt())

    while True:
        thread = threading.Thread(target=prepare)
        thread.start()
        trainer.train(ready.get())
        thread.join()
        yield


@leaks("offer", cause=OUTPUTS)
def capsules_that_nobody_takes() -> Iterator[None]:
    """Predictions are offered to another framework as DLPack, which has them until somebody takes them."""
    trainer, offered = Trainer(), dict[int, Any]()

    @torch.no_grad()
    def offer(number: int) -> None:
        offered[number] = dlpack.to_dlpack(trainer.model(batch(80)))

    for number in itertools.count():
        trainer.train()
        offer(number)
        yield


@leaks("save place_of", cause=NO_USUAL)
def storages_of_all_checkpoints() -> Iterator[None]:
    """A table of storages by address finds weights that are shared, and is not emptied after a checkpoint."""
    trainer, table = Convolutions(), dict[int, Any]()

    def place_of(weight: Any) -> int:
        storage = weight.untyped_storage()
        table.setdefault(storage.data_ptr(), storage)
        return int(storage.data_ptr())

    def save() -> dict[str, int]:
        weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        return {name: place_of(value) for name, value in weights.items()}

    for number in itertools.count():
        trainer.train(images())
        if number % 2:
            save()
        yield


@leaks("play copy_for_learner __deepcopy__", cause=NO_USUAL)
def one_memo_for_all_copies() -> Iterator[None]:
    """Learners get deep copies with one memo, so that what two of them share is copied once."""
    trainer, memo = Trainer(), dict[int, Any]()

    def play() -> dict[str, Any]:
        return {"states": torch.rand(48, 64), "rewards": torch.rand(48)}

    def copy_for_learner(experience: dict[str, Any]) -> dict[str, Any]:
        return copy.deepcopy(experience, memo)

    while True:
        trainer.train(copy_for_learner(play())["states"])
        yield


@leaks("train_step watch forward", cause=GRAPH)
def a_hook_that_refers_to_its_own_map() -> Iterator[None]:
    """A hook weighs a feature map by its gradient: the map's graph has the hook, and that the map."""
    trainer, latest = Convolutions(), dict[str, Any]()

    def watch(features: Any) -> None:
        def weigh(gradient: Any) -> None:
            weights = gradient.mean((2, 3), keepdim=True)
            latest["saliency"] = (features.detach() * weights).sum(1).relu()

        features.register_hook(weigh)

    def train_step() -> None:
        trainer.optimizer.zero_grad()
        features = trainer.model[:2](images())
        watch(features)
        trainer.model[2:](features).square().mean().backward()
        trainer.optimizer.step()

    while True:
        train_step()
        yield


@leaks("__init__ perturb", cause=NO_USUAL)
def parametrizations_on_top_of_each_other() -> Iterator[None]:
    """Every third step perturbs a convolution's weight anew, and does not take the old noise away."""
    trainer = Convolutions(channels=64)

    def perturb() -> None:
        layer = trainer.model[2]
        parametrize.register_parametrization(layer, "weight", Perturbed(layer.weight.shape))

    for number in itertools.count():
        if number % 3 == 0:
            perturb()
        trainer.train(images(2))
        yield


@leaks("note get_rng_state", cause=METRICS | NO_USUAL)
def states_of_the_generator_for_a_replay() -> Iterator[None]:
    """So that each step can be done again, the generator's state before each of its three stages is noted."""
    trainer, noted = Trainer(), list[tuple[int, str, Any]]()

    def note(number: int, stage: str) -> None:
        noted.append((number, stage, torch.get_rng_state()))

    for number in itertools.count():
        note(number, "read")
        inputs = batch()
        note(number, "augment")
        inputs = inputs + 0.1 * torch.randn_like(inputs)
        note(number, "train")
        trainer.train(inputs)
        yield


@leaks("capture", cause=GRADIENTS)
def gradients_of_samples_are_not_cleared() -> Iterator[None]:
    """Hooks list the gradient of each sample for differential privacy, and zero_grad leaves them."""
    trainer = Trainer()
    layer, samples = trainer.model[2], list[Any]()

    def remember(_layer: Any, inputs: Any, _output: Any) -> None:
        layer.activations = inputs[0].detach()

    def capture(_layer: Any, _inputs: Any, outputs: Any) -> None:
        samples.append(torch.einsum("bo,bi->boi", outputs[0], layer.activations))

    layer.register_forward_hook(remember)
    layer.register_full_backward_hook(capture)
    while True:
        trainer.train(batch(6))
        yield


@leaks("act log_prob", cause=GRAPH | METRICS)
def log_probabilities_of_all_episodes() -> Iterator[None]:
    """The end of an episode empties the list of rewards, but not that of log probabilities."""
    policy = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 6))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.001)
    log_probs, rewards = list[Any](), list[Any]()

    def act(states: Any) -> None:
        choice = Categorical(logits=policy(states))
        actions = choice.sample()
        log_probs.append(choice.log_prob(actions))
        rewards.append((actions == 2).float())

    def finish_episode() -> None:
        optimizer.zero_grad()
        (-torch.stack(log_probs[-len(rewards) :]) * torch.stack(rewards)).mean().backward()
        optimizer.step()
        rewards.clear()

    for number in itertools.count(1):
        act(torch.rand(4096, 16))
        if number % 4 == 0:
            finish_episode()
        yield


@leaks("distribution collect forward", cause=GRAPH)
def distributions_of_old_policies() -> Iterator[None]:
    """The update compares with the policy that acted, but all that ever did are listed, with graphs."""
    actor = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
    spread, optimizer = torch.full((8,), 0.5), torch.optim.Adam(actor.parameters(), lr=0.001)
    policies = list[Normal]()

    def distribution(states: Any) -> Normal:
        return Normal(actor(states), spread)

    def collect() -> tuple[Any, Any]:
        states = batch(32)
        policies.append(distribution(states))
        return states, policies[-1].sample()

    def update(states: Any, actions: Any) -> None:
        old = policies[-1].log_prob(actions).detach()
        for _ in range(3):
            optimizer.zero_grad()
            ratio = (distribution(states).log_prob(actions) - old).exp()
            (-ratio.clamp(0.8, 1.2)).mean().backward()
            optimizer.step()

    while True:
        update(*collect())
        yield


@leaks("add_edges", cause=GROWING)
def a_graph_that_only_gets_edges() -> Iterator[None]:
    """A sparse matrix of users and items gets what they do next, and nothing is ever too old."""
    trainer, shape = Trainer(), (1_000_000, 64)
    edges = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), shape)

    def add_edges(users: Any, items: Any) -> None:
        nonlocal edges
        new = torch.sparse_coo_tensor(torch.stack([users, items]), torch.ones(len(users)), shape)
        edges = (edges + new).coalesce()

    while True:
        add_edges(torch.randint(1_000_000, (1200,)), torch.randint(64, (1200,)))
        trainer.train(edges.index_select(0, torch.randint(1_000_000, (64,))).to_dense())
        yield


@leaks("read images", cause=NO_USUAL)
def a_spy_is_still_around_the_augmentation() -> Iterator[None]:
    """A mock that wraps a function is left from a test, and notes the arguments of each call."""
    trainer = Convolutions()

    def read() -> Any:
        return images(6)

    def augment(inputs: Any) -> Any:
        return inputs.flip(-1) + 0.1

    spy = Mock(wraps=augment)
    while True:
        trainer.train(spy(read()))
        yield


@leaks("load", cause=NO_USUAL)
def a_module_for_each_configuration() -> Iterator[None]:
    """A sweep makes a module of each configuration, and sys.modules has them all."""
    trainer, names = Trainer(), list[str]()

    def load(number: int) -> types.ModuleType:
        module = types.ModuleType(f"tests_truth_configuration_{number}")
        module.__dict__.update(rate=0.1 / (1 + number), noise=0.01 * torch.randn(64, 96))
        sys.modules[module.__name__] = module
        names.append(module.__name__)
        return module

    try:
        for number in itertools.count():
            configuration = load(number)
            trainer.optimizer.param_groups[0]["lr"] = configuration.rate
            trainer.train(batch() + configuration.noise[:, :64])
            yield
    finally:
        for name in names:
            del sys.modules[name]


@leaks("forward transcribe", cause=OUTPUTS | NO_USUAL)
def a_scripted_module_keeps_its_frames() -> Iterator[None]:
    """A stream goes through a module of TorchScript that looks at four frames, and has room for a million."""
    trainer, stream = Trainer(), scripted(most=1_000_000)

    @torch.no_grad()
    def transcribe(frame: Any) -> Any:
        return stream(frame)

    while True:
        trainer.train(transcribe(batch()))
        yield


@leaks("read inspect", cause=NO_USUAL)
def batches_of_loss_spikes() -> Iterator[None]:
    """Batches whose loss is far above the usual one are kept for a look: one in four, at no fixed time."""
    trainer, spikes, chance, usual = Convolutions(), list[tuple[float, Any]](), random.Random(7), 0.0

    def read() -> Any:
        return images(8) * (6 if chance.random() < 0.25 else 1)

    def inspect(inputs: Any) -> None:
        nonlocal usual
        with torch.no_grad():
            loss = float(trainer.loss(inputs)) / float(trainer.loss(torch.ones_like(inputs)) + 1e-6)
        if usual and loss > 2 * usual:
            spikes.append((loss, inputs))
        else:
            usual = loss

    while True:
        inputs = read()
        inspect(inputs)
        trainer.train(inputs / inputs.max())
        yield


class Encoder(nn.Module):
    """Two layers of a transformer, which were asked for all hidden states."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(2)]
        self.layers, self.hidden_states = nn.ModuleList(layers), tuple[Any, ...]()

    def forward(self, tokens: Any) -> Any:
        for layer in self.layers:
            tokens = layer(tokens)
            self.hidden_states = (*self.hidden_states, tokens.detach())
        return tokens


@leaks("forward", cause=OUTPUTS)
def a_tuple_of_hidden_states() -> Iterator[None]:
    """Each layer puts its hidden states behind those of the layer before, and so does the next call."""
    encoder = Encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.001)
    while True:
        optimizer.zero_grad()
        (encoder(torch.rand(4, 16, 64)) - 1).square().mean().backward()
        optimizer.step()
        yield
