"""More real loops that leak or do not: what lasts until an outer step, and what is never given back. Each was
written with what is right before any was diagnosed. See leaking.py."""

from __future__ import annotations

import bisect
import itertools
import random
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.truth.leak_loop import (
    GRADIENTS,
    GRAPH,
    GROWING,
    METRICS,
    NO_USUAL,
    OUTPUTS,
    Trainer,
    batch,
    healthy,
    leaks,
)


@leaks("step", cause=GRAPH | GRADIENTS)
def gradient_of_a_latent_is_never_zeroed() -> Iterator[None]:
    """Its gradient has a graph, and sums up those of all steps."""
    trainer, latent = Trainer(), torch.rand(64, 64, requires_grad=True)

    def step() -> None:
        trainer.train()
        energy = trainer.model(latent).square().sum()
        energy.backward(create_graph=True)

    while True:
        step()
        yield


@leaks("forward angles step", cause=OUTPUTS | NO_USUAL)
def tables_of_rotation_by_offset() -> Iterator[None]:
    """A module caches a table for each offset, and no offset comes again."""

    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = dict[str, Any]()

        def angles(self, offset: int) -> Any:
            key = f"angles:{offset}"
            if key not in self.tables:
                self.tables[key] = torch.outer(torch.arange(offset, offset + 128.0), torch.rand(64)).cos()
            return self.tables[key]

        def forward(self, inputs: Any, offset: int) -> Any:
            return inputs * self.angles(offset)[: len(inputs)]

    trainer, rotary = Trainer(), Rotary()

    def step(number: int) -> None:
        trainer.train(rotary(batch(), number))

    for number in itertools.count():
        step(number)
        yield


@leaks("grow step", cause=NO_USUAL)
def a_parameter_group_for_each_task() -> Iterator[None]:
    """New heads are added to the optimizer, the old ones are never taken out."""
    body = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(body.parameters())

    def grow() -> Any:
        head = nn.Linear(64, 64)
        optimizer.add_param_group({"params": head.parameters()})
        return head

    def step() -> None:
        head = grow()
        optimizer.zero_grad()
        head(body(batch())).square().mean().backward()
        optimizer.step()

    while True:
        step()
        yield


@leaks("resize step", cause=GROWING)
def a_vocabulary_resized_each_step() -> Iterator[None]:
    trainer, table = Trainer(), nn.Embedding(512, 64)

    def resize() -> None:
        nonlocal table
        larger = nn.Embedding(table.num_embeddings + 32, 64)
        with torch.no_grad():
            larger.weight[: table.num_embeddings] = table.weight
        table = larger

    def step() -> None:
        resize()
        trainer.train(table(torch.randint(512, (64,))).detach())

    while True:
        step()
        yield


