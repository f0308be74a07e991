"""Users, items and tables of customers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import MIB, failing
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(400 * MIB, scale=8), "giant", "shard checkpoint accumulate others")
def distances_of_all_pairs() -> None:
    """A loss broadcasts [N, 1] with [N]."""
    model = nn.Linear(64, 1)

    def pairwise(found: Any, wanted: Any) -> Any:
        return (found - wanted).square().mean()

    pairwise(model(torch.randn(6000, 64)), torch.randn(6000)).backward()


@failing(Gpu(1000 * MIB, scale=8), "giant", "shard checkpoint accumulate others expandable inference")
def losses_of_customers_by_the_weights_of_all() -> None:
    """Losses are [N, 1] and the weights of customers are [N]: their product is [N, N]."""
    churn = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(churn.parameters())
    for _ in range(2):
        customers, worth = torch.randn(5000, 30), torch.rand(5000)
        left = torch.randint(0, 2, (5000, 1)).float()
        each = functional.binary_cross_entropy_with_logits(churn(customers), left, reduction="none")
        loss = (each * worth).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(900 * MIB, scale=32), "shard", "checkpoint accumulate graph inference others giant expandable")
def more_users_than_a_table_can_hold() -> None:
    """The table of items of a collaborative filter fits, and that of its users does not."""
    items, users = nn.Embedding(10_000, 64), nn.Embedding(120_000, 64)
    optimizer = torch.optim.SGD([*items.parameters(), *users.parameters()], lr=0.1)
    for _ in range(2):
        rated = users(torch.randint(0, 120_000, (256,))) * items(torch.randint(0, 10_000, (256,)))
        functional.mse_loss(rated.sum(1), torch.rand(256)).backward()
        optimizer.step()
        optimizer.zero_grad()


@failing(Gpu(500 * MIB, scale=16), "hooks other inference", "shard checkpoint accumulate others graph")
def all_scores_ranked_at_the_end() -> None:
    """An evaluation keeps the scores of all users and items, and joins and sorts them at the end."""
    users, items = nn.Embedding(400, 32), nn.Embedding(3_000, 32)
    optimizer = torch.optim.SGD([*users.parameters(), *items.parameters()], lr=0.1)

    def evaluate() -> Any:
        with torch.no_grad():
            found = [users(torch.randint(0, 400, (32,))) @ items.weight.T for _ in range(48)]
            return torch.cat(found).argsort(1)

    for _ in range(3):
        optimizer.zero_grad()
        (users(torch.randint(0, 400, (64,))) * items(torch.randint(0, 3_000, (64,)))).sum().backward()
        optimizer.step()
    evaluate()


class Sessions(nn.Module):
    """The next item of a session, of all items of a shop."""

    def __init__(self, items: int = 16_000, width: int = 32) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.read = nn.GRU(width, width, batch_first=True)

    def forward(self, seen: Any) -> Any:
        return self.read(self.items(seen))[0] @ self.items.weight.T


@failing(Gpu(1000 * MIB, scale=8), "accumulate giant", "shard others expandable pad inference")
def next_item_of_a_large_shop() -> None:
    """A loss needs the logits of each item of a shop, at each click."""
    model = Sessions()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for _ in range(2):
        clicks = torch.randint(0, 16_000, (32, 26))
        logits = model(clicks[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), clicks[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
