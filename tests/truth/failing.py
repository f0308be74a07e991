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


STATE = "shard fused_optimizer"
BATCH = "checkpoint accumulate precision"


@failing(Gpu(600 * MIB, scale=32), BATCH, "shard others expandable pad giant inference")
def batch_too_large() -> None:
    """The first forward pass of a transformer does not fit."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, texts(64)).backward()
        optimizer.step()


@failing(Gpu(1400 * MIB, scale=32), f"expandable {BATCH}", "shard others giant inference")
def longer_batch_in_a_later_step() -> None:
    """Three steps fit; the fourth has longer texts. With expandable segments, it all fits."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, texts(16, 128 if step == 3 else 64)).backward()
        optimizer.step()


@failing(Gpu(900 * MIB, scale=64), BATCH, "shard others giant inference")
def images_too_large() -> None:
    """Activations of convolutions do not fit."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        images = torch.randn(2 + 4 * step, 3, 64, 64)
        optimizer.zero_grad()
        functional.cross_entropy(model(images), torch.randint(0, 10, (len(images),))).backward()
        optimizer.step()


def _wide(layers: int = 6) -> nn.Module:
    return nn.Sequential(*(nn.Linear(512, 512) for _ in range(layers)))


@failing(Gpu(1000 * MIB, scale=64), "shard", "checkpoint accumulate others expandable giant inference")
def state_of_adam() -> None:
    """Weights and gradients fit; the first optimizer step makes state."""
    model = _wide()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 512)).sum().backward()
    optimizer.step()


@failing(Gpu(300 * MIB, scale=64), "shard", "checkpoint accumulate others expandable giant inference")
def weights_too_large() -> None:
    """The model alone does not fit."""
    _wide()


@failing(Gpu(400 * MIB, scale=8), "giant", "shard checkpoint accumulate others")
def distances_of_all_pairs() -> None:
    """A loss broadcasts [N, 1] with [N]."""
    model = nn.Linear(64, 1)

    def pairwise(found: Any, wanted: Any) -> Any:
        return (found - wanted).square().mean()

    pairwise(model(torch.randn(6000, 64)), torch.randn(6000)).backward()


@failing(Gpu(420 * MIB, scale=8), "graph", "shard others expandable giant")
def losses_kept() -> None:
    """A list keeps the loss of each step with its graph."""
    model, kept = Language(2), []
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(24):
        train, valid = loss_of(model, texts(4)), loss_of(model, texts(8))
        optimizer.zero_grad()
        train.backward()
        optimizer.step()
        kept.append(valid)


@failing(Gpu(700 * MIB, scale=32), "graph hooks inference other", "shard others expandable giant")
def evaluation_with_a_graph() -> None:
    """After some steps, an evaluation keeps its predictions, with autograd on."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, texts(4)).backward()
        optimizer.step()
    predictions = []
    for _ in range(32):
        predictions.append(model(texts(4)))


@failing(Gpu(400 * MIB, scale=64), "inference", "shard checkpoint others expandable giant")
def inference_of_a_large_batch() -> None:
    """A batch of texts without gradients does not fit."""
    model = Language(4).eval()
    with torch.no_grad():
        for rows in (4, 8, 64):
            model(texts(rows))


@failing(Gpu(760 * MIB, scale=64), "expandable", "shard checkpoint others giant inference")
def sizes_that_differ() -> None:
    """Texts of many lengths, and a small result of each is kept between them."""
    model, kept = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)), []
    with torch.no_grad():
        for step in range(40):
            rows = 100 + 53 * step
            hidden = model[0](torch.randn(rows, 64))
            kept.append(torch.randn(6, 1024) + step)
            del hidden
        model[0](torch.randn(4700, 64))


@failing(
    Gpu(600 * MIB, free_bytes=4096 * MIB, scale=32), "others", "shard checkpoint accumulate expandable giant"
)
def limited_process() -> None:
    """set_per_process_memory_fraction leaves a part of the GPU."""
    batch_too_large()


@failing(Gpu(1100 * MIB, scale=16), BATCH, "shard others expandable giant inference graph")
def losses_summed_before_backward() -> None:
    """Sixteen micro-batches are added up, and backward is called once."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(16):
            total = total + loss_of(model, texts(16))
        total.backward()
        optimizer.step()


@failing(Gpu(900 * MIB, scale=64), "shard fused_optimizer", "checkpoint accumulate others giant inference")
def updates_of_all_weights_at_once() -> None:
    """foreach=True makes temporaries as large as all weights."""
    model = _wide(4)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 512)).sum().backward()
        optimizer.step()


@failing(Gpu(1500 * MIB, scale=16), "attention giant checkpoint", "shard others expandable")
def attention_without_a_fused_kernel() -> None:
    """Scores of 1,024 by 1,024 are kept in each layer."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(64, 192)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).chunk(3, -1)
            return x + torch.softmax(q @ k.transpose(1, 2) / 8, -1) @ v

    model = nn.Sequential(*(Attention() for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 1024, 64)).square().mean().backward()
        optimizer.step()


@failing(Gpu(600 * MIB, scale=32, expandable=True), BATCH, "shard others expandable pad giant inference")
def batch_too_large_with_expandable_segments() -> None:
    """Segments are expandable already, and it is too little anyway."""
    batch_too_large()


@failing(Gpu(380 * MIB, scale=64), "cache larger", "shard checkpoint others giant")
def cache_of_keys() -> None:
    """A generation concatenates its keys and values with each token."""
    model = Language(2).eval()
    keys = torch.zeros(4, 0, 64)
    with torch.no_grad():
        for _ in range(400):
            model(texts(4, 8))
            keys = torch.cat([keys, torch.randn(4, 8, 64)], 1)


@failing(Gpu(1100 * MIB, scale=32), "set_to_none", "shard others expandable giant inference")
def gradients_kept_through_forward() -> None:
    """zero_grad comes right before backward, so old gradients wait through the forward pass."""
    model = nn.Sequential(nn.Linear(512, 512), *(Block(512) for _ in range(1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.randn(2 + 6 * step, 64, 512)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(560 * MIB, scale=32), BATCH, "shard others expandable giant inference")
def recomputed_and_still_too_large() -> None:
    """Blocks are checkpointed already."""
    model = Language(6, recompute=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, texts(96)).backward()
        optimizer.step()
