"""What closures, errors, hooks, cycles, generators and threads hold for good, or let go."""

from __future__ import annotations

import copy
import functools
import gc
import queue
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import torch
from torch import nn

from tests.truth.loops.loop import (
    GRADIENTS,
    GRAPH,
    NO_USUAL,
    OUTPUTS,
    Convolutions,
    Trainer,
    batch,
    healthy,
    images,
    leaks,
)


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


@leaks("step")
def partial_functions() -> Iterator[None]:
    trainer, later = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        later.append(functools.partial(torch.add, torch.rand(128, 128)))

    while True:
        step()
        yield


@leaks("forward step", cause=GRAPH)
def results_of_a_function_with_saved_tensors() -> Iterator[None]:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: Any) -> Any:
            ctx.save_for_backward(inputs.exp())
            return inputs * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * ctx.saved_tensors[0]

    trainer, kept = Trainer(), list[Any]()

    def step() -> None:
        trainer.train()
        kept.append(Scale.apply(trainer.model(batch())).mean())

    while True:
        step()
        yield


@leaks("features_of step")
def weak_keys_that_their_values_hold() -> Iterator[None]:
    class Sample:
        def __init__(self) -> None:
            self.pixels = torch.rand(64, 64)

    trainer, cache = Trainer(), weakref.WeakKeyDictionary[Sample, Any]()

    def features_of(sample: Sample) -> Any:
        cache[sample] = (sample, sample.pixels.cos())
        return cache[sample][1]

    while True:
        trainer.train(features_of(Sample()))
        yield


@leaks("evaluate step")
def results_of_a_thread_pool() -> Iterator[None]:
    """Futures are kept with what another thread has allocated for them."""
    trainer, futures = Trainer(), list[Future[Any]]()

    def evaluate() -> Any:
        return torch.rand(128, 128).sort().values

    with ThreadPoolExecutor(1) as pool:
        while True:
            trainer.train()
            futures.append(pool.submit(evaluate))
            futures[-1].result()
            yield


@leaks("remember step", cause=OUTPUTS | GRAPH)
def a_hook_keeps_hidden_states() -> Iterator[None]:
    trainer, seen = Trainer(), list[Any]()

    def remember(_module: Any, _inputs: Any, output: Any) -> None:
        seen.append(output.detach())

    trainer.model[1].register_forward_hook(remember)
    while True:
        trainer.train()
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


@leaks("adapt", cause=GRAPH | GRADIENTS)
def clones_trained_with_create_graph() -> Iterator[None]:
    """backward(create_graph=True) makes a parameter and its gradient refer to each other, in C++."""
    trainer = Trainer()

    def adapt() -> None:
        weight = torch.rand(64, 64, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (batch() @ weight).tanh().square().mean().backward(create_graph=True)

    while True:
        trainer.train()
        adapt()
        yield


@healthy
def hooks_that_are_removed() -> Iterator[None]:
    trainer = Trainer()
    while True:
        seen: list[Any] = []
        hook = trainer.model.register_forward_hook(lambda *given: seen.append(given[-1]))  # noqa: B023
        trainer.train()
        hook.remove()
        yield


@healthy
def finalizers_of_batches() -> Iterator[None]:
    """Each batch has one that gets its workspace, and runs when the batch goes: four are prefetched."""

    class Batch:
        def __init__(self, workspace: Any) -> None:
            self.inputs = workspace[:64]
            weakref.finalize(self, workspace.zero_)

    trainer, ahead = Trainer(), deque(Batch(batch(128)) for _ in range(4))
    while True:
        ahead.append(Batch(batch(128)))
        trainer.train(ahead.popleft().inputs)
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
def a_thread_saves_checkpoints() -> Iterator[None]:
    """The training waits if the checkpoint before has not been saved yet."""
    trainer, waiting = Trainer(), queue.Queue[Any](maxsize=1)

    def write() -> None:
        while (weights := waiting.get()) is not None:
            sum(float(one.sum()) for one in weights)
            del weights

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        while True:
            trainer.train()
            waiting.put([one.detach().clone() for one in trainer.model.parameters()])
            yield
    finally:
        waiting.put(None)
        writer.join()


@healthy
def second_gradients_within_a_step() -> Iterator[None]:
    """A fast copy of a weight is adapted three times with create_graph=True, and goes with the step."""
    weight = torch.rand(64, 64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    while True:
        fast = weight.clone()
        for _ in range(3):
            (gradient,) = torch.autograd.grad((batch() @ fast).square().mean(), [fast], create_graph=True)
            fast = fast - 0.1 * gradient
        optimizer.zero_grad()
        (batch() @ fast).square().mean().backward()
        optimizer.step()
        yield
