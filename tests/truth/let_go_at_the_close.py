"""What looks as if training kept it for good, and goes: folds, tiles, adjoints, leagues, messages.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import Convolutions, Trainer, batch, healthy, images


@healthy
def elites_of_a_small_grid() -> Iterator[None]:
    """Evolution has the best genes for each of twelve behaviors, and better ones take their places."""
    elites, chance = dict[int, tuple[float, Any]](), random.Random(1)

    def evaluate(genes: Any) -> tuple[int, float]:
        states = torch.tanh(genes.view(64, 48) @ torch.ones(48))
        return int(states[:6].gt(0).sum()) + (6 if states[6] > 0 else 0), float(states.mean())

    def mutate() -> Any:
        if not elites:
            return torch.randn(64 * 48)
        return chance.choice(list(elites.values()))[1] + 0.5 * torch.randn(64 * 48)

    with torch.no_grad():
        while True:
            for _ in range(6):
                genes = mutate()
                cell, fitness = evaluate(genes)
                if cell not in elites or elites[cell][0] < fitness:
                    elites[cell] = (fitness, genes)
            yield


@healthy
def models_of_five_folds() -> Iterator[None]:
    """Cross-validation keeps a model and predictions for each of five folds, then tries other settings."""
    for rate in itertools.cycle([0.1, 0.03, 0.01]):
        models, predictions = list[nn.Module](), list[Any]()
        for _ in range(5):
            model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 8))
            optimizer = torch.optim.Adam(model.parameters(), lr=rate)
            for _ in range(5):
                optimizer.zero_grad()
                model(batch()).square().mean().backward()
                optimizer.step()
                yield
            models.append(model)
            with torch.no_grad():
                predictions.append(model(batch(256)))
            yield
        with torch.no_grad():
            held_out = batch(256)
            torch.stack([model(held_out) for model in models]).mean(0)
            torch.cat(predictions).var()


@healthy
def a_large_batch_in_two_passes() -> Iterator[None]:
    """Contrastive training embeds eight parts without graphs, then each again with its gradient."""
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=0.001)

    def gradients(vectors: Any) -> tuple[Any, ...]:
        vectors = vectors.requires_grad_()
        likeness = functional.normalize(vectors) @ functional.normalize(vectors).T
        labels = torch.arange(len(vectors)).roll(1)
        functional.cross_entropy(likeness.fill_diagonal_(-9.0) / 0.1, labels).backward()
        return vectors.grad.split(48)

    while True:
        parts, vectors = list[Any](), list[Any]()
        for _ in range(8):
            parts.append(batch(48))
            with torch.no_grad():
                vectors.append(encoder(parts[-1]))
            yield
        optimizer.zero_grad()
        for part, gradient in zip(parts, gradients(torch.cat(vectors)), strict=True):
            encoder(part).backward(gradient)
            yield
        optimizer.step()


def _received(nodes: list[int], waiting: dict[int, list[Any]]) -> list[Any]:
    messages = [torch.stack(waiting.pop(node)).mean(0) if node in waiting else None for node in nodes]
    return [torch.zeros(128) if message is None else message for message in messages]


@healthy
def messages_of_nodes_until_they_meet_again() -> Iterator[None]:
    """Messages wait for each of 40 nodes until it has its next event, and then change its memory."""
    memory, cell, score = torch.zeros(40, 64), nn.GRUCell(128, 64), nn.Linear(128, 1)
    optimizer = torch.optim.Adam([*cell.parameters(), *score.parameters()], lr=0.001)
    waiting, chance = defaultdict[int, list[Any]](list), random.Random(4)

    def recall(nodes: list[int]) -> Any:
        return cell(torch.stack(_received(nodes, waiting)), memory[nodes])

    def send(senders: list[int], receivers: list[int]) -> None:
        for one, other in zip(senders, receivers, strict=True):
            waiting[one].append(torch.cat([memory[one], memory[other]]))
            waiting[other].append(torch.cat([memory[other], memory[one]]))

    while True:
        nodes = list(dict.fromkeys(min(39, int(chance.expovariate(0.1))) for _ in range(20)))
        nodes = nodes[: len(nodes) // 2 * 2]
        states = recall(nodes)
        half = len(nodes) // 2
        optimizer.zero_grad()
        score(torch.cat([states[:half], states[half:]], 1)).square().mean().backward()
        optimizer.step()
        memory[nodes] = states.detach()
        for _ in range(3):
            send(nodes[:half], nodes[half:])
        yield


@healthy
def opponents_of_a_small_league() -> Iterator[None]:
    """Self-play has six earlier players; every second step a new one replaces whom it beats most easily."""
    player = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 4))
    optimizer, league = torch.optim.Adam(player.parameters(), lr=0.001), list[nn.Module]()
    beaten, chance = dict[int, float](), random.Random(5)

    def play(opponent: nn.Module) -> None:
        states = batch(32)
        with torch.no_grad():
            theirs = opponent(states).softmax(1)
        ours = player(states).log_softmax(1)
        won = (ours.argmax(1) >= theirs.argmax(1)).float()
        beaten[id(opponent)] = 0.8 * beaten.get(id(opponent), 0.5) + 0.2 * float(won.mean())
        optimizer.zero_grad()
        (-ours.amax(1) * (won - won.mean())).mean().backward()
        optimizer.step()

    def enter() -> None:
        if len(league) == 6:
            easiest = max(league, key=lambda one: beaten.get(id(one), 0.0))
            league.remove(easiest)
            beaten.pop(id(easiest), None)
        league.append(copy.deepcopy(player).requires_grad_(requires_grad=False))

    for number in itertools.count():
        if number % 2 == 0:
            enter()
        play(chance.choice(league))
        yield


@healthy
def tiles_until_the_image_is_whole() -> Iterator[None]:
    """Images of 6 to 16 tiles are segmented, a tile in each step, and blended when all are there."""
    trainer, chance = Convolutions(), random.Random(6)
    segment = nn.Conv2d(3, 5, 3, padding=1)

    def blend(tiles: dict[tuple[int, int], Any], rows: int, columns: int) -> Any:
        whole, weight = torch.zeros(5, 24 * rows + 8, 24 * columns + 8), torch.zeros(1)
        for (row, column), tile in tiles.items():
            whole[:, 24 * row : 24 * row + 32, 24 * column : 24 * column + 32] += tile
            weight += 1
        return whole.div_(weight).argmax(0)

    while True:
        rows, columns = chance.randint(2, 4), chance.randint(3, 4)
        tiles = dict[tuple[int, int], Any]()
        for place in itertools.product(range(rows), range(columns)):
            with torch.no_grad():
                tiles[place] = segment(images(1, 32))[0].softmax(0)
            trainer.train(images())
            yield
        blend(tiles, rows, columns)


@healthy
def states_of_a_simulation_for_its_adjoint() -> Iterator[None]:
    """A simulation puts its states on a stack for 14 steps, and its adjoint takes them off, last first."""
    conduct, heat = nn.Conv2d(1, 1, 3, padding=1, bias=False), torch.rand(1, 1, 64, 64)
    optimizer, trainer = torch.optim.SGD(conduct.parameters(), lr=0.001), Trainer()

    def advance(state: Any) -> Any:
        return state + 0.1 * torch.tanh(conduct(state))

    while True:
        states, state = list[Any](), heat
        for _ in range(14):
            states.append(state)
            with torch.no_grad():
                state = advance(state)
            trainer.train()
            yield
        adjoint = state - 0.5
        optimizer.zero_grad()
        while states:
            before = states.pop().clone().requires_grad_()
            advance(before).backward(adjoint)
            adjoint = before.grad
            yield
        optimizer.step()
