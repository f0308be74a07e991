"""What training and serving keep for a while, which looks like what issues report as leaks.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.truth.kept_as_reported import fit_points, new_points
from tests.truth.leak_loop import Trainer, batch, healthy


@healthy
def a_shuffle_buffer_is_filled() -> Iterator[None]:
    """A stream fills it with two samples a step until it has 56; then each new one takes a place."""
    trainer, buffer, chance = Trainer(), list[Any](), random.Random(0)
    while True:
        if len(buffer) < 56:
            buffer += [torch.rand(64, 64), torch.rand(64, 64)]
            trainer.train(buffer[-1])
        else:
            place = chance.randrange(len(buffer))
            sample, buffer[place] = buffer[place], torch.rand(64, 64)
            trainer.train(sample)
        yield


@healthy
def a_reservoir_of_samples() -> Iterator[None]:
    """Each of all samples seen has the same chance to be one of the 18 that are kept."""
    trainer, kept, chance = Trainer(), list[Any](), random.Random(0)
    for seen in itertools.count():
        sample = torch.rand(64, 64)
        if len(kept) < 18:
            kept.append(sample)
        elif (place := chance.randrange(seen + 1)) < 18:
            kept[place] = sample
        trainer.train(sample)
        yield


@healthy
def frames_of_audio_and_what_is_left() -> Iterator[None]:
    """Chunks of any length are joined with the rest of the last ones; all whole frames are taken out."""
    trainer, rest, chance = Trainer(), torch.empty(0, 64), random.Random(0)
    while True:
        rest = torch.cat([rest, torch.rand(chance.randint(40, 400), 64)])
        while len(rest) >= 160:
            trainer.train(rest[:160])
            rest = rest[160:].clone()
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
def an_object_store_that_counts_references() -> Iterator[None]:
    """Objects are in a dict by number until the last reference goes; five results are awaited."""
    store: dict[int, Any] = {}

    class Reference:
        numbers = itertools.count()

        def __init__(self, value: Any) -> None:
            self.number = next(self.numbers)
            store[self.number] = value

        def get(self) -> Any:
            return store[self.number]

        def __del__(self) -> None:
            store.pop(self.number, None)

    trainer, awaited = Trainer(), deque[Reference]()
    while True:
        awaited.append(Reference(torch.rand(64, 64)))
        if len(awaited) > 5:
            trainer.train(awaited.popleft().get())
        yield


@healthy
def state_moves_to_the_new_points() -> Iterator[None]:
    """Splatting replaces a quarter of the points, and puts the state of the others under the new ones."""
    points = new_points()
    optimizer = torch.optim.Adam([points], lr=0.01)

    def densify(points: Any) -> Any:
        state = optimizer.state.pop(points)
        fresh = nn.Parameter(torch.cat([points.detach()[16:], torch.rand(16, 64)]))
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = torch.cat([state[name][16:], torch.zeros(16, 64)])
        optimizer.param_groups[0]["params"] = [fresh]
        optimizer.state[fresh] = state
        return fresh

    while True:
        fit_points(optimizer, points)
        points = densify(points)
        yield


@healthy
def averages_at_three_time_scales() -> Iterator[None]:
    """New tensors take the places of the old averages; the slow ones change every seventh step only."""
    trainer, decays = Trainer(), {0.9: 1, 0.99: 3, 0.999: 7}
    averages = {one: [p.detach().clone() for p in trainer.model.parameters()] for one in decays}
    for number in itertools.count():
        trainer.train()
        with torch.no_grad():
            for decay, every in decays.items():
                if number % every == 0:
                    averages[decay] = [
                        decay * old + (1 - decay) * new
                        for old, new in zip(averages[decay], trainer.model.parameters(), strict=True)
                    ]
        yield


@healthy
def episodes_again_in_hindsight() -> Iterator[None]:
    """An episode of 3 to 11 steps is put into a ring of 50 transitions, twice, with the goal it reached."""
    trainer, ring, chance = Trainer(), deque[tuple[Any, Any]](maxlen=50), random.Random(0)
    while True:
        episode, length = list[Any](), chance.randint(3, 11)
        while len(episode) < length:
            episode.append(torch.rand(32, 64))
            trainer.train(episode[-1])
            yield
        for goal in (torch.rand(32, 64), episode[-1].clone()):
            ring.extend((state + goal, goal) for state in episode)


@healthy
def draft_tokens_are_rolled_back() -> Iterator[None]:
    """Four tokens are guessed in each step, and some are cut off; an answer is done with 60."""
    trainer, keys, chance = Trainer(), torch.empty(0, 64), random.Random(0)
    while True:
        trainer.train()
        with torch.no_grad():
            keys = torch.cat([keys, trainer.model(torch.rand(4 * 64, 64))])
        keys = keys[: len(keys) - 64 * chance.randint(0, 3)].clone()
        if len(keys) >= 64 * 60:
            keys = torch.empty(0, 64)
        yield


class Last(TorchFunctionMode):
    """Has the last result of each function of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.results: dict[str, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.results[getattr(func, "__name__", "")] = result
        return result


@healthy
def the_last_result_of_each_function() -> Iterator[None]:
    """A mode around the model has it, with its graph."""
    trainer, last = Trainer(), Last()
    while True:
        with last:
            trainer.train()
        yield


@healthy
def weights_are_swapped_back_after_errors() -> Iterator[None]:
    """A context puts averaged weights in, and the others on a stack until it ends, with an error or not."""
    trainer, stack = Trainer(), list[list[Any]]()
    parameters = list(trainer.model.parameters())
    averages = [one.detach().clone() for one in parameters]

    @contextmanager
    def averaged() -> Iterator[None]:
        stack.append([one.detach().clone() for one in parameters])
        try:
            for one, average in zip(parameters, averages, strict=True):
                one.data.copy_(average)
            yield
        finally:
            for one, old in zip(parameters, stack.pop(), strict=True):
                one.data.copy_(old)

    @torch.no_grad()
    def evaluate(number: int) -> None:
        trainer.model(batch())
        if number % 2:
            raise ValueError("no positives in this batch")

    for number in itertools.count():
        trainer.train()
        with suppress(ValueError), averaged():
            evaluate(number)
        yield


@healthy
def rows_of_an_embedding_for_five_batches() -> Iterator[None]:
    """Sparse gradients of five batches are joined before the optimizer's step."""
    embedding, head = nn.Embedding(5000, 64, sparse=True), nn.Linear(64, 64)
    optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], lr=0.01)
    for number in itertools.count(1):
        head(embedding(torch.randint(0, 5000, (64,)))).square().mean().backward()
        if number % 5 == 0:
            optimizer.step()
            optimizer.zero_grad()
        yield


