"""Jobs that run out of a real GPU's memory, of which each gets a few GiB. What helps first was written down
before any of them was diagnosed, in the names of the code blocks of the advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests.truth.failing.job import BATCH
from tests.truth.gpu.parts import Language, Train, of_words, perceptron, trainer, words

GIB = 1 << 30


@dataclass(frozen=True)
class FailingOnGpu:
    """helps: the first advice is one of them. never: it misleads."""

    name: str
    about: str
    job: Callable[[], Any]
    limit_bytes: int
    helps: frozenset[str]
    never: frozenset[str]


FAILING: dict[str, FailingOnGpu] = {}


def failing(gib: float, helps: str, never: str = "") -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(job: Callable[[], Any]) -> Callable[[], Any]:
        FAILING[job.__name__] = FailingOnGpu(
            job.__name__,
            (job.__doc__ or "").split("\n")[0],
            job,
            int(gib * GIB),
            frozenset(helps.split()),
            frozenset(never.split()),
        )
        return job

    return register


def _language(depth: int = 8) -> nn.Module:
    return Language(8_192, 512, depth, 8).cuda()


def _train(depth: int = 8) -> Train:
    return trainer(_language(depth), of_words)


@failing(4, BATCH, "shard others expandable giant inference")
def first_batch_too_large() -> None:
    """The activations of the first batch do not fit."""
    _train()(*words(96, 512, 8_192))


@failing(3, f"expandable {BATCH}", "shard others inference")
def longer_batch_later() -> None:
    """Short texts fit; the fourth batch has long ones."""
    train = _train()
    for length in (128, 128, 128, 900):
        train(*words(48, length, 8_192))


@failing(2, "shard fused_optimizer", "checkpoint accumulate others giant inference")
def state_of_adam() -> None:
    """Weights and gradients fit; the first update makes state."""
    model = perceptron(4_096, 12).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4_096, device="cuda")).sum().backward()
    optimizer.step()


@failing(1, "shard", "checkpoint accumulate others expandable giant inference")
def weights_too_large() -> None:
    """The model alone does not fit."""
    perceptron(4_096, 24).cuda()


@failing(4, "graph", "shard others expandable giant")
def validation_losses_kept() -> None:
    """A list keeps the loss of each validation with its graph."""
    model, kept = _language(4), []
    for _ in range(40):
        inputs, targets = words(16, 256, 8_192)
        kept.append(of_words(model(inputs), targets))


@failing(4, "inference", "shard others expandable giant")
def validation_builds_graphs() -> None:
    """A validation of large batches lacks `no_grad`; the training fits."""
    model = _language()
    train = trainer(model, of_words)
    for _ in range(3):
        train(*words(8, 256, 8_192))
    model.eval()
    model(words(80, 512, 8_192)[0])


@failing(4, "giant", "shard others graph")
def distances_of_all_pairs() -> None:
    """The distances of all pairs of rows are one giant tensor."""
    rows = torch.randn(60_000, 64, device="cuda")
    torch.cdist(rows, rows).min(dim=1)


@failing(3, "attention giant", "shard others graph")
def scores_of_long_texts() -> None:
    """Scores of long texts are written out in float32."""
    q = torch.randn(8, 8, 4_096, 64, device="cuda", requires_grad=True)
    for _ in range(4):
        q = torch.softmax(q @ q.transpose(-1, -2), dim=-1) @ q
    q.sum().backward()


@failing(3, "expandable", "shard checkpoint others inference")
def lengths_that_differ() -> None:
    """Batches of ever other lengths, and a small result of each is kept between them."""
    model, kept = nn.Sequential(nn.Linear(1_024, 4_096), nn.GELU(), nn.Linear(4_096, 1_024)).cuda(), []
    with torch.no_grad():
        for step in range(60):
            hidden: Tensor = model(torch.randn(20_000 + 2_311 * step, 1_024, device="cuda"))
            kept.append(hidden[:3_000].clone())
            del hidden


@failing(2, "models before", "checkpoint accumulate expandable giant")
def second_model_beside_the_first() -> None:
    """A search builds the next model while the one before is still held."""
    held = []
    for _ in range(4):
        model = perceptron(4_096, 8).cuda()
        held.append(model)
        model(torch.randn(64, 4_096, device="cuda")).sum().backward()
