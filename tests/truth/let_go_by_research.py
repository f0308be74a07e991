"""What research code keeps beside its training only for a while.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import functools
import itertools
import random
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel

from tests.truth.kept_by_research import clip, mask_of_largest
from tests.truth.leak_loop import (
    Trainer,
    batch,
    healthy,
)


@healthy
def one_fisher_for_all_tasks() -> Iterator[None]:
    """A smoothed one and the last weights replace those before."""
    trainer = Trainer()
    parameters = list(trainer.model.parameters())
    fisher = [torch.zeros_like(one) for one in parameters]
    anchors = [one.detach().clone() for one in parameters]
    while True:
        trainer.optimizer.zero_grad()
        loss = trainer.loss(batch())
        for parameter, anchor, weight in zip(parameters, anchors, fisher, strict=True):
            loss = loss + (weight * (parameter - anchor).square()).sum()
        loss.backward()
        trainer.optimizer.step()
        fisher = [0.9 * old + 0.1 * one.grad.square() for old, one in zip(fisher, parameters, strict=True)]
        anchors = [one.detach().clone() for one in parameters]
        yield


@healthy
def warnings_of_one_step() -> Iterator[None]:
    """They are recorded and counted in each step."""
    trainer, counted = Trainer(), 0
    while True:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            trainer.train(clip(batch(96)))
        counted += len(seen)
        yield


@healthy
def teacher_outputs_of_a_small_set() -> Iterator[None]:
    """The teacher sees each of its eight batches once."""
    trainer, teacher, batches = Trainer(), Trainer(), [batch() for _ in range(8)]
    taught = dict[int, Any]()
    for number in itertools.count():
        which = number % len(batches)
        if which not in taught:
            with torch.no_grad():
                taught[which] = teacher.model(batches[which])
        trainer.optimizer.zero_grad()
        (trainer.model(batches[which]) - taught[which]).square().mean().backward()
        trainer.optimizer.step()
        yield


@healthy
def pruned_for_good() -> Iterator[None]:
    """Each pruning is made permanent before the next, which drops its mask."""
    trainer = Trainer()
    layer = trainer.model[0]
    while True:
        trainer.train()
        prune.custom_from_mask(layer, "weight", mask_of_largest(layer.weight.detach()))
        trainer.train()
        prune.remove(layer, "weight")
        yield


@healthy
def an_lru_cache_keyed_by_tensors() -> Iterator[None]:
    """No tensor is ever asked for again, and there is room for sixteen."""

    @functools.lru_cache(maxsize=16)
    def augmented(inputs: Any) -> Any:
        return inputs.flip(0) + 0.1

    trainer = Trainer()
    while True:
        trainer.train(augmented(batch()))
        yield


@healthy
def averaging_begins_late() -> Iterator[None]:
    """Weights are averaged from step 26 on, with an optimizer that has state."""
    trainer, averaged = Trainer(), None
    for number in itertools.count():
        if number == 26:
            averaged = AveragedModel(trainer.model)
            trainer.optimizer = torch.optim.Adam(trainer.model.parameters(), lr=0.001)
        trainer.train()
        if averaged is not None:
            averaged.update_parameters(trainer.model)
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
def a_trajectory_until_the_sample_is_done() -> Iterator[None]:
    """A sample takes 28 steps, and what was thought of it in between is then averaged and dropped."""
    trainer, image, thoughts = Trainer(), torch.randn(64, 64), list[Any]()
    while True:
        trainer.train()
        with torch.no_grad():
            thoughts.append(trainer.model(image))
            image = image + (thoughts[-1] - image) / 28
        if len(thoughts) == 28:
            torch.stack(thoughts).mean(0)
            image, thoughts = torch.randn(64, 64), []
        yield


@healthy
def labels_grow_as_the_pool_shrinks() -> Iterator[None]:
    """Active learning: 16 samples a step go from those without labels to those with them."""
    trainer, pool, labelled = Trainer(), torch.rand(3072, 64), torch.empty(0, 64)
    while True:
        with torch.no_grad():
            order = trainer.model(pool).norm(dim=1).argsort(descending=True)
        labelled, pool = torch.cat([labelled, pool[order[:16]]]), pool[order[16:]]
        trainer.train(labelled[torch.randint(len(labelled), (64,))])
        if len(pool) < 16:
            pool, labelled = labelled, torch.empty(0, 64)
        yield


@healthy
def a_search_tree_that_moves_its_root() -> Iterator[None]:
    """Nodes know their parents by weak references; what is known below the new root stays in use."""

    class Node:
        def __init__(self, parent: Any = None) -> None:
            self.parent = parent and weakref.ref(parent)
            self.children: list[Any] = []
            self.state = torch.rand(32, 64)

        def expand(self) -> list[Any]:
            self.children = self.children or [Node(self) for _ in range(3)]
            return self.children

    trainer, root, chance = Trainer(), Node(), random.Random(0)
    while True:
        trainer.train(torch.cat([leaf.state for child in root.expand() for leaf in child.expand()]))
        root = chance.choice(root.children)
        yield


@healthy
def six_environments_with_their_own_episodes() -> Iterator[None]:
    """Each has its list of states until its episode ends, after 3 to 15 steps."""
    trainer, chance = Trainer(), random.Random(3)
    episodes = [list[Any]() for _ in range(6)]
    ends = [chance.randint(3, 15) for _ in episodes]
    while True:
        for which, states in enumerate(episodes):
            states.append(torch.rand(32, 64))
            if len(states) == ends[which]:
                trainer.train(torch.cat(states))
                states.clear()
                ends[which] = chance.randint(3, 15)
        yield


@healthy
def graphs_compute_their_weights_once() -> Iterator[None]:
    """There are 30 of them, in another order in each epoch."""

    class Graph:
        def __init__(self) -> None:
            self.edges = torch.rand(64, 64) > 0.8

        @functools.cached_property
        def weights(self) -> Any:
            return self.edges / self.edges.sum(1, keepdim=True).clamp(min=1)

    trainer, graphs, chance = Trainer(), [Graph() for _ in range(30)], random.Random(4)
    while True:
        for graph in chance.sample(graphs, len(graphs)):
            trainer.train(graph.weights @ batch())
            yield


@healthy
def queues_of_rare_classes() -> Iterator[None]:
    """Four sets of features for each of 20 classes; most come seldom, so that they are filled late."""
    trainer, chance = Trainer(), random.Random(5)
    queues = [deque[Any](maxlen=4) for _ in range(20)]
    often = [1 / (number + 1) for number in range(20)]
    while True:
        trainer.train()
        for label in chance.choices(range(20), often, k=3):
            with torch.no_grad():
                queues[label].append(trainer.model(batch(48)))
        yield


@healthy
def buckets_of_utterances() -> Iterator[None]:
    """Utterances of like length wait until there are five of them."""
    trainer, chance = Trainer(), random.Random(6)
    buckets: dict[int, list[Any]] = {number: [] for number in range(6)}
    while True:
        for _ in range(2):
            length = chance.randrange(20, 200)
            bucket = buckets[(length - 20) // 30]
            bucket.append(batch(length))
            if len(bucket) == 5:
                trainer.train(nn.utils.rnn.pad_sequence(bucket, batch_first=True))
                bucket.clear()
        yield
