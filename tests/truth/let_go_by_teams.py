"""What a product team's trainers, callbacks and loggers keep only for a while.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import queue
import random
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from tests.truth.kept_by_teams import HardExamples
from tests.truth.leak_loop import healthy
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
    random_batch,
    ranking_metrics,
    sample_of_gradients,
)


@healthy
def what_was_logged_in_epochs_of_ten_steps() -> Iterator[None]:
    """log() has the entropy of each step with its graph, until the epoch ends."""
    engine = EngineWithLog()
    for _ in engine.fit(feed()):
        if engine.step_number % 10 == 0:
            engine.on_epoch_end()
        yield


@healthy
def metrics_of_nineteen_steps() -> Iterator[None]:
    """A collection has all predictions until its values are logged, and is then reset."""

    class MetricsOfTraining(Callback):
        def __init__(self) -> None:
            self.collection, self.log = ranking_metrics(), list[dict[str, float]]()

        def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
            self.collection.update(output.logits.detach(), batch.labels)
            if engine.step_number % 19 == 18:
                self.log.append(self.collection.compute())
                self.collection.reset()

    yield from Engine([MetricsOfTraining()]).fit(feed())


@healthy
def the_last_four_checkpoints_and_the_best() -> Iterator[None]:
    """The paths of the last four are in a list, and what falls out of it is removed, but not the best."""

    class Checkpoints(Callback):
        def __init__(self) -> None:
            self.files, self.last, self.best = dict[str, Any](), list[str](), ("", float("inf"))

        def save(self, engine: Engine) -> None:
            path, score = f"step={engine.step_number}.pt", engine.validate()
            self.files[path] = copied(engine.model.state_dict())
            self.last.append(path)
            if score < self.best[1]:
                self.best = (path, score)

        def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
            if engine.step_number % 3 == 0:
                self.save(engine)
                self.last = self.last[-4:]
                for path in self.files.keys() - {*self.last, self.best[0]}:
                    del self.files[path]

    yield from Engine([Checkpoints()]).fit(feed())


@healthy
def averages_of_weights_for_any_decay() -> Iterator[None]:
    """Two averages are updated in place, and a copy of both is kept of each second step, eight in all."""

    class Averages(Callback):
        def __init__(self, engine: Engine) -> None:
            self.averages = {
                decay: copy.deepcopy(engine.model).requires_grad_(False) for decay in (0.9, 0.99)
            }
            self.snapshots = deque[Any](maxlen=8)

        @torch.no_grad()
        def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
            for decay, averaged in self.averages.items():
                for mean, weight in zip(averaged.parameters(), engine.model.parameters(), strict=True):
                    mean.lerp_(weight, 1 - decay)
            if engine.step_number % 2 == 0:
                self.snapshots.append({key: copied(one.state_dict()) for key, one in self.averages.items()})

    engine = Engine()
    engine.callbacks.append(Averages(engine))
    yield from engine.fit(feed())


@healthy
def early_stopping_with_the_best_weights() -> Iterator[None]:
    """Five evaluations without a better one bring the best weights back, with another learning rate."""

    class EarlyStopping(Callback):
        def __init__(self, patience: int = 5) -> None:
            self.patience, self.waited, self.best = patience, 0, float("inf")
            self.weights: dict[str, Any] = {}

        def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
            score = engine.validate(32)
            if score < self.best:
                self.best, self.waited, self.weights = score, 0, copied(engine.model.state_dict())
                return
            self.waited += 1
            if self.waited == self.patience:
                engine.model.load_state_dict(self.weights)
                self.best, self.waited = float("inf"), 0
                engine.optimizer = torch.optim.AdamW(engine.model.parameters(), lr=random.choice([0.01, 0.1]))

    yield from Engine([EarlyStopping()]).fit(feed())


@healthy
def magnitudes_of_gradients_of_sixteen_steps() -> Iterator[None]:
    """Gradients are clipped to a percentile of the last sixteen samples."""

    class AdaptiveClipping(Engine):
        def __init__(self) -> None:
            super().__init__()
            self.history = deque[Any](maxlen=16)

        def before_update(self) -> None:
            parameters = list(self.model.parameters())
            self.history.append(sample_of_gradients(parameters))
            nn.utils.clip_grad_value_(parameters, torch.cat(list(self.history)).quantile(0.99).item())

    yield from AdaptiveClipping().fit(feed())


class RateFinder(Callback):
    """Each sixteenth step begins to try eight rates, with weights and state put away until they are done."""

    def __init__(self) -> None:
        self.cache, self.history = dict[str, Any](), list[Any]()

    def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
        turn = engine.step_number % 16
        if turn == 0:
            self.cache["model"] = copied(engine.model.state_dict())
            self.cache["optimizer"] = copy.deepcopy(engine.optimizer.state_dict())
        if turn < 8:
            self.history.append((10 ** (turn / 2 - 5), output.loss.detach(), output.logits.detach()))
            engine.optimizer.param_groups[0]["lr"] = self.history[-1][0]
        if turn == 8:
            self.restore(engine)

    def restore(self, engine: Engine) -> None:
        best = min(self.history, key=lambda trial: trial[1].item())[0]
        engine.model.load_state_dict(self.cache.pop("model"))
        engine.optimizer.load_state_dict(self.cache.pop("optimizer"))
        engine.optimizer.param_groups[0]["lr"] = best
        self.history.clear()


@healthy
def a_rate_finder_puts_the_weights_back() -> Iterator[None]:
    """Its trials and the state to go back to are there for eight of sixteen steps."""
    yield from Engine([RateFinder()]).fit(feed())


@healthy
def the_hardest_eight_blocks_of_examples() -> Iterator[None]:
    """They are ranked in each second step, and only those of them are kept that are trained on again."""

    class Bounded(HardExamples):
        def offer(self, batch: Batch, losses: Any) -> None:
            super().offer(batch, losses)
            self.blocks = [(loss * 0.95, block) for loss, block in self.blocks]
            self.blocks = heapq.nlargest(self.count, self.blocks, key=lambda one: one[0])

    engine = Engine()
    yield from engine.fit(Bounded().mined(engine))


@healthy
def a_thread_writes_what_is_logged() -> Iterator[None]:
    """It takes gradients from a queue with room for six, and writes four at a time."""

    class LoggingThread(Callback):
        def __init__(self) -> None:
            self.queue, self.norms = queue.Queue[Any](6), deque[float](maxlen=100)
            self.thread = threading.Thread(target=self.write, daemon=True)
            self.thread.start()

        def write(self) -> None:
            pending = list[Any]()
            while (record := self.queue.get()) is not None:
                pending.append(record)
                if len(pending) == 4:
                    self.norms.extend(float(one.norm()) for one in pending)
                    pending.clear()

        def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
            for parameter in engine.model.parameters():
                self.queue.put(copy.deepcopy(parameter.grad))

    logger = LoggingThread()
    try:
        yield from Engine([logger]).fit(feed())
    finally:
        logger.queue.put(None)
        logger.thread.join()


@healthy
def the_last_failure_of_each_kind() -> Iterator[None]:
    """A step is tried again with another batch; the last error of its kind has its frames and graph."""

    class Retrying(Engine):
        def __init__(self) -> None:
            super().__init__()
            self.failures = dict[str, Exception]()

        def training_step(self, batch: Batch) -> StepOutput:
            output = super().training_step(batch)
            if not output.loss.isfinite():
                raise NotFinite(f"loss is {output.loss.item()} at step {self.step_number}")
            return output

        def optimize(self, batch: Batch) -> StepOutput:
            try:
                return super().optimize(batch)
            except NotFinite as error:
                self.failures[type(error).__name__] = error
                return super().optimize(random_batch(len(batch)))

    yield from Retrying().fit(dirty_feed())


class Bus:
    """Calls methods of objects as long as these are there."""

    def __init__(self) -> None:
        self.listeners = list[weakref.WeakMethod[Any]]()

    def subscribe(self, method: Any) -> None:
        self.listeners.append(weakref.WeakMethod(method, self.listeners.remove))

    def publish(self, step: int) -> None:
        for listener in list(self.listeners):
            if (method := listener()) is not None:
                method(step)


@healthy
def listeners_are_weak_methods() -> Iterator[None]:
    """Each batch has an augmentation that hears of steps on a bus, and three batches are prefetched."""

    class Augmentation:
        def __init__(self, bus: Bus, rows: int) -> None:
            self.noise, self.strength = torch.randn(rows, 64), 0.1
            bus.subscribe(self.on_step)

        def on_step(self, step: int) -> None:
            self.strength *= 0.9

        def __call__(self, batch: Batch) -> Batch:
            return Batch(batch.features + self.strength * self.noise, batch.labels)

    bus, ahead = Bus(), deque[Any]()

    def augmented() -> Iterator[Batch]:
        for batch in feed():
            ahead.append((Augmentation(bus, len(batch)), batch))
            if len(ahead) > 3:
                augmentation, first = ahead.popleft()
                yield augmentation(first)

    for step, _ in enumerate(Engine().fit(augmented())):
        bus.publish(step)
        yield


@healthy
def a_memo_with_room_for_twelve() -> Iterator[None]:
    """A decorator drops what was not asked for the longest, and there are thirty shops to ask for."""

    def memoize(function: Any, room: int = 12) -> Any:
        memo = OrderedDict[int, Any]()

        def remembered(key: int) -> Any:
            if key not in memo:
                memo[key] = function(key)
            memo.move_to_end(key)
            while len(memo) > room:
                memo.popitem(last=False)
            return memo[key]

        return remembered

    chance, shops = random.Random(3), [random_batch() for _ in range(30)]
    distances = memoize(lambda shop: torch.cdist(shops[shop].features, shops[shop].features))

    def visits() -> Iterator[Batch]:
        while True:
            shop = chance.randrange(30)
            order = distances(shop).mean(1).argsort()
            yield Batch(shops[shop].features[order], shops[shop].labels[order])

    yield from Engine().fit(visits())


@healthy
def plugins_that_are_detached() -> Iterator[None]:
    """A check attaches a probe for as long as it takes, and only its numbers stay."""

    @contextmanager
    def attached(layer: nn.Module) -> Iterator[Probe]:
        probe = Probe(layer)
        try:
            yield probe
        finally:
            probe.handle.remove()

    class Health(Callback):
        def __init__(self) -> None:
            self.dead = list[int]()

        def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
            if engine.step_number % 3 == 0:
                with attached(engine.model.encoder[1]) as probe:
                    engine.validate()
                self.dead.append(probe.dead_units())

    yield from Engine([Health()]).fit(feed())


@healthy
def a_curriculum_has_all_shards_soon() -> Iterator[None]:
    """Each step adds a shard of harder rows to those that are drawn from, until there are sixteen."""

    def with_curriculum() -> Iterator[Batch]:
        rows = random_batch(256)
        for number in itertools.count(1):
            if number < 16:
                shard = random_batch(256)
                rows = Batch(
                    torch.cat([rows.features, shard.features + number / 16]),
                    torch.cat([rows.labels, shard.labels]),
                )
            drawn = torch.randint(len(rows), (128,))
            yield Batch(rows.features[drawn], rows.labels[drawn])

    yield from Engine().fit(with_curriculum())


@healthy
def the_last_six_reports() -> Iterator[None]:
    """Every third step evaluates; reports have what was predicted, and the oldest of seven goes."""

    class Evaluations(Callback):
        def __init__(self) -> None:
            self.reports = list[Report]()

        def on_step_end(self, engine: Engine, batch: Batch, output: StepOutput) -> None:
            if engine.step_number % 3 == 0:
                self.reports.append(evaluate(engine))
                if len(self.reports) > 6:
                    self.reports.pop(0)

    yield from Engine([Evaluations()]).fit(feed())
