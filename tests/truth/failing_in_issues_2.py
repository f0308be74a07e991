"""More jobs that run out of memory as issues of projects on GitHub tell it (see failing_in_issues.py)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, Block, Language, failing, loss_of, texts
from tests.truth.failing_in_issues import convolution
from tests.truth.gpu_snapshot import Gpu


@failing(
    Gpu(350 * MIB, scale=16),
    "other hooks inference",
    "shard others expandable pad giant checkpoint accumulate larger cache",
)
def answers_gathered_for_the_metric() -> None:
    """A trainer joins the logits of the whole evaluation on the GPU before its metric looks at them."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, texts(8)).backward()
        optimizer.step()
    model.eval()
    gathered = None
    with torch.no_grad():
        for _ in range(48):
            logits = model(texts(8))
            gathered = logits if gathered is None else torch.cat([gathered, logits])
    assert gathered is not None
    gathered.argmax(2).unique()


@failing(
    Gpu(1000 * MIB, scale=16),
    "inference attention giant",
    "shard others expandable checkpoint accumulate graph cache larger",
)
def a_photo_larger_than_the_test_set() -> None:
    """A transformer attends from each pixel to a grid of the whole picture, and one photo is large."""

    class Restores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.begin, self.end = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 12, 3, padding=1)
            self.asks = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
            self.answers = nn.ModuleList(nn.Linear(32, 64) for _ in range(3))

        def forward(self, picture: Any) -> Any:
            x = self.begin(picture)
            for asks, answers in zip(self.asks, self.answers, strict=True):
                pixels = x.flatten(2).transpose(1, 2)
                grid = functional.avg_pool2d(x, 4).flatten(2).transpose(1, 2)
                keys, values = answers(grid).chunk(2, -1)
                weights = torch.softmax(asks(pixels) @ keys.transpose(1, 2) / 6, -1)
                x = x + (weights @ values).transpose(1, 2).view_as(x)
            return functional.pixel_shuffle(self.end(x), 2)

    model = Restores().eval()
    with torch.no_grad():
        for height, width in ((48, 48), (64, 48), (64, 64), (96, 144)):
            model(torch.rand(1, 3, height, width)).clamp(0, 1)


