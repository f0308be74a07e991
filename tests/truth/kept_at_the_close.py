"""What training in chemistry, federations, physics, speech, shops and evolution keeps for good.

These loops were written before any diagnosis of them was seen, by somebody who did not know the rules.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.leak_loop import GRADIENTS, GRAPH, GROWING, METRICS, NO_USUAL, OUTPUTS, Trainer, batch, leaks


@dataclass
class Molecule:
    """A row for each atom and for each bond, and the two atoms of each bond."""

    atoms: Any
    bonds: Any
    ends: Any


class Features:
    """Reads molecules, and knows those that it has read."""

    def __init__(self) -> None:
        self.known = dict[str, Molecule]()

    def read(self, text: str) -> Molecule:
        elements = torch.tensor(["CNOFS".index(letter) for letter in text])
        ends = torch.stack([torch.arange(len(text) - 1), torch.arange(1, len(text))])
        atoms = functional.one_hot(elements, 64).float()
        return Molecule(atoms, torch.cat([atoms[ends[0]], atoms[ends[1]]], 1), ends)

    def __call__(self, text: str) -> Molecule:
        if text not in self.known:
            self.known[text] = self.read(text)
        return self.known[text]


@leaks("read __call__", cause=GROWING | NO_USUAL)
def molecules_by_their_notation() -> Iterator[None]:
    """A model of molecules keeps the graph of each by its notation; a library for screening has no end."""
    features, chance = Features(), random.Random(1)
    embed, send, score = nn.Linear(64, 48), nn.Linear(128, 48), nn.Linear(48, 1)
    layers = nn.ModuleList([embed, send, score])
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.001)

    def predict(text: str) -> Any:
        molecule = features(text)
        received = torch.zeros(len(text), 48).index_add(0, molecule.ends[1], send(molecule.bonds))
        return score((embed(molecule.atoms) + received).relu().mean(0))

    while True:
        texts = ["".join(chance.choices("CNOFS", k=chance.randint(12, 30))) for _ in range(3)]
        optimizer.zero_grad()
        torch.cat([predict(text) for text in texts]).square().mean().backward()
        optimizer.step()
        yield


class Federation:
    """Corrects the drift of clients by what each of them, and all of them, did before."""

    def __init__(self) -> None:
        self.model = nn.Linear(64, 64)
        self.common = [torch.zeros_like(weight) for weight in self.model.parameters()]
        self.own = dict[int, list[Any]]()

    def train_client(self, client: int) -> None:
        own = self.own.get(client) or [torch.zeros_like(weight) for weight in self.common]
        local = nn.Linear(64, 64)
        local.load_state_dict(self.model.state_dict())
        for _ in range(2):
            gradients = torch.autograd.grad(local(batch(32)).square().mean(), list(local.parameters()))
            with torch.no_grad():
                for weight, gradient, mine, ours in zip(
                    local.parameters(), gradients, own, self.common, strict=True
                ):
                    weight -= 0.05 * (gradient - mine + ours)
        self.finish(client, own, local)

    @torch.no_grad()
    def finish(self, client: int, own: list[Any], local: nn.Module) -> None:
        new = []
        for weight, mine, ours, after in zip(
            self.model.parameters(), own, self.common, local.parameters(), strict=True
        ):
            new.append(mine - ours + (weight - after) / 0.1)
            ours += 0.01 * (new[-1] - mine)
            weight += 0.1 * (after - weight)
        self.own[client] = new


@leaks("finish train_client", cause=GROWING | NO_USUAL)
def corrections_for_clients_that_never_return() -> Iterator[None]:
    """The server has a correction for each client; of a billion phones, none is chosen a second time."""
    federation, chance = Federation(), random.Random(2)
    while True:
        federation.train_client(chance.randrange(1_000_000_000))
        yield


@leaks("refine", cause=GROWING | NO_USUAL)
def points_where_an_equation_fits_badly() -> Iterator[None]:
    """A network that solves an equation also gets the points where it is worst, every second step."""
    network = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.001)

    def residual(points: Any) -> Any:
        points = points.detach().requires_grad_()
        values = network(points)
        (slopes,) = torch.autograd.grad(values.sum(), points, create_graph=True)
        return slopes[:, 1] + values[:, 0] * slopes[:, 0]

    def refine(points: Any) -> Any:
        candidates = torch.rand(8000, 2)
        worst = residual(candidates).detach().abs().topk(2500).indices
        return torch.cat([points, candidates[worst]])

    points = torch.rand(2000, 2)
    for number in itertools.count():
        if number % 2:
            points = refine(points)
        optimizer.zero_grad()
        residual(points).square().mean().backward()
        optimizer.step()
        yield


class Voice:
    """A speaker: the sum of vectors, and one utterance to listen to."""

    def __init__(self, vector: Any, utterance: Any) -> None:
        self.sum, self.utterance, self.count = vector, utterance, 1

    def likeness(self, vector: Any) -> float:
        return float(functional.cosine_similarity(self.sum, vector, 0))

    def add(self, vector: Any) -> None:
        self.sum, self.count = self.sum + vector, self.count + 1


@leaks("assign forward segment", cause=OUTPUTS | GROWING | NO_USUAL)
def voices_that_are_always_new() -> Iterator[None]:
    """Who speaks is decided by a threshold that is far too strict, so that each segment is a new voice."""
    listen = nn.Sequential(nn.Conv1d(40, 32, 5), nn.ReLU(), nn.Conv1d(32, 128, 3))
    trainer, voices, chance = Trainer(), list[Voice](), random.Random(3)

    def segment() -> Any:
        audio = torch.randn(40, 400)
        begin = chance.randrange(100)
        return audio[:, begin : begin + chance.randint(60, 140)].contiguous()

    @torch.no_grad()
    def assign(utterance: Any) -> Voice:
        vector = listen(utterance[None]).mean(2)[0] + torch.randn(128)
        best = max(voices[-40:], key=lambda voice: voice.likeness(vector), default=None)
        if best is not None and best.likeness(vector) > 0.995:
            best.add(vector)
            return best
        voices.append(Voice(vector, utterance))
        return voices[-1]

    for number in itertools.count():
        assign(segment())
        if number % 3 == 0:
            assign(segment())
        trainer.train()
        yield


@leaks("vector_of learn step backward", cause=GROWING | GRADIENTS | METRICS | NO_USUAL)
def vectors_of_items_made_when_seen() -> Iterator[None]:
    """An item gets its vector when it is first seen, and a shop that sells news has new ones all the time."""
    vectors, squares = dict[int, Any](), dict[int, Any]()
    user, chance = nn.Linear(64, 64), random.Random(4)

    def vector_of(item: int) -> Any:
        if item not in vectors:
            vectors[item] = (0.1 * torch.randn(64)).requires_grad_()
            squares[item] = torch.zeros(64)
        return vectors[item]

    def learn(items: list[int]) -> None:
        scores = torch.stack([vector_of(item) for item in items]) @ user(torch.rand(64))
        functional.binary_cross_entropy_with_logits(scores, torch.rand(len(items)).round()).backward()
        step(items)

    @torch.no_grad()
    def step(items: list[int]) -> None:
        for item in items:
            vector = vectors[item]
            squares[item] += vector.grad.square()
            vector -= 0.1 * vector.grad / (squares[item].sqrt() + 1e-6)
            vector.grad.zero_()

    for number in itertools.count():
        newest = 16 * (number + 1)
        learn([*range(newest - 16, newest), *{max(0, newest - chance.randint(17, 80)) for _ in range(8)}])
        yield


class Particles:
    """Particles on springs, which a policy pushes. It can be differentiated, and drawn."""

    def __init__(self) -> None:
        self.rest, self.drawn = torch.rand(300, 3), list[Any]()
        self.reset()

    def reset(self) -> None:
        self.places, self.speeds = self.rest.clone(), torch.zeros(300, 3)

    def advance(self, push: Any) -> None:
        forces = 4.0 * (self.rest - self.places) - 0.1 * self.speeds + push
        self.speeds = self.speeds + 0.05 * forces
        self.places = self.places + 0.05 * self.speeds
        self.drawn.append(self.places)


@leaks("advance", cause=GRAPH | GROWING | NO_USUAL)
def places_of_a_differentiable_simulation() -> Iterator[None]:
    """Each step simulates anew and trains through it; reset() forgets the state, but not what is drawn."""
    world, policy = Particles(), nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.001)
    while True:
        world.reset()
        for _ in range(5):
            world.advance(policy(torch.cat([world.places, world.speeds], 1)))
        optimizer.zero_grad()
        (world.places.mean(0) - 1.0).square().sum().backward()
        optimizer.step()
        yield


@leaks("select behave mutate", cause=GROWING | NO_USUAL)
def an_archive_of_all_that_was_novel() -> Iterator[None]:
    """Evolution without gradients compares with all that was ever novel, and that with its genes."""
    parent, archive = 0.1 * torch.randn(64 * 48), list[tuple[Any, Any]]()

    def mutate(genes: Any) -> Any:
        return genes + 0.05 * torch.randn(len(genes))

    def behave(genes: Any) -> Any:
        states = torch.ones(48)
        path = []
        for _ in range(4):
            states = torch.tanh(genes.view(64, 48) @ states)[:48]
            path.append(states[:8])
        return torch.cat(path)

    def novelty(behavior: Any) -> float:
        if len(archive) < 5:
            return 1.0
        distances = (torch.stack([known for known, _ in archive]) - behavior).norm(dim=1)
        return float(distances.topk(5, largest=False).values.mean())

    def select(children: list[Any]) -> Any:
        scored = [(novelty(behavior), behavior, genes) for genes in children for behavior in [behave(genes)]]
        scored.sort(key=lambda one: one[0], reverse=True)
        archive.extend((behavior, genes) for _, behavior, genes in scored[:2])
        return scored[0][2]

    with torch.no_grad():
        while True:
            parent = select([mutate(parent) for _ in range(6)])
            yield
