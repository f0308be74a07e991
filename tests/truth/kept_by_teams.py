"""What a product team's trainers, callbacks and loggers keep for good.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import heapq
import json
import queue
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import GRADIENTS, GRAPH, GROWING, METRICS, NO_USUAL, OUTPUTS, leaks
from tests.truth.team_code import (
    Batch,
    Callback,
    Engine,
    EngineWithLog,
    NotFinite,
    Probe,
    Report,
    StepOutput,
    copied,
    dirty_feed,
    evaluate,
    feed,
    memoize,
    random_batch,
    ranking_metrics,
    sample_of_gradients,
)


@leaks("log training_step entropy_of", cause=GRAPH)
def what_was_logged_in_an_epoch_without_end() -> Iterator[None]:
    """log() has the entropy of each step until the epoch ends, as it is: it is no part of the loss."""
    yield from EngineWithLog().fit(feed())


class MetricsOfTraining(Callback):
    """Logs ranking metrics every tenth step."""

    def __init__(self) -> None:
        self.collection = ranking_metrics()
        self.interval = self.collection.clone(prefix="train/")
        self.last = dict[str, float]()

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        self.collection.update(output.logits.detach(), batch.labels)
        if engine.step_number % 10 == 9:
            self.last = self.collection.compute()
            self.interval.reset()


@leaks("update on_step_end forward training_step", cause=OUTPUTS)
def the_clone_of_a_collection_is_reset() -> Iterator[None]:
    """Metrics are updated in one collection and reset in its clone."""
    yield from Engine([MetricsOfTraining()]).fit(feed())


class TopCheckpoints(Callback):
    """Has the weights of the best evaluations by a path with the score in it."""

    def __init__(self, count: int = 3) -> None:
        self.count, self.files, self.scores = count, dict[str, Any](), dict[int, float]()

    @staticmethod
    def path(step: int, score: float) -> str:
        return f"step={step}-loss={score:.4f}.pt"

    def save(self, engine: Engine, score: float) -> None:
        self.files[self.path(engine.step_number, score)] = copied(engine.model.state_dict())
        self.scores[engine.step_number] = round(score, 3)

    def prune(self) -> None:
        while len(self.scores) > self.count:
            worst = max(self.scores, key=self.scores.__getitem__)
            self.files.pop(self.path(worst, self.scores.pop(worst)), None)

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        if engine.step_number % 2 == 0:
            self.save(engine, engine.validate())
            self.prune()


@leaks("save copied on_step_end")
def checkpoints_whose_paths_are_not_found_again() -> Iterator[None]:
    """A path has the score with four digits, and pruning knows only three of them."""
    yield from Engine([TopCheckpoints()]).fit(feed())


class LastCheckpoint(Callback):
    """Has the last state of the whole engine in memory, to go on from after a spike."""

    def __init__(self) -> None:
        self.last: dict[str, Any] | None = None

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        if engine.step_number % 3 == 0:
            self.last = engine.state_dict()

    def state_dict(self) -> dict[str, Any]:
        return {"last": self.last}


@leaks("state_dict copied on_step_end")
def checkpoints_inside_of_checkpoints() -> Iterator[None]:
    """The state of an engine has those of its callbacks, and that of one is the last checkpoint."""
    yield from Engine([LastCheckpoint()]).fit(feed())


class BalancedLosses:
    """Weighs losses by how fast they fell lately."""

    def __init__(self, names: Iterable[str]) -> None:
        self.history = {name: list[Any]() for name in names}

    def weight(self, name: str) -> float:
        losses = self.history[name]
        return float(losses[-1].detach() / losses[-2].detach()) if len(losses) > 1 else 1.0

    def weighted(self, losses: dict[str, Any]) -> dict[str, Any]:
        for name, loss in losses.items():
            self.history[name].append(loss)
        return {name: loss * self.weight(name) for name, loss in losses.items()}


class ManyTasks(Engine):
    """Trains two heads on one encoder, and one loss after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.price = nn.Linear(128, 1)
        self.balance = BalancedLosses(["click", "price"])

    def optimize(self, batch: Batch) -> StepOutput:
        self.optimizer.zero_grad()
        hidden = self.model.encoder(batch.features)
        logits, price = self.model.head(hidden), self.price(hidden)[:, 0]
        losses = {
            "click": functional.cross_entropy(logits, batch.labels),
            "price": functional.huber_loss(price, batch.features.sum(1)),
        }
        for loss in self.balance.weighted(losses).values():
            loss.backward(retain_graph=True)
        self.optimizer.step()
        return StepOutput(sum(losses.values()), logits)


