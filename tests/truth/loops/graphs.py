"""Networks on graphs and molecules: edges, messages and embeddings of nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.loops.loop import GRAPH, GROWING, Trainer, healthy, leaks


@leaks("add_edges", cause=GROWING)
def a_graph_that_only_gets_edges() -> Iterator[None]:
    """A sparse matrix of users and items gets what they do next, and nothing is ever too old."""
    trainer, shape = Trainer(), (1_000_000, 64)
    edges = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), shape)

    def add_edges(users: Any, items: Any) -> None:
        nonlocal edges
        new = torch.sparse_coo_tensor(torch.stack([users, items]), torch.ones(len(users)), shape)
        edges = (edges + new).coalesce()

    while True:
        add_edges(torch.randint(1_000_000, (1200,)), torch.randint(64, (1200,)))
        trainer.train(edges.index_select(0, torch.randint(1_000_000, (64,))).to_dense())
        yield


class Convolution(nn.Module):
    """A convolution over a graph."""

    def __init__(self, width: int = 32, out: int = 64) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(width, out), nn.Linear(width, out)

    def forward(self, nodes: Any, adjacency: Any) -> Any:
        return functional.relu(self.own(nodes) + adjacency @ self.others(nodes))


class History:
    """Embeddings of all nodes as they were when they were computed last."""

    def __init__(self, nodes: int, width: int) -> None:
        self.embeddings = torch.zeros(nodes, width)

    def pull(self, nodes: Any) -> Any:
        return self.embeddings[nodes].detach()

    def push(self, nodes: Any, embeddings: Any) -> None:
        self.embeddings[nodes] = embeddings


@leaks("push refresh forward", cause=GRAPH)
def graphs_of_historical_embeddings() -> Iterator[None]:
    """Every second step refreshes embeddings of nodes out of the batch, and pushes them with their graph."""
    features, adjacency = torch.rand(400, 32), (torch.rand(400, 400) < 0.02).float()
    first, second, history = Convolution(), Convolution(64, 7), History(400, 64)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)

    def train(nodes: Any) -> None:
        hidden = torch.cat([first(features[nodes], adjacency[nodes][:, nodes]), history.pull(nodes)])
        links = torch.eye(len(nodes), 2 * len(nodes)) + 0.1
        logits = functional.relu(links @ second.others(hidden)) + second.own(hidden[: len(nodes)])
        optimizer.zero_grad()
        functional.cross_entropy(logits, nodes % 7).backward()
        optimizer.step()

    def refresh(nodes: Any) -> None:
        history.push(nodes, first(features[nodes], adjacency[nodes][:, nodes]))

    for number in itertools.count():
        order = torch.randperm(400)
        train(order[:64])
        if number % 2:
            refresh(order[64:192])
        yield


class Histories:
    """Embeddings of the nodes of each part of a graph, as they were when the part came last."""

    def __init__(self) -> None:
        self.of_part = dict[int, Any]()

    def pull(self) -> Any:
        return torch.cat(list(self.of_part.values())).mean(0) if self.of_part else torch.zeros(64)

    def push(self, part: int, embeddings: Any) -> None:
        self.of_part[part] = embeddings.detach()


@healthy
def embeddings_of_the_parts_of_a_graph() -> Iterator[None]:
    """A graph network has historical embeddings of sixteen parts; one of them is replaced in each step."""
    features, adjacency = torch.rand(640, 32), (torch.rand(640, 640) < 0.02).float()
    first, head, histories = Convolution(), nn.Linear(128, 7), Histories()
    optimizer = torch.optim.Adam([*first.parameters(), *head.parameters()], lr=0.01)
    for number in itertools.count():
        part = number % 16
        nodes = slice(40 * part, 40 * part + 40)
        hidden = first(features[nodes], adjacency[nodes, nodes])
        logits = head(torch.cat([hidden, histories.pull().expand_as(hidden)], 1))
        optimizer.zero_grad()
        functional.cross_entropy(logits, torch.arange(40) % 7).backward()
        optimizer.step()
        histories.push(part, hidden)
        yield
