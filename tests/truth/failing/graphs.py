"""Networks on graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import LARGE, MIB, failing
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(1200 * MIB, scale=64), "giant", f"shard checkpoint accumulate {LARGE}")
def an_adjacency_matrix_made_dense() -> None:
    """A citation graph's adjacency matrix, normalized as in the paper, has a number for every two nodes."""
    nodes, edges = 1200, torch.randint(0, 1200, (2, 6000))
    features, labels = torch.randn(nodes, 32), torch.randint(0, 7, (nodes,))
    adjacency = torch.zeros(nodes, nodes)
    adjacency[edges[0], edges[1]] = 1.0
    adjacency += torch.eye(nodes)
    degree = torch.diag(adjacency.sum(1).rsqrt())
    adjacency = degree @ adjacency @ degree

    first, second = nn.Linear(32, 16), nn.Linear(16, 7)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        hidden = torch.relu(adjacency @ first(features))
        loss = functional.cross_entropy(adjacency @ second(hidden), labels)
        loss.backward()
        optimizer.step()


@failing(
    Gpu(600 * MIB, scale=16),
    "graph",
    "shard checkpoint others expandable giant inference accumulate",
)
def memory_of_nodes_through_a_day() -> None:
    """A temporal graph network retains all graphs; its nodes' memory has those of earlier batches."""
    update, score = nn.GRUCell(128, 64), nn.Linear(128, 1)
    optimizer = torch.optim.Adam([*update.parameters(), *score.parameters()])
    for _ in range(2):
        memory = torch.zeros(4000, 64)
        optimizer.zero_grad()
        for _ in range(12):
            sources, targets = torch.randint(0, 4000, (2, 3000))
            seen = torch.cat([memory[sources], memory[targets]], 1)
            meets = functional.binary_cross_entropy_with_logits(score(seen)[:, 0], torch.ones(3000))
            meets.backward(retain_graph=True)
            memory = memory.index_copy(0, sources, update(seen, memory[sources]))
        optimizer.step()


# Whether the gradient has to reach the first hour is not in the recording: cutting it is accepted, and so is
# recomputing what is needed for it. That a backward pass would follow is not in it either, so "inference" is
# not in never.
@failing(
    Gpu(1100 * MIB, scale=16),
    "checkpoint precision accumulate graph",
    "shard others expandable pad giant",
)
def traffic_of_a_city_hour_by_hour() -> None:
    """A recurrent graph network adds up the errors of all hours, and calls backward at the end."""
    sensors, width = 400, 32
    begins, ends = torch.randint(0, sensors, (2, 6000))
    gates, candidate = nn.Linear(width + 4, 2 * width), nn.Linear(width + 4, width)
    last = nn.Linear(width, 1)
    weights = [*gates.parameters(), *candidate.parameters(), *last.parameters()]
    optimizer = torch.optim.Adam(weights)

    def spread(layer: Any, x: Any) -> Any:
        return torch.zeros(sensors, x.shape[1]).index_add(0, ends, x[begins]) @ layer.weight.t() + layer.bias

    for _ in range(2):
        hidden, error = torch.zeros(sensors, width), torch.zeros(())
        for _ in range(48):
            seen, wanted = torch.rand(sensors, 4), torch.rand(sensors, 1)
            update, reset = torch.sigmoid(spread(gates, torch.cat([seen, hidden], 1))).chunk(2, 1)
            proposed = torch.tanh(spread(candidate, torch.cat([seen, reset * hidden], 1)))
            hidden = update * hidden + (1 - update) * proposed
            error = error + (last(hidden) - wanted).square().mean()
        optimizer.zero_grad()
        (error / 48).backward()
        optimizer.step()


@failing(
    Gpu(1500 * MIB, scale=64), "shard", "checkpoint accumulate expandable others giant inference set_to_none"
)
def entities_of_a_knowledge_graph_with_dense_gradients() -> None:
    """The first backward pass makes a gradient for each row of a large embedding."""
    entities, relations = nn.Embedding(40_000, 64), nn.Embedding(200, 64)
    optimizer = torch.optim.Adam([*entities.parameters(), *relations.parameters()])
    for _ in range(3):
        heads, tails, wrong = torch.randint(0, 40_000, (3, 512))
        kinds = relations(torch.randint(0, 200, (512,)))
        near = (entities(heads) + kinds - entities(tails)).norm(dim=1)
        far = (entities(heads) + kinds - entities(wrong)).norm(dim=1)
        loss = functional.relu(1 + near - far).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