@leaks("weighted optimize forward", cause=GRAPH)
def losses_that_are_balanced_by_their_past() -> Iterator[None]:
    """All backward passes retain the graph, not only the first, and the losses of all steps are listed."""
    yield from ManyTasks().fit(feed())


class AdaptiveClipping(Engine):
    """Clips gradients to a percentile of what they lately were."""

    def __init__(self) -> None:
        super().__init__()
        self.history = list[Any]()

    def before_update(self) -> None:
        parameters = list(self.model.parameters())
        self.history.append(sample_of_gradients(parameters))
        limit = torch.cat(self.history[-16:]).quantile(0.99).item()
        nn.utils.clip_grad_value_(parameters, limit)


@leaks("before_update sample_of_gradients optimize", cause=METRICS | GRADIENTS | NO_USUAL)
def magnitudes_of_gradients_of_all_steps() -> Iterator[None]:
    """The limit comes from the last sixteen samples, but the list has all of them."""
    yield from AdaptiveClipping().fit(feed())


class HardExamples:
    """Gives back the hardest blocks of examples."""

    def __init__(self, count: int = 8) -> None:
        self.count, self.blocks = count, list[tuple[float, Batch]]()

    def offer(self, batch: Batch, losses: Any) -> None:
        worst = losses.topk(64).indices
        block = Batch(batch.features[worst], batch.labels[worst])
        self.blocks.append((losses[worst].mean().item(), block))

    def hardest(self) -> Batch:
        blocks = [block for _, block in heapq.nlargest(self.count, self.blocks, key=lambda one: one[0])]
        return Batch(torch.cat([one.features for one in blocks]), torch.cat([one.labels for one in blocks]))

    def mined(self, engine: Engine) -> Iterator[Batch]:
        """Each batch of the stream, then the hardest ones so far."""
        for batch in feed():
            self.offer(batch, engine.losses_of(batch))
            yield batch
            yield self.hardest()


@leaks("offer")
def hard_examples_are_ranked_but_never_dropped() -> Iterator[None]:
    """Only the eight hardest blocks are trained on again, and all stay."""
    engine = Engine()
    yield from engine.fit(HardExamples().mined(engine))


class Evaluations(Callback):
    """Evaluates every fourth step."""

    def __init__(self) -> None:
        self.reports = list[Report]()

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        if engine.step_number % 4 == 3:
            self.reports.append(evaluate(engine))

    def best(self) -> Report:
        return min(self.reports, key=lambda report: report.loss)


@leaks("evaluate on_step_end", cause=OUTPUTS | NO_USUAL)
def reports_of_evaluations_have_all_probabilities() -> Iterator[None]:
    """What is listed for the best score at the end also has what was predicted for each row."""
    yield from Engine([Evaluations()]).fit(feed())


