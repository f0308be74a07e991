"""Loops that keep for a while what those of kept_at_last_sight keep for good, and their like.

Written before any of them was diagnosed, by somebody who did not know the rules.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.truth.leak_loop import Trainer, batch, healthy


@healthy
def a_multiplier_is_detached_each_round() -> Iterator[None]:
    """The multiplier of a constraint has the graphs of the costs of a round, which is 14 steps."""
    trainer, costs, multiplier = Trainer(), nn.Linear(64, 1), torch.zeros(())

    def cost(states: Any) -> Any:
        return nn.functional.softplus(costs(trainer.model(states))).mean()

    for number in itertools.count(1):
        states = batch()
        trainer.optimizer.zero_grad()
        (multiplier.detach() * cost(states) + trainer.loss(states)).backward()
        trainer.optimizer.step()
        multiplier = (multiplier + 0.05 * (cost(states) - 0.2)).clamp(min=0)
        if number % 14 == 0:
            multiplier = multiplier.detach()
        yield


class Rendezvous:
    """Fuses the views of three cameras when the last of them has come."""

    def __init__(self, delays: dict[str, int]) -> None:
        self.backbone, self.delays = nn.Linear(64, 48).eval(), delays
        self.transit = defaultdict[int, list[tuple[str, int, Any]]](list)
        self.views = defaultdict[int, dict[str, Any]](dict)

    @torch.inference_mode()
    def tick(self, now: int) -> Any:
        for camera, delay in self.delays.items():
            self.transit[now + delay].append((camera, now, self.backbone(batch(40))))
        fused = None
        for camera, taken, view in self.transit.pop(now, []):
            self.views[taken][camera] = view
            if len(self.views[taken]) == len(self.delays):
                fused = torch.stack(list(self.views.pop(taken).values())).mean(0)
        return fused


@healthy
def views_wait_for_the_slowest_camera() -> Iterator[None]:
    """Features wait in a dict by time until those of all cameras are there, at most 16 steps later."""
    rendezvous = Rendezvous({"front": 0, "left": 5, "rear": 16})
    for now in itertools.count():
        rendezvous.tick(now)
        yield


class EpochHistograms:
    """The mean histogram of each layer of an epoch."""

    def __init__(self, model: nn.Module) -> None:
        self.seen, self.means = defaultdict[int, list[Any]](list), deque[Any](maxlen=3)
        for number, layer in enumerate(model.children()):
            layer.register_forward_hook(self.watch(number))

    def watch(self, number: int) -> Callable[..., None]:
        def record(_layer: nn.Module, _inputs: Any, output: Any) -> None:
            self.seen[number].append(torch.histc(output.detach(), 256, -3, 3))

        return record

    def end_epoch(self) -> None:
        self.means.append({number: torch.stack(all_).mean(0) for number, all_ in self.seen.items()})
        self.seen.clear()


@healthy
def histograms_of_an_epoch_of_sixteen_steps() -> Iterator[None]:
    """They are averaged at the end of each epoch, and the last three averages are kept."""
    model = nn.Sequential(*itertools.chain.from_iterable((nn.Linear(64, 64), nn.ReLU()) for _ in range(5)))
    optimizer, histograms = torch.optim.SGD(model.parameters(), lr=0.01), EpochHistograms(model)
    for number in itertools.count(1):
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()
        if number % 16 == 0:
            histograms.end_epoch()
        yield


@dataclass
class Slot:
    key: int
    value: Any
    used: bool = True


class ClockCache:
    """When it is full, its hand goes around to the first slot that was not used since it last came by."""

    def __init__(self, room: int, make: Callable[[int], Any]) -> None:
        self.room, self.make, self.hand = room, make, 0
        self.slots, self.where = list[Slot](), dict[int, int]()

    def __getitem__(self, key: int) -> Any:
        if key not in self.where:
            self.insert(key)
        slot = self.slots[self.where[key]]
        slot.used = True
        return slot.value

    def insert(self, key: int) -> None:
        slot = Slot(key, self.make(key))
        if len(self.slots) < self.room:
            self.slots.append(slot)
            self.where[key] = len(self.slots) - 1
            return
        while self.slots[self.hand].used:
            self.slots[self.hand].used = False
            self.hand = (self.hand + 1) % self.room
        del self.where[self.slots[self.hand].key]
        self.slots[self.hand], self.where[key] = slot, self.hand
        self.hand = (self.hand + 1) % self.room


@healthy
def a_clock_that_evicts_what_was_not_used() -> Iterator[None]:
    """Some encoded prompts come often and most come once. There is room for 34, two are new a step."""
    encoder = nn.Sequential(nn.Embedding(512, 64), nn.Tanh(), nn.Linear(64, 64)).eval()

    @torch.no_grad()
    def encode(prompt: int) -> Any:
        return encoder(torch.arange(prompt, prompt + 40) % 512)

    cache, fresh = ClockCache(34, encode), itertools.count(100)
    for number in itertools.count():
        for prompt in (number % 4, next(fresh), next(fresh)):
            cache[prompt].mean().item()
        yield


class VoxelMap:
    """One point for each voxel: the mean of those that were seen there."""

    def __init__(self) -> None:
        self.keys, self.sums = torch.zeros(0, dtype=torch.long), torch.zeros(0, 8)

    def integrate(self, cells: Any, points: Any) -> None:
        keys, index = torch.cat([self.keys, cells]).unique(return_inverse=True)
        self.sums = torch.zeros(len(keys), 8).index_add(0, index, torch.cat([self.sums, points]))
        self.keys = keys


@healthy
def a_map_is_merged_into_voxels() -> Iterator[None]:
    """A robot drives in a circle; after 15 steps it has seen all of it."""
    world, trainer = VoxelMap(), Trainer()
    for number in itertools.count():
        cells = torch.arange(300) + 200 * (number % 15)
        world.integrate(cells, torch.rand(300, 8))
        trainer.train(world.sums[:256].reshape(-1, 64) / 100)
        yield


class QLearner:
    """Learns from a replay in tensors that it writes around, with a target that is copied now and then."""

    def __init__(self, room: int) -> None:
        self.online = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 6))
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters())
        self.room, self.memory = room, list[dict[str, Any]]()

    def observe(self, number: int) -> None:
        new = {"before": batch(16), "after": batch(16), "reward": torch.rand(16)}
        if number < self.room:
            self.memory.append(new)
        else:
            self.memory[number % self.room].update(new)

    def learn(self, number: int) -> None:
        drawn = self.memory[number * 7 % len(self.memory)]
        with torch.no_grad():
            best = self.online(drawn["after"]).argmax(-1, keepdim=True)
            goal = drawn["reward"] + 0.9 * self.target(drawn["after"]).gather(1, best).squeeze(1)
        self.optimizer.zero_grad()
        (self.online(drawn["before"]).max(-1).values - goal).square().mean().backward()
        self.optimizer.step()
        if number % 10 == 0:
            self.target = copy.deepcopy(self.online)


@healthy
def a_target_that_is_copied_anew_each_tenth_step() -> Iterator[None]:
    """A Q-learner with 17 places in its replay, whose dicts are updated once all are taken."""
    learner = QLearner(17)
    for number in itertools.count():
        learner.observe(number)
        learner.learn(number)
        yield


def ahead(items: Iterator[Any], count: int) -> Iterator[Any]:
    """Make so many items before they are asked for."""
    ready = deque[Any]()
    for item in items:
        ready.append(item)
        if len(ready) > count:
            yield ready.popleft()


@healthy
def three_stages_that_look_ahead() -> Iterator[None]:
    """Reading, augmenting and batching each have some items ready; they come by a few more than are used."""
    trainer = Trainer()
    read = (torch.rand(48, 96) for _ in itertools.count())
    augmented = (rows.roll(turn, 1)[:, :64].clone() for turn, rows in enumerate(ahead(read, 6)))
    batches = ((rows - rows.mean(0)) / rows.std(0) for rows in ahead(augmented, 5))
    for rows in ahead(batches, 4):
        trainer.train(rows)
        yield


class Anderson:
    """Finds a fixed point faster, by a mix of its last iterates."""

    def __init__(self, memory: int) -> None:
        self.memory, self.points, self.values = memory, list[Any](), list[Any]()

    @torch.no_grad()
    def step(self, point: Any, value: Any) -> Any:
        self.points, self.values = (
            [*self.points, point][-self.memory :],
            [*self.values, value][-self.memory :],
        )
        points, values = torch.stack(self.points).flatten(1), torch.stack(self.values).flatten(1)
        gaps = values - points
        weights = torch.linalg.solve(gaps @ gaps.T + 1e-3 * torch.eye(len(gaps)), torch.ones(len(gaps)))
        return (weights / weights.sum() @ values).view_as(point)


@healthy
def a_fixed_point_by_its_last_eighteen_iterates() -> Iterator[None]:
    """Implicit layers are solved on and on, each step begins where the last has ended."""
    layer, anderson, point = nn.Linear(64, 64), Anderson(18), torch.zeros(32, 64)
    inputs = torch.rand(32, 64)
    while True:
        point = anderson.step(point, (layer(point) + inputs).tanh().detach())
        yield


class Lookahead:
    """After some fast steps, goes half of the way from where they began."""

    def __init__(self, optimizer: Any, every: int) -> None:
        self.optimizer, self.every, self.count = optimizer, every, 0
        self.slow, self.path = dict[Any, Any](), list[list[Any]]()

    @property
    def weights(self) -> list[Any]:
        return [weight for group in self.optimizer.param_groups for weight in group["params"]]

    @torch.no_grad()
    def step(self) -> None:
        self.optimizer.step()
        self.count += 1
        self.path.append([weight.clone() for weight in self.weights])
        if self.count % self.every:
            return
        for weight, *passed in zip(self.weights, *self.path, strict=True):
            slow = self.slow.get(weight, passed[0])
            self.slow[weight] = slow + 0.5 * (torch.stack(passed).mean(0) - slow)
            weight.copy_(self.slow[weight])
        self.path.clear()


@healthy
def lookahead_goes_back_each_thirteenth_step() -> Iterator[None]:
    """The way of the fast weights is kept until the slow ones follow."""
    trainer = Trainer()
    lookahead = Lookahead(trainer.optimizer, 13)
    while True:
        trainer.optimizer.zero_grad()
        trainer.loss(batch()).backward()
        lookahead.step()
        yield


class Comparison:
    """Runs two models. What the first has found waits for the same run of the second, which is behind."""

    def __init__(self, behind: int) -> None:
        self.quick, self.exact, self.behind = nn.Linear(64, 64), nn.Linear(64, 64), behind
        self.inputs, self.found, self.needed = dict[int, Any](), dict[int, Any](), dict[int, int]()

    def release(self, run: int) -> None:
        self.needed[run] -= 1
        if not self.needed[run]:
            del self.inputs[run], self.found[run], self.needed[run]

    @torch.inference_mode()
    def __call__(self, run: int, rows: Any) -> None:
        self.inputs[run], self.found[run], self.needed[run] = rows, self.quick(rows), 2
        for lag in (self.behind // 2, self.behind):
            earlier = run - lag
            if earlier >= 0:
                (self.exact(self.inputs[earlier]) - self.found[earlier]).abs().mean().item()
                self.release(earlier)


@healthy
def results_are_dropped_by_the_last_who_needs_them() -> Iterator[None]:
    """Two models are compared twice, the second time 17 runs later, which is when the results go."""
    comparison = Comparison(17)
    for run in itertools.count():
        comparison(run, batch(32))
        yield


class Batcher:
    """Answers requests by the dozen. Tasks that wait for their answers are in a set until they are done."""

    def __init__(self, size: int) -> None:
        self.model, self.size = nn.Linear(64, 64).eval(), size
        self.tasks, self.waiting = set[asyncio.Task[Any]](), list[tuple[Any, asyncio.Future[Any]]]()

    async def request(self, rows: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((rows, answer))
        if len(self.waiting) == self.size:
            self.flush()
        return (await answer).softmax(-1)

    @torch.no_grad()
    def flush(self) -> None:
        answers = self.model(torch.stack([rows for rows, _ in self.waiting]))
        for (_, future), answer in zip(self.waiting, answers, strict=True):
            future.set_result(answer)
        self.waiting.clear()

    async def submit(self) -> None:
        task = asyncio.get_running_loop().create_task(self.request(batch(16)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await asyncio.sleep(0)


@healthy
def requests_are_answered_by_the_dozen() -> Iterator[None]:
    """A request of each step waits until there are twelve; its task is then discarded."""
    batcher, loop = Batcher(12), asyncio.new_event_loop()
    try:
        while True:
            loop.run_until_complete(batcher.submit())
            yield
    finally:
        for task in batcher.tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*batcher.tasks, return_exceptions=True))
        loop.close()


class SparseCounts:
    """Counts pairs in a sparse tensor, and sometimes adds that to a dense one."""

    def __init__(self, words: int) -> None:
        self.table = torch.zeros(words, words)
        self.recent = self.empty = torch.sparse_coo_tensor(size=(words, words))

    def add(self, text: Any) -> None:
        pairs = torch.stack([text[:-1], text[1:]])
        self.recent = self.recent + torch.sparse_coo_tensor(
            pairs, torch.ones(pairs.shape[1]), self.table.shape
        )

    def settle(self) -> None:
        self.table += self.recent.coalesce()
        self.recent = self.empty


@healthy
def sparse_counts_go_into_a_table() -> Iterator[None]:
    """Sums of sparse tensors become longer for 18 steps."""
    counts, trainer = SparseCounts(128), Trainer()
    for number in itertools.count(1):
        counts.add(torch.randint(128, (500,)))
        trainer.train(counts.table[:, :64] / 10)
        if number % 18 == 0:
            counts.settle()
        yield