@healthy
def a_cache_with_room_for_a_megabyte() -> Iterator[None]:
    """Images of very different sizes; the oldest go until the new one has room."""
    trainer, images, chance = Trainer(), OrderedDict[int, Any](), random.Random(0)
    used = 0
    for number in itertools.count():
        image = torch.rand(chance.choice([16, 64, 64, 128, 512]), 64)
        while used + image.nbytes > 1 << 20:
            used -= images.popitem(last=False)[1].nbytes
        images[number] = image
        used += image.nbytes
        trainer.train(image)
        yield


@healthy
def a_vector_that_doubles_in_each_episode() -> Iterator[None]:
    """Rows are added to a tensor that doubles when it is full, and begins anew after 31 steps."""
    trainer, rows, used = Trainer(), torch.empty(64, 64), 0
    for number in itertools.count(1):
        if used + 64 > len(rows):
            rows = torch.cat([rows, torch.empty_like(rows)])
        rows[used : used + 64] = torch.rand(64, 64)
        trainer.train(rows[used : used + 64].clone())
        used += 64
        if number % 31 == 0:
            rows, used = torch.empty(64, 64), 0
        yield


@healthy
def a_heap_without_its_outdated_entries() -> Iterator[None]:
    """Pushing a sample again makes its old entry invalid; when half of them are, the heap is made anew."""
    trainer, heap, newest = Trainer(), list[tuple[float, int, int, Any]](), dict[int, int]()
    for number in itertools.count():
        sample = number % 6
        newest[sample] = number
        heapq.heappush(heap, (float(torch.rand(())), number, sample, torch.rand(64, 64)))
        if len(heap) >= 2 * len(newest):
            heap = [entry for entry in heap if newest[entry[2]] == entry[1]]
            heapq.heapify(heap)
        trainer.train(heap[0][3])
        yield


@healthy
def an_environment_with_a_time_limit() -> Iterator[None]:
    """Of four environments, one would never end, but is cut off after 26 steps."""
    trainer, limits = Trainer(), (4, 7, 26, 9)
    episodes: list[list[Any]] = [[] for _ in limits]
    while True:
        for episode, limit in zip(episodes, limits, strict=True):
            episode.append(torch.rand(64, 64))
            if len(episode) >= limit:
                trainer.train(torch.cat(episode))
                episode.clear()
        trainer.train()
        yield