class Retrying(Engine):
    """Tries a step again with another batch if it fails, and lists failures for the report of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = list[Exception]()

    def training_step(self, batch: Batch) -> StepOutput:
        output = super().training_step(batch)
        if not output.loss.isfinite():
            raise NotFinite(f"loss is {output.loss.item()} at step {self.step_number}")
        return output

    def optimize(self, batch: Batch, attempts: int = 3) -> StepOutput:
        for _ in range(attempts):
            try:
                return super().optimize(batch)
            except NotFinite as error:
                self.failures.append(error)
                batch = random_batch(len(batch))
        raise self.failures[-1]


@leaks("optimize training_step forward random_batch dirty_feed", cause=GRAPH)
def failures_of_steps_that_were_tried_again() -> Iterator[None]:
    """An error has the frames of its step, in which is the loss whose backward pass never came."""
    yield from Retrying().fit(dirty_feed())


class LazyMetrics(Callback):
    """Metrics are computed only when somebody asks for them."""

    def __init__(self) -> None:
        self.pending = list[Callable[[], float]]()

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        logits, labels = output.logits, batch.labels
        self.pending.append(lambda: (logits.argmax(1) == labels).float().mean().item())

    def latest(self) -> float:
        return self.pending[-1]()


@leaks("on_step_end training_step forward", cause=OUTPUTS | GRAPH)
def metrics_that_nobody_asks_for() -> Iterator[None]:
    """A closure for each step has the logits, and only the last one is ever called."""
    metrics = LazyMetrics()
    for number, _ in enumerate(Engine([metrics]).fit(feed())):
        if number % 10 == 0:
            metrics.latest()
        yield


class Augmentation:
    """Mixes each batch with noise of its own, and releases it when it goes."""

    def __init__(self, rows: int) -> None:
        self.noise = torch.randn(rows, 64) * 0.1
        weakref.finalize(self, self.release)

    def release(self) -> None:
        self.noise.resize_(0)

    def __call__(self, batch: Batch) -> Batch:
        return Batch(batch.features + self.noise, batch.labels)


@leaks("__init__ augmented")
def finalizers_that_are_methods_of_what_they_wait_for() -> Iterator[None]:
    """A finalizer holds its function, which is a method of the object, so that this never goes."""

    def augmented() -> Iterator[Batch]:
        for batch in feed():
            yield Augmentation(len(batch))(batch)

    yield from Engine().fit(augmented())


@leaks("remembered memoize distances", cause=NO_USUAL | GROWING)
def distances_remembered_by_how_a_batch_looks() -> Iterator[None]:
    """A team's own decorator has what a function gave by repr() of its arguments, and these are batches."""

    @memoize
    def distances(features: Any) -> Any:
        return torch.cdist(features, features)

    class Smoothed(Engine):
        """Nearby rows have a part in the loss of each other."""

        def training_step(self, batch: Batch) -> StepOutput:
            near = (-distances(batch.features)).softmax(1)
            logits = self.model(batch.features)
            losses = functional.cross_entropy(logits, batch.labels, reduction="none")
            return StepOutput((near @ losses).mean(), logits)

    yield from Smoothed().fit(feed())


class LoggingThread(Callback):
    """Writes gradients and numbers in the background; errors there must not stop the training."""

    def __init__(self) -> None:
        self.queue, self.lines = queue.SimpleQueue[Any](), list[str]()
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self) -> None:
        with suppress(Exception):
            while (record := self.queue.get()) is not None:
                self.lines = [*self.lines[-100:], json.dumps(record)]

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        for name, parameter in engine.model.named_parameters():
            self.queue.put({"step": engine.step_number, name: copy.deepcopy(parameter.grad)})


@leaks("on_step_end", cause=GRADIENTS | NO_USUAL)
def a_logging_thread_that_ended_with_an_error() -> Iterator[None]:
    """It cannot write a tensor, its error is suppressed, and the queue goes on to be filled."""
    yield from Engine([LoggingThread()]).fit(feed())


PLUGINS = {"probe": Probe}


class Health(Callback):
    """Looks for dead units every third step, with plugins that are made by name."""

    def __init__(self) -> None:
        self.dead = 0

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        if engine.step_number % 3 == 0:
            probe = PLUGINS["probe"](engine.model.encoder[1])
            engine.validate()
            self.dead = probe.dead_units()


@leaks("__init__ on_forward on_step_end", cause=OUTPUTS | NO_USUAL)
def plugins_that_are_attached_again() -> Iterator[None]:
    """Each check attaches a new probe, and all former ones go on to copy what their layer gives."""
    yield from Engine([Health()]).fit(feed())


class Curriculum:
    """Sorts rows by how hard they are, and gives out those for which the model is ready."""

    def __init__(self, levels: int = 4, steps: int = 1000) -> None:
        self.rows, self.steps, self.levels = defaultdict[int, list[Batch]](list), steps, levels

    def add(self, batch: Batch, losses: Any) -> None:
        for level, rows in enumerate(losses.argsort().chunk(self.levels)):
            self.rows[level].append(Batch(batch.features[rows], batch.labels[rows]))

    def ready(self, step: int) -> list[Batch]:
        level = self.levels * (step // self.steps)
        return [self.rows[one].pop(0) for one in range(level + 1) if self.rows[one]]


@leaks("add with_curriculum")
def rows_too_hard_for_a_curriculum() -> Iterator[None]:
    """The level is an integer quotient, so that all but the easiest rows wait for the last step."""
    engine, curriculum = Engine(), Curriculum()

    def with_curriculum() -> Iterator[Batch]:
        for batch in feed():
            curriculum.add(batch, engine.losses_of(batch))
            yield from curriculum.ready(engine.step_number)

    yield from engine.fit(with_curriculum())
