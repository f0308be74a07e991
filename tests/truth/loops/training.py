"""What training loops of any field keep of their losses, gradients, weights and metrics."""

from __future__ import annotations

import copy
import heapq
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.truth.loops.loop import (
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


@leaks("validate", cause=GRAPH | OUTPUTS)
def predictions_of_all_epochs() -> Iterator[None]:
    trainer, kept = Trainer(), list[Any]()

    def validate() -> None:
        kept.append(trainer.model(batch()))

    while True:
        trainer.train()
        validate()
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


@leaks("train step", cause=OUTPUTS | GRAPH | NO_USUAL)
def a_row_keeps_its_whole_batch() -> Iterator[None]:
    """The first row of each batch of results is kept for a log: a view."""
    trainer, rows = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        with torch.no_grad():
            rows.append(trainer.model(batch(256))[0])

    while True:
        step()
        yield


@leaks("train_step", cause=GRADIENTS | GROWING)
def rows_of_an_embedding_are_never_zeroed() -> Iterator[None]:
    """Only the optimizer of the dense weights zeroes gradients; the sparse one gets ever more rows."""
    embedding = nn.Embedding(5000, 64, sparse=True)
    head = nn.Linear(64, 64)
    dense = torch.optim.SGD(head.parameters(), lr=0.01)
    sparse = torch.optim.SGD(embedding.parameters(), lr=0.0001)

    def train_step() -> None:
        dense.zero_grad()
        head(embedding(torch.randint(0, 5000, (64,)))).square().mean().backward()
        dense.step()
        sparse.step()

    while True:
        train_step()
        yield


@leaks("log update evaluate", cause=METRICS)
def a_meter_for_each_name() -> Iterator[None]:
    """The number of the batch is part of the name that its accuracies are logged under."""

    class Meter:
        def __init__(self) -> None:
            self.total, self.count = torch.zeros(()), 0

        def update(self, value: Any) -> None:
            self.total = self.total + value
            self.count += 1

    trainer, meters = Trainer(), dict[str, Meter]()

    def log(name: str, value: Any) -> None:
        meters.setdefault(name, Meter()).update(value)

    for number in itertools.count():
        trainer.train()
        log(f"accuracy/batch_{number}", (torch.rand(16, 2048) > 0.5).float().mean(0))
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


@leaks("forward", cause=GRAPH)
def a_running_covariance_with_graphs() -> Iterator[None]:
    """A whitening layer averages a covariance over steps, and forgot no_grad."""

    class Whitening(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.covariance = torch.zeros(64, 64)

        def forward(self, inputs: Any) -> Any:
            if self.training:
                self.covariance = 0.9 * self.covariance + 0.1 * inputs.T @ inputs / len(inputs)
            return inputs / self.covariance.detach().diagonal().add(1e-3).sqrt()

    trainer = Trainer()
    trainer.model.insert(2, Whitening())
    while True:
        trainer.train()
        yield


@healthy
def plain_training() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.train()
        yield


@healthy
def batches_of_any_size() -> Iterator[None]:
    trainer, chance = Trainer(), random.Random(1)
    while True:
        trainer.train(batch(chance.randrange(16, 512)))
        yield


@healthy
def gradients_of_four_batches() -> Iterator[None]:
    trainer = Trainer()
    while True:
        for _ in range(4):
            trainer.loss(batch()).backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        yield


@healthy
def checkpointed_layers() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.optimizer.zero_grad()
        checkpoint(trainer.model, batch(), use_reentrant=False).mean().backward()
        trainer.optimizer.step()
        yield


@healthy
def average_of_weights_in_place() -> Iterator[None]:
    trainer = Trainer()
    average = copy.deepcopy(trainer.model)
    while True:
        trainer.train()
        with torch.no_grad():
            for old, new in zip(average.parameters(), trainer.model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        yield


@healthy
def evaluation_each_step() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.train()
        with torch.no_grad():
            results = [trainer.model(batch()) for _ in range(6)]
            torch.cat(results).mean().item()
        yield


@healthy
def only_the_last_result() -> Iterator[None]:
    trainer = Trainer()
    while True:
        trainer.train()
        trainer.last = trainer.model(batch())  # type: ignore[attr-defined]
        yield


@healthy
def a_closure_for_lbfgs() -> Iterator[None]:
    trainer = Trainer()
    optimizer = torch.optim.LBFGS(trainer.model.parameters(), max_iter=2, history_size=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = trainer.loss(batch())
        loss.backward()
        return loss

    while True:
        optimizer.step(closure)
        yield


@healthy
def state_detached_each_step() -> Iterator[None]:
    cell, state = nn.GRUCell(64, 64), torch.zeros(64, 64)
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        state = cell(batch(), state.detach())
        state.mean().backward()
        optimizer.step()
        yield


@healthy
def the_last_16_losses_with_their_graphs() -> Iterator[None]:
    """Too much is held, but it does not become more."""
    trainer, losses = Trainer(), deque[Any](maxlen=16)
    while True:
        trainer.train()
        losses.append(trainer.loss(batch()))
        yield


@healthy
def a_slice_of_losses_with_their_graphs() -> Iterator[None]:
    """The same in a list that is cut."""
    trainer, losses = Trainer(), list[Any]()
    while True:
        trainer.train()
        losses = [*losses, trainer.loss(batch())][-16:]
        yield


@healthy
def outputs_of_an_epoch_of_25_steps() -> Iterator[None]:
    """They are dropped at its end, which is recorded."""
    trainer, outputs = Trainer(), list[Any]()
    for number in itertools.count():
        trainer.train()
        with torch.no_grad():
            outputs.append(trainer.model(batch()))
        if number % 25 == 24:
            outputs = []
        yield


@healthy
def backpropagation_through_eight_steps() -> Iterator[None]:
    cell, state, losses = nn.GRUCell(64, 64), torch.zeros(64, 64), list[Any]()
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.01)
    for number in itertools.count():
        state = cell(batch(), state)
        losses.append(state.square().mean())
        if number % 8 == 7:
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()
            optimizer.step()
            losses.clear()
            state = state.detach()
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
def lbfgs_fills_its_history() -> Iterator[None]:
    trainer = Trainer()
    optimizer = torch.optim.LBFGS(trainer.model.parameters(), lr=0.1, max_iter=1, history_size=100)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = trainer.loss(batch())
        loss.backward()
        return loss

    while True:
        optimizer.step(closure)
        yield


@leaks("log step", cause=GRADIENTS | NO_USUAL)
def copies_of_gradients_by_name() -> Iterator[None]:
    trainer, history = Trainer(), defaultdict[str, list[Any]](list)

    def log() -> None:
        for name, parameter in trainer.model.named_parameters():
            history[name].append(parameter.grad.clone())

    while True:
        trainer.train()
        log()
        yield