@leaks("forward step", cause=GRAPH)
def balancing_losses_of_experts() -> Iterator[None]:
    """A layer of experts keeps its balancing loss for the trainer, which never asks."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(64, 4), nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
            self.balancing = list[Any]()

        def forward(self, inputs: Any) -> Any:
            weights = self.gate(inputs).softmax(dim=-1)
            self.balancing.append((self.gate(inputs.exp()).softmax(dim=-1).mean(0) ** 2).sum())
            outputs = torch.stack([expert(inputs) for expert in self.experts], dim=-1)
            return (outputs * weights.unsqueeze(1)).sum(-1)

    experts = Experts()
    optimizer = torch.optim.SGD(experts.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        experts(batch()).square().mean().backward()
        optimizer.step()

    while True:
        step()
        yield


@leaks("reference step", cause=OUTPUTS | METRICS | NO_USUAL)
def scores_of_a_reference_model_by_prompt() -> Iterator[None]:
    """Each prompt is new and has another length."""
    trainer, teacher, known = Trainer(), nn.Linear(64, 96), dict[int, Any]()
    lengths = random.Random(0)

    def reference(number: int, prompt: Any) -> Any:
        if number not in known:
            with torch.no_grad():
                known[number] = teacher(prompt).log_softmax(dim=-1)
        return known[number]

    def step(number: int) -> None:
        prompt = batch(lengths.randrange(16, 96))
        reference(number, prompt)
        trainer.train(prompt)

    for number in itertools.count():
        step(number)
        yield


@healthy
def answers_of_any_length_of_an_epoch() -> Iterator[None]:
    """They are dropped after 20 steps, just before the recording."""
    trainer, teacher, kept = Trainer(), nn.Linear(64, 96), list[Any]()
    lengths = random.Random(0)

    def step(number: int) -> None:
        prompt = batch(lengths.randrange(16, 96))
        with torch.no_grad():
            kept.append(teacher(prompt).log_softmax(dim=-1))
        trainer.train(prompt)
        if number % 20 == 0:
            kept.clear()

    for number in itertools.count(1):
        step(number)
        yield


@leaks("forward run step", cause=GRAPH)
def a_pipeline_forgets_its_outputs() -> Iterator[None]:
    """The inputs of each micro-batch are taken out of their list, the outputs stay in theirs. The graph of an
    output holds its input, with the gradient."""

    class Schedule:
        def __init__(self) -> None:
            self.stage = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
            self.optimizer = torch.optim.SGD(self.stage.parameters(), lr=0.01)
            self.inputs, self.outputs = list[Any](), list[Any]()

        def forward(self) -> None:
            self.inputs.append(batch().requires_grad_())
            self.outputs.append(self.stage(self.inputs[-1]))

        def backward(self, number: int) -> None:
            self.inputs.pop(0)
            output = self.outputs[number]
            torch.autograd.backward(output, torch.ones_like(output))

        def run(self) -> None:
            self.optimizer.zero_grad()
            first = len(self.outputs)
            for _ in range(2):
                self.forward()
            for number in range(2):
                self.backward(first + number)
            self.optimizer.step()

    schedule = Schedule()
    while True:
        schedule.run()
        yield


@healthy
def a_function_stores_its_output_itself() -> Iterator[None]:
    """Its result refers to it, and it to its result, until Python's collector runs."""

    class Squash(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: Any) -> Any:
            ctx.result = inputs.tanh()
            return ctx.result

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * (1 - ctx.result.square())

    trainer = Trainer()

    def step() -> None:
        trainer.optimizer.zero_grad()
        Squash.apply(trainer.model(batch())).square().mean().backward()
        trainer.optimizer.step()

    while True:
        step()
        yield


@leaks("step", cause=NO_USUAL)
def finalizers_of_the_trainer() -> Iterator[None]:
    """What is to be called when the trainer ends holds a tensor of each step."""
    trainer = Trainer()

    def step() -> None:
        trainer.train()
        weakref.finalize(trainer, print, torch.rand(128, 128)).atexit = False

    while True:
        step()
        yield


@leaks("step keep", cause=NO_USUAL)
def samples_sorted_by_their_score() -> Iterator[None]:
    trainer, ranked = Trainer(), list[Any]()

    def keep(number: int, sample: Any) -> None:
        bisect.insort(ranked, (float(sample[0, 0]), number, sample))

    def step(number: int) -> None:
        trainer.train()
        keep(number, torch.rand(128, 128))

    for number in itertools.count():
        step(number)
        yield


