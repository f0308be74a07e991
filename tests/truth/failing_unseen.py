"""Ten jobs that run out of memory, written after those of failing_again.py were mended, and diagnosed once.

What helps was tried as there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.truth.failing import BATCH, MIB, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


@failing(
    Gpu(1250 * MIB, scale=16),
    "attention accumulate precision",
    "shard others giant inference graph expandable",
)
def attention_that_returns_its_weights() -> None:
    """nn.MultiheadAttention returns its weights, which no fused kernel does; texts get longer."""
    layers = nn.ModuleList(nn.MultiheadAttention(64, 4, batch_first=True) for _ in range(3))
    head = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW([*layers.parameters(), *head.parameters()])
    for length in (64, 64, 384):
        x = torch.randn(8, length, 64)
        optimizer.zero_grad()
        hidden = x
        for layer in layers:
            hidden = hidden + layer(hidden, hidden, hidden)[0]
        (head(hidden) - x).square().mean().backward()
        optimizer.step()


@failing(
    Gpu(500 * MIB, scale=64),
    "shard",
    "checkpoint accumulate precision others expandable giant graph inference set_to_none",
)
def layers_thawed_in_the_second_epoch() -> None:
    """First only the head is trained. Then all layers get gradients and Adam's state."""
    body, head = nn.Sequential(*(nn.Linear(448, 448) for _ in range(3))), nn.Linear(448, 10)

    def epoch(optimizer: Any) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            head(body(torch.randn(8, 448))).square().mean().backward()
            optimizer.step()

    body.requires_grad_(False)
    epoch(torch.optim.Adam(head.parameters()))
    body.requires_grad_(True)
    epoch(torch.optim.Adam([*body.parameters(), *head.parameters()]))


@failing(
    Gpu(300 * MIB, scale=16), "inference graph hooks", "shard checkpoint accumulate others expandable giant"
)
def passes_with_dropout_to_estimate_doubt() -> None:
    """After training, many passes with dropout are collected to get their spread, with autograd on."""
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 16))
    optimizer = torch.optim.Adam(model.parameters())

    def spread(x: Any) -> Any:
        return torch.stack([model(x) for _ in range(40)]).std(0)

    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(128, 64)).square().mean().backward()
        optimizer.step()
    spread(torch.randn(128, 64))


@failing(
    Gpu(300 * MIB, scale=16),
    "inputs before other",
    "shard checkpoint precision others expandable giant graph",
)
def all_batches_put_on_the_gpu_first() -> None:
    """To go faster, all batches of the loader are collected on the GPU before the epoch."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def collect() -> list[Any]:
        return [torch.randn(256, 256) for _ in range(64)]

    for batch in collect():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


@failing(Gpu(560 * MIB, scale=32), BATCH, "shard others expandable giant inference")
def penalty_on_gradients_of_large_batches() -> None:
    """A critic's loss has the norm of its gradients, so a second backward pass goes through the first."""
    critic = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(critic.parameters())
    for rows in (128, 128, 1500):
        x = torch.randn(rows, 64, requires_grad=True)
        score = critic(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        optimizer.zero_grad()
        (score.mean() + (slope.norm(dim=1) - 1).square().mean()).backward()
        optimizer.step()


@failing(Gpu(1500 * MIB, scale=32), "accumulate precision", "shard others giant inference graph expandable")
def volumes_of_a_scanner() -> None:
    """Convolutions in three dimensions keep their activations, and volumes are large."""
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1),
        nn.InstanceNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 8, 3, padding=1),
        nn.InstanceNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 2, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for rows in (1, 1, 6):
        optimizer.zero_grad()
        model(torch.randn(rows, 1, 32, 32, 32)).square().mean().backward()
        optimizer.step()


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


@failing(
    Gpu(400 * MIB, scale=16),
    "inputs giant before other",
    "shard checkpoint accumulate precision others graph",
)
def a_data_set_standardized_on_the_gpu() -> None:
    """The whole data set is on the GPU, and each step of standardizing it makes another one."""

    def standardized(data: Any) -> Any:
        return ((data - data.mean(0)) / data.std(0)).clamp(-5, 5)

    data = standardized(torch.randn(20_000, 128))
    model = nn.Linear(128, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(data[256 * step : 256 * step + 256]).square().mean().backward()
        optimizer.step()


@failing(Gpu(800 * MIB, scale=32), "accumulate precision", "shard others expandable giant inference graph")
def candidates_of_one_step_checkpointed() -> None:
    """A reward is given to sixteen answers of each question at once; blocks are checkpointed already."""
    model = Language(4, recompute=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for answers in (2, 2, 16):
        optimizer.zero_grad()
        loss_of(model, texts(6).repeat_interleave(answers, 0)).backward()
        optimizer.step()


@failing(Gpu(420 * MIB, scale=32), "inference", "shard checkpoint accumulate others giant graph")
def embeddings_of_a_library() -> None:
    """A service embeds texts in batches that its callers choose, and one sends very many."""

    @torch.no_grad()
    def embed(model: nn.Module, rows: int) -> Any:
        return model(texts(rows)).mean(1)

    model = Language(3).eval()
    for rows in (2, 8, 4, 16, 8, 120):
        embed(model, rows)