@failing(
    Gpu(360 * MIB, scale=128),
    "inference graph",
    "shard others expandable pad giant checkpoint accumulate",
)
def a_story_told_by_a_service() -> None:
    """A service samples tokens with keys and values of earlier ones, in eval mode but with autograd on."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attends = nn.LayerNorm(64), nn.Linear(64, 192)
            self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x: Any, past: Any) -> tuple[Any, Any]:
            q, k, v = self.attends(self.norm(x)).chunk(3, -1)
            if past is not None:
                k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
            x = x + torch.softmax(q @ k.transpose(1, 2) / 8, -1) @ v
            return x + self.down(functional.gelu(self.up(x))), (k, v)

    embed, layers, head = nn.Embedding(256, 64), nn.ModuleList(Layer() for _ in range(2)), nn.Linear(64, 256)
    for module in (embed, layers, head):
        module.eval()

    def tell(rows: int, length: int) -> Any:
        token, told, past = torch.zeros(rows, 1, dtype=torch.long), [], [None] * len(layers)
        for _ in range(length):
            x = embed(token)
            for i, layer in enumerate(layers):
                x, past[i] = layer(x, past[i])
            token = torch.multinomial(torch.softmax(head(x[:, -1]), -1), 1)
            told.append(token)
        return torch.cat(told, 1)

    for length in (12, 20, 60):
        tell(4, length)


def _saved_run(model: nn.Module) -> io.BytesIO:
    """The file of an earlier run: its weights and the state of Adam. Made of NumPy's arrays, so that the
    allocator sees only what is read from it."""

    def array(shape: Any) -> Any:
        return torch.from_numpy(np.zeros(shape, np.float32))

    weights = {name: array(weight.shape) for name, weight in model.named_parameters()}
    state = {
        i: {"step": array(()) + 1, "exp_avg": array(weight.shape), "exp_avg_sq": array(weight.shape)}
        for i, weight in enumerate(weights.values())
    }
    groups = torch.optim.AdamW(model.parameters()).state_dict()["param_groups"]
    file = io.BytesIO()
    torch.save({"model": weights, "optimizer": {"state": state, "param_groups": groups}}, file)
    file.seek(0)
    return file


@failing(
    Gpu(1850 * MIB, scale=64),
    "load",
    "others expandable pad giant inference checkpoint accumulate",
)
def a_run_taken_up_again_after_a_break() -> None:
    """A training that fits from scratch is resumed, and what was read from the file stays on the GPU."""
    model = nn.Sequential(*(Block(256) for _ in range(2)))
    optimizer = torch.optim.AdamW(model.parameters())
    saved = torch.load(_saved_run(model))
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 16, 256)).square().mean().backward()
        optimizer.step()


@failing(
    Gpu(450 * MIB, scale=16),
    "graph inference hooks other",
    "shard others expandable pad giant checkpoint accumulate larger cache",
)
def vectors_of_pictures_joined_one_by_one() -> None:
    """A script joins the vector of each picture with those before, in eval mode but with autograd on."""
    backbone = nn.Sequential(
        convolution(3, 16, stride=2),
        *(convolution(16, 16) for _ in range(3)),
        convolution(16, 32, stride=2),
        *(convolution(32, 32) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ).eval()
    found = backbone(torch.randn(1, 3, 64, 64))
    for _ in range(60):
        found = torch.cat((found, backbone(torch.randn(1, 3, 64, 64))))


@failing(
    Gpu(1200 * MIB, scale=64),
    "models before",
    "shard others expandable pad giant checkpoint accumulate precision graph",
)
def adapters_merged_in_the_next_cell() -> None:
    """A notebook trains adapters, and its next cell loads the model once more to merge them into it."""

    class Adapted(nn.Module):
        def __init__(self, layer: nn.Linear) -> None:
            super().__init__()
            self.layer, self.down = layer, nn.Linear(layer.in_features, 4, bias=False)
            self.up = nn.Linear(4, layer.out_features, bias=False)

        def forward(self, x: Any) -> Any:
            return self.layer(x) + self.up(self.down(x))

    notebook: dict[str, Any] = {}

    def train() -> None:
        model = nn.Sequential(*(Block(256) for _ in range(4))).requires_grad_(False)
        for block in model:
            block.up, block.down = Adapted(block.up), Adapted(block.down)
        optimizer = torch.optim.AdamW(weight for weight in model.parameters() if weight.requires_grad)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(2, 16, 256)).square().mean().backward()
            optimizer.step()
        notebook.update(model=model, optimizer=optimizer)

    @torch.no_grad()
    def merge() -> None:
        merged = nn.Sequential(*(Block(256) for _ in range(4))).requires_grad_(False)
        for block, trained in zip(merged, notebook["model"], strict=True):
            for name in ("up", "down"):
                adapted = getattr(trained, name)
                getattr(block, name).weight.add_(adapted.up.weight @ adapted.down.weight)
        notebook["merged"] = merged

    train()
    merge()


@failing(
    Gpu(450 * MIB, scale=16),
    "inference inputs giant",
    "shard others expandable pad checkpoint accumulate graph cache larger",
)
def random_kernels_over_all_series() -> None:
    """A notebook convolves its whole training set with random kernels, in one call."""
    kernels = [torch.randn(32, 1, 9) for _ in range(12)]

    def transform(series: Any) -> Any:
        found = []
        for i, kernel in enumerate(kernels):
            filtered = functional.conv1d(series, kernel, padding=4 << i % 4, dilation=1 << i % 4)
            found += [filtered.amax(2), (filtered > 0).float().mean(2)]
        return torch.cat(found, 1)

    training = torch.randn(900, 1, 150)
    with torch.no_grad():
        transform(training)