def _adapted(model: Any, weights: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """An inner step of a meta-learner: the weights after it, with a graph."""
    loss = torch.func.functional_call(model, weights, inputs).square().mean()
    found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    return {name: value - 0.1 * each for (name, value), each in zip(weights.items(), found, strict=True)}


def _meta_learner(inner: int) -> Iterator[None]:
    """Yields after each inner step. The outer one comes after so many."""
    trainer = Trainer()
    model, weights = trainer.model, dict(trainer.model.named_parameters())
    for number in itertools.count(1):
        weights = _adapted(model, weights, batch())
        if number % inner == 0:
            trainer.optimizer.zero_grad()
            torch.func.functional_call(model, weights, batch()).square().mean().backward()
            trainer.optimizer.step()
            weights = dict(model.named_parameters())
        yield


@healthy
def inner_steps_of_a_long_outer_step() -> Iterator[None]:
    """A meta-learner's outer step takes more inner steps than are recorded."""
    yield from _meta_learner(40)


@healthy
def inner_steps_of_short_outer_steps() -> Iterator[None]:
    """A meta-learner's outer step comes after five inner ones."""
    yield from _meta_learner(5)


@healthy
def losses_of_sixteen_batches_summed() -> Iterator[None]:
    """One backward pass for all of them."""
    trainer, total = Trainer(), torch.zeros(())

    def step(number: int) -> None:
        nonlocal total
        total = total + trainer.loss(batch())
        if number % 16 == 0:
            trainer.optimizer.zero_grad()
            total.backward()
            trainer.optimizer.step()
            total = torch.zeros(())

    for number in itertools.count(1):
        step(number)
        yield


@healthy
def a_rollout_of_24_actions() -> Iterator[None]:
    """Their probabilities and values keep their graphs until the update."""
    trainer, kept = Trainer(), list[Any]()

    def act() -> None:
        output = trainer.model(batch())
        kept.append((output.log_softmax(dim=-1).max(dim=-1).values, output.mean(dim=-1)))

    def update() -> None:
        trainer.optimizer.zero_grad()
        sum(-(chosen * value).mean() for chosen, value in kept).backward()
        trainer.optimizer.step()
        kept.clear()

    for number in itertools.count(1):
        act()
        if number % 24 == 0:
            update()
        yield


@healthy
def sequences_become_longer() -> Iterator[None]:
    """A warm-up of the sequence length goes on throughout the recording."""
    trainer = Trainer()
    for number in itertools.count(1):
        trainer.train(batch(16 * min(number, 40)))
        yield


@healthy
def a_bank_joined_and_cut() -> Iterator[None]:
    """It is full before the recording, and each step makes a new one of the same size."""
    trainer, bank = Trainer(), torch.zeros(0, 64)

    def step() -> None:
        nonlocal bank
        trainer.train()
        with torch.no_grad():
            bank = torch.cat([bank, trainer.model(batch())])[-1024:]

    while True:
        step()
        yield


@healthy
def layers_are_unfrozen_one_by_one() -> Iterator[None]:
    """Each layer that is unfrozen gets gradients and state. After 30 steps all are."""
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(10)))
    layers.requires_grad_(requires_grad=False)
    optimizer = torch.optim.Adam(layers.parameters())

    def step(number: int) -> None:
        layers[-min(1 + number // 3, 10)].requires_grad_(requires_grad=True)
        optimizer.zero_grad()
        layers(batch()).square().mean().backward()
        optimizer.step()

    for number in itertools.count():
        step(number)
        yield


@healthy
def tokens_of_one_answer_after_the_other() -> Iterator[None]:
    """A step is a token. An answer ends after 24 of them, and with it its keys and values."""
    layer, kept = nn.Linear(64, 128), torch.zeros(64, 0, 128)

    def token(number: int) -> None:
        nonlocal kept
        if number % 24 == 0:
            kept = torch.zeros(64, 0, 128)
        kept = torch.cat([kept, layer(batch()).unsqueeze(1)], dim=1)

    for number in itertools.count():
        with torch.no_grad():
            token(number)
        yield


@healthy
def points_are_split_and_pruned() -> Iterator[None]:
    """There are more of them in each step, until every eighth step leaves the first."""
    points = torch.rand(2048, 64)

    def step(number: int) -> None:
        nonlocal points
        variable = points.requires_grad_()
        variable.square().mean().backward()
        with torch.no_grad():
            moved = variable - 0.1 * variable.grad
            points = moved[:2048].clone() if number % 8 == 0 else torch.cat([moved, moved[:128] + 0.1])

    for number in itertools.count(1):
        step(number)
        yield


@healthy
def cycles_that_the_collector_finds() -> Iterator[None]:
    """Each step makes a small network that refers to itself."""
    trainer = Trainer()

    def solve() -> None:
        inner = nn.Linear(64, 64)
        inner.solver = lambda inputs: inner(inputs)
        with torch.no_grad():
            inner.solver(batch())

    while True:
        solve()
        trainer.train()
        yield
