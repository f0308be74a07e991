"""Ten more jobs that run out of memory. They and those of failing_at_last.py were written without the rules.

Before the first diagnosis each was run with its fixes, too: what is said to help made it fit.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


class Adapted(nn.Module):
    """A frozen layer with a trained update of low rank."""

    def __init__(self, frozen: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return self.frozen(x) + self.up(self.down(x))


@failing(Gpu(1400 * MIB, scale=16), "accumulate giant", "shard others expandable inference graph")
def adapters_with_a_large_vocabulary() -> None:
    """Only adapters of low rank are trained, but the scores of all words are as large as ever."""
    words, blocks, head = nn.Embedding(12_000, 64), [Block(), Block()], nn.Linear(64, 12_000, bias=False)
    for part in (words, *blocks, head):
        part.requires_grad_(False)
    for block in blocks:
        block.attends, block.joins = Adapted(block.attends), Adapted(block.joins)
    trained = [p for block in blocks for p in block.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    for rows in (2, 2, 10):
        tokens = torch.randint(0, 12_000, (rows, 64))
        x = words(tokens)
        for block in blocks:
            x = block(x)
        scores = head(x)[:, :-1].contiguous()
        loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Attention(nn.Module):
    """Written out: scores, mask, softmax, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(64, 192), nn.Linear(64, 64), nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * (width // 4) ** -0.5
        later = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        weights = self.drop(torch.softmax(scores.masked_fill(later, float("-inf")), -1))
        return x + self.out((weights @ v).transpose(1, 2).reshape(rows, length, width))


@failing(Gpu(1200 * MIB, scale=16), "attention checkpoint", "shard others expandable inference graph")
def one_long_text_with_written_attention() -> None:
    """A single text is four times as long as those before; a smaller batch does not exist."""
    words, head = nn.Embedding(256, 64), nn.Linear(64, 256)
    model = nn.Sequential(words, *(Attention() for _ in range(4)), head)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in (256, 256, 1024):
        optimizer.zero_grad()
        loss_of(model, texts(1, length)).backward()
        optimizer.step()


@failing(Gpu(500 * MIB, scale=32), BATCH, "shard others expandable giant inference graph")
def accumulated_as_it_should_be() -> None:
    """Gradients of four micro-batches are accumulated, and a micro-batch with long texts does not fit."""
    model = Language(3)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(12):
        (loss_of(model, texts(8, 128 if step == 9 else 48)) / 4).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@failing(
    Gpu(640 * MIB, scale=64),
    "load before other",
    "shard checkpoint accumulate precision others expandable giant graph",
)
def a_checkpoint_loaded_beside_the_model() -> None:
    """A checkpoint of weights and momenta is loaded onto the GPU, beside the model, and stays there."""
    model = nn.Sequential(*(nn.Linear(384, 384) for _ in range(3)))
    optimizer = torch.optim.Adam(model.parameters())
    file, weights = io.BytesIO(), model.state_dict()
    momenta = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    torch.save({"model": weights, "momenta": momenta}, file)
    del momenta
    file.seek(0)
    saved = torch.load(file)
    model.load_state_dict(saved["model"])
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(16, 384)).square().mean().backward()
        optimizer.step()
    assert saved


@failing(Gpu(450 * MIB, scale=32), "inference graph", "shard checkpoint accumulate others expandable giant")
def evaluation_that_forgot_no_grad() -> None:
    """Batches of an evaluation are four times those of training, as usual, but it records a graph."""

    def train_step(model: nn.Module, optimizer: Any) -> None:
        optimizer.zero_grad()
        loss_of(model, texts(8)).backward()
        optimizer.step()

    def evaluate(model: nn.Module) -> float:
        model.eval()
        return sum(loss_of(model, texts(32)).item() for _ in range(2)) / 2

    model = Language(3)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        train_step(model, optimizer)
    evaluate(model)


@failing(Gpu(790 * MIB, scale=32), "expandable empty hooks", "shard checkpoint accumulate others giant graph")
def results_that_split_cached_blocks() -> None:
    """An evaluation's results split the blocks that training left, and its last batch needs a whole one."""
    model = nn.Sequential(nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def evaluate() -> list[Any]:
        with torch.no_grad():
            return [model(torch.randn(rows, 64)) for rows in (*range(380, 480, 10), 1100)]

    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(480, 64)).square().mean().backward()
        optimizer.step()
    evaluate()


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, 32, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)
        self.middle = nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: Any) -> Any:
        skip = functional.silu(self.enter(x))
        inner = functional.silu(self.middle(functional.avg_pool2d(skip, 2)))
        return self.leave(torch.cat([skip, functional.interpolate(inner, scale_factor=2)], 1))


@failing(Gpu(500 * MIB, scale=32), "inference", "shard checkpoint accumulate others expandable giant graph")
def images_of_a_sampler_decoded_at_once() -> None:
    """A diffusion sampler's steps fit; its decoder makes 64 times as many pixels of all images at once."""
    denoiser = Denoiser()
    decoder = nn.Sequential(
        nn.Conv2d(4, 32, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=8), nn.Conv2d(32, 3, 3, padding=1)
    )

    def sample() -> Any:
        x = torch.randn(8, 4, 16, 16)
        for _ in range(4):
            guided, free = denoiser(torch.cat([x, x])).chunk(2)
            x = x - 0.1 * (free + 3 * (guided - free))
        return x

    with torch.inference_mode():
        decoder(sample())


@failing(Gpu(500 * MIB, scale=8), "giant", "shard checkpoint accumulate others expandable graph precision")
def boxes_of_a_crowd() -> None:
    """A detector compares each anchor with each box; one image has five hundred boxes."""

    def overlaps(anchors: Any, boxes: Any) -> Any:
        low = torch.maximum(anchors[:, None, :2], boxes[None, :, :2])
        high = torch.minimum(anchors[:, None, 2:], boxes[None, :, 2:])
        return (high - low).clamp(min=0).prod(-1)

    body, head = nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.Conv2d(16, 4, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    anchors = torch.rand(12_000, 4)
    for boxes in (6, 12, 500):
        optimizer.zero_grad()
        found = head(torch.relu(body(torch.randn(1, 3, 128, 128)))).flatten(2)
        best = overlaps(anchors, torch.rand(boxes, 4)).max(1).values
        (found.mean() * best.mean()).backward()
        optimizer.step()


@failing(
    Gpu(700 * MIB, scale=8),
    "giant inference",
    "shard checkpoint accumulate others expandable graph precision",
)
def neighbours_of_all_features() -> None:
    """After training, an evaluation by nearest neighbours subtracts all features from all: [N, N, width]."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(256, 64)).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        features = model(torch.randn(800, 64))
        apart = (features[:, None] - features[None]).square().sum(-1)
        apart.topk(5, largest=False)


@failing(Gpu(300 * MIB, scale=32), "graph inference", "shard checkpoint accumulate others expandable giant")
def a_state_carried_through_a_stream() -> None:
    """A recurrent model reads a stream in parts; its state, and so the graph of all parts, is carried on."""
    model, head, state = nn.GRU(32, 128, batch_first=True), nn.Linear(128, 8), None
    right = 0
    for _ in range(60):
        found, state = model(torch.randn(8, 16, 32), state)
        right += int((head(found).argmax(-1) == 0).sum())
