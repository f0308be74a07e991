"""Real jobs that run out of a GPU's memory. What helps was written down before any of them was diagnosed.

Each runs on the CPU, and its allocations then go through the model of the GPU's allocator (gpu_snapshot.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.truth.gpu_snapshot import Gpu

MIB = 1 << 20


@dataclass(frozen=True)
class FailingJob:
    """helps: names of the code blocks of the advice; the first advice is one of them. never: it misleads."""

    name: str
    about: str
    job: Callable[[], None]
    gpu: Gpu
    helps: frozenset[str]
    never: frozenset[str]


FAILING: dict[str, FailingJob] = {}


def failing(gpu: Gpu, helps: str, never: str = "") -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(job: Callable[[], None]) -> Callable[[], None]:
        if job.__name__ in FAILING:
            raise ValueError(f"there are two jobs {job.__name__}")
        about = (job.__doc__ or "").split("\n")[0]
        FAILING[job.__name__] = FailingJob(
            job.__name__, about, job, gpu, frozenset(helps.split()), frozenset(never.split())
        )
        return job

    return register


class Block(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attends, self.joins = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        rows, length, width = x.shape
        q, k, v = self.attends(self.before(x)).view(rows, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attended = (
            functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, length, width)
        )
        x = x + self.joins(attended)
        return x + self.down(functional.gelu(self.up(self.after(x))))


class Language(nn.Module):
    def __init__(self, blocks: int = 4, *, recompute: bool = False) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 64), nn.Linear(64, 256)
        self.blocks, self.recompute = nn.ModuleList(Block() for _ in range(blocks)), recompute

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def texts(rows: int, length: int = 64) -> Any:
    return torch.randint(0, 256, (rows, length))


def loss_of(model: nn.Module, tokens: Any) -> Any:
    return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


BATCH = "checkpoint accumulate precision"
LARGE = "others expandable inference"
