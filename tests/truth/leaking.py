"""Real loops that leak. Each was written from its mechanism before any was diagnosed.

A loop yields after each step. `keeps` names the functions that make or keep what leaks: one of them is the
first place. `cause` has the names that are right; "" is that of no usual cause.
"""

from __future__ import annotations

import functools
import gc
import itertools
import queue
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.truth.leak_loop import GRADIENTS, GRAPH, GROWING, METRICS, OUTPUTS, Trainer, batch, leaks

SAMPLES = 64


@leaks("forward step", cause=OUTPUTS)
def module_keeps_its_outputs() -> Iterator[None]:
    class Keeping(nn.Linear):
        def forward(self, inputs: Any) -> Any:
            found = super().forward(inputs)
            self.seen.append(found.detach().clone())
            return found

    layer, trainer = Keeping(64, 64), Trainer()
    layer.seen = []

    def step() -> None:
        trainer.train()
        layer(batch())

    while True:
        step()
        yield


@leaks("look_up step")
def unbounded_lru_cache() -> Iterator[None]:
    @functools.cache
    def look_up(number: int) -> Any:
        return torch.rand(128, 128) + number

    trainer = Trainer()

    def step(number: int) -> None:
        trainer.train()
        look_up(number)

    for number in itertools.count():
        step(number)
        yield


@leaks("step evaluate", cause=GRAPH)
def callbacks_hold_losses() -> Iterator[None]:
    trainer, callbacks = Trainer(), list[Any]()

    def evaluate() -> Any:
        return trainer.loss(batch())

    def step() -> None:
        trainer.train()
        loss = evaluate()
        callbacks.append(lambda: loss)

    while True:
        step()
        yield


@leaks("step", cause=GRAPH)
def average_of_losses_with_graphs() -> Iterator[None]:
    trainer, average = Trainer(), torch.zeros(())

    def step() -> None:
        nonlocal average
        trainer.train()
        average = 0.9 * average + 0.1 * trainer.loss(batch())

    while True:
        step()
        yield


@leaks("step", cause=GRAPH)
def state_carried_on_without_backward() -> Iterator[None]:
    cell, state = nn.GRUCell(64, 64), torch.zeros(SAMPLES, 64)

    def step() -> None:
        nonlocal state
        state = cell(batch(), state)

    while True:
        step()
        yield


@leaks("validate", cause=GRAPH | OUTPUTS)
def predictions_of_all_epochs() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def validate() -> None:
        kept.append(trainer.model(batch()))

    while True:
        trainer.train()
        validate()
        yield


@leaks("add_hook step")
def hooks_pile_up() -> Iterator[None]:
    trainer = Trainer()

    def compare(_reference: Any, *_: Any) -> None:
        pass

    def add_hook() -> None:
        reference = torch.rand(128, 128)
        trainer.model.register_forward_hook(functools.partial(compare, reference))

    while True:
        add_hook()
        trainer.train()
        yield


@leaks("keep step train", cause=GRADIENTS)
def gradients_kept_by_a_hook() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def keep(parameter: Any) -> None:
        kept.append(parameter.grad.clone())

    for parameter in trainer.model.parameters():
        parameter.register_post_accumulate_grad_hook(keep)
    while True:
        trainer.train()
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


@leaks("step")
def replay_without_a_bound() -> Iterator[None]:
    trainer, memory = Trainer(), list[Any]()

    def step() -> None:
        state = torch.rand(SAMPLES, 64)
        trainer.train(state)
        memory.append((state, state.argmax(dim=1)))

    while True:
        step()
        yield


@leaks("step", cause=GROWING)
def embeddings_concatenated() -> Iterator[None]:
    trainer, every = Trainer(), torch.zeros(0, 64)

    def step() -> None:
        nonlocal every
        trainer.train()
        with torch.no_grad():
            every = torch.cat([every, trainer.model(batch())])

    while True:
        step()
        yield


@leaks("step", cause=GROWING)
def buffer_padded_by_a_row() -> Iterator[None]:
    trainer, buffer = Trainer(), torch.zeros(8, 4096)

    def step() -> None:
        nonlocal buffer
        trainer.train()
        buffer = nn.functional.pad(buffer, (0, 0, 0, 1))

    while True:
        step()
        yield


@leaks("attend step", cause=GROWING)
def keys_and_values_of_one_session() -> Iterator[None]:
    layers, kept = [nn.Linear(64, 128) for _ in range(3)], [torch.zeros(0, 128)] * 3

    def attend(inputs: Any) -> None:
        for number, layer in enumerate(layers):
            kept[number] = torch.cat([kept[number], layer(inputs)])

    while True:
        with torch.no_grad():
            attend(batch())
        yield


@leaks("fails step")
def errors_hold_their_frames() -> Iterator[None]:
    trainer, log = Trainer(), list[Exception]()

    def fails() -> None:
        large = torch.rand(128, 128)
        raise ValueError(large.shape)

    def step() -> None:
        trainer.train()
        try:
            fails()
        except ValueError as error:
            log.append(error)

    while True:
        step()
        yield


@leaks("step", cause=METRICS)
def queue_that_nobody_reads() -> Iterator[None]:
    trainer, waiting = Trainer(), queue.Queue[Any]()

    def step() -> None:
        trainer.train()
        waiting.put(torch.rand(64, 32).cumsum(0))

    while True:
        step()
        yield


@leaks("samples step")
def generators_left_open() -> Iterator[None]:
    trainer, open_ = Trainer(), list[Any]()

    def samples() -> Iterator[Any]:
        whole = torch.rand(128, 128)
        yield from whole

    def step() -> None:
        found = samples()
        next(found)
        open_.append(found)
        trainer.train()

    while True:
        step()
        yield


@leaks("step add")
def a_new_adapter_each_step() -> Iterator[None]:
    trainer, adapters = Trainer(), nn.ModuleList()

    def add() -> None:
        adapters.append(nn.Linear(64, 64))

    while True:
        add()
        trainer.train()
        yield


@leaks("step")
def weights_of_each_step() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        kept.append({name: value.clone() for name, value in trainer.model.state_dict().items()})

    while True:
        step()
        yield


@leaks("step", cause=METRICS)
def confusion_matrices() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        numbers = torch.randint(48, (512,))
        kept.append(torch.bincount(numbers * 48 + numbers, minlength=48 * 48))

    while True:
        step()
        yield


@leaks("penalty step", cause=GRAPH)
def penalties_summed_with_graphs() -> Iterator[None]:
    trainer, total = Trainer(), torch.zeros(())

    def penalty() -> Any:
        inputs = batch().requires_grad_()
        (found,) = torch.autograd.grad(trainer.model(inputs).sum(), inputs, create_graph=True)
        return found.square().mean()

    def step() -> None:
        nonlocal total
        trainer.train()
        total = total + penalty()

    while True:
        step()
        yield


@leaks("step make")
def cycles_without_a_collector() -> Iterator[None]:
    trainer = Trainer()

    def make() -> None:
        one: dict[str, Any] = {"values": torch.rand(128, 128)}
        one["itself"] = one

    gc.disable()
    try:
        while True:
            make()
            trainer.train()
            yield
    finally:
        gc.enable()
