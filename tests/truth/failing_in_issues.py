"""Jobs that run out of memory as issues of projects on GitHub tell it. What helps was written down first.

Each has the mechanism of such an issue, in code of its own: training, evaluation and inference, and the
scripts and notebooks around them. More are in failing_in_issues_2.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


def convolution(inputs: int, outputs: int, dilation: int = 1, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Streets(nn.Module):
    """Segments a picture at a quarter of its size, with dilated branches, and enlarges the classes."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 16, stride=2), convolution(16, 32, stride=2))
        self.body = nn.Sequential(*(convolution(32, 32) for _ in range(6)))
        self.branches = nn.ModuleList(convolution(32, 32, dilation) for dilation in (1, 2, 4, 8))
        self.head = nn.Conv2d(128, classes, 1)

    def forward(self, pictures: Any) -> Any:
        x = self.body(self.stem(pictures))
        x = torch.cat([branch(x) for branch in self.branches], 1)
        return functional.interpolate(self.head(x), scale_factor=4, mode="bilinear", align_corners=False)


def scenes(rows: int, size: int) -> tuple[Any, Any]:
    return torch.randn(rows, 3, size, size), torch.randint(0, 8, (rows, size, size))


# It fails in the first forward pass. That it trains is not in the recording, so "inference" is not in never.
@failing(Gpu(600 * MIB, scale=8), BATCH, "shard others expandable pad giant")
def street_scenes_with_the_default_batch() -> None:
    """A segmentation starts with the batch size of its authors, who had a larger GPU."""
    model = Streets()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        pictures, classes = scenes(16, 128)
        loss = functional.cross_entropy(model(pictures), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(1000 * MIB, scale=8), "giant checkpoint precision", "shard others expandable pad")
def papers_that_attend_to_all_papers() -> None:
    """Graph attention pairs the features of every node with those of every other, in each of its heads."""

    class Head(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.project, self.score = nn.Linear(inputs, outputs, bias=False), nn.Linear(2 * outputs, 1)

        def forward(self, x: Any, linked: Any) -> Any:
            own = self.project(x)
            count = len(own)
            pairs = torch.cat([own.repeat_interleave(count, 0), own.repeat(count, 1)], 1)
            scores = functional.leaky_relu(self.score(pairs)).view(count, count)
            return torch.softmax(scores.masked_fill(~linked, -1e9), 1) @ own

    nodes = 512
    words, topics = torch.rand(nodes, 64), torch.randint(0, 7, (nodes,))
    linked = (torch.rand(nodes, nodes) < 0.01) | torch.eye(nodes, dtype=torch.bool)
    heads, last = nn.ModuleList(Head(64, 8) for _ in range(8)), nn.Linear(64, 7)
    optimizer = torch.optim.Adam([*heads.parameters(), *last.parameters()])
    for _ in range(2):
        optimizer.zero_grad()
        hidden = torch.cat([functional.elu(head(words, linked)) for head in heads], 1)
        functional.cross_entropy(last(hidden), topics).backward()
        optimizer.step()


@failing(Gpu(1000 * MIB, scale=16), "giant", "accumulate checkpoint shard others expandable pad graph")
def aerial_pictures_with_hundreds_of_cars() -> None:
    """A detector compares all anchors with all boxes of a picture, and one picture has very many boxes."""
    backbone = nn.Sequential(convolution(3, 16, stride=2), convolution(16, 32, stride=2), convolution(32, 32))
    head = nn.Conv2d(32, 9, 1)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.01)
    corners = torch.rand(9 * 32 * 32, 2)
    anchors = torch.cat([corners, corners + 0.1], 1)
    for boxes in (12, 30, 8, 300, 20):
        begins = torch.rand(boxes, 2)
        found = torch.cat([begins, begins + 0.05], 1)
        with torch.no_grad():
            least = torch.maximum(found[:, None, :2], anchors[None, :, :2])
            most = torch.minimum(found[:, None, 2:], anchors[None, :, 2:])
            shared = (most - least).clamp(min=0).prod(2)
            areas = (found[:, 2:] - found[:, :2]).prod(1)[:, None] + (anchors[:, 2:] - anchors[:, :2]).prod(1)
            overlap = shared / (areas - shared)
            wanted = (overlap.max(0).values > 0.3).float()
        scores = head(backbone(torch.randn(1, 3, 128, 128))).flatten()
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(scores, wanted).backward()
        optimizer.step()


@failing(Gpu(850 * MIB, scale=16), BATCH, "shard others expandable pad giant inference graph")
def a_speaker_who_does_not_pause() -> None:
    """Speech recognition on batches as long as their longest recording, and one recording lasts a minute."""
    model = nn.Sequential(
        *(
            nn.Sequential(
                nn.Conv1d(64, 64, 11, padding=5, groups=64),
                nn.Conv1d(64, 64, 1),
                nn.BatchNorm1d(64),
                nn.ReLU(),
            )
            for _ in range(6)
        ),
        nn.Conv1d(64, 29, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for seconds in (8, 11, 9, 12, 10, 62, 9):
        frames = seconds * 50
        sounds, letters = torch.randn(4, 64, frames), torch.randint(1, 29, (4, 40))
        likely = model(sounds).log_softmax(1).permute(2, 0, 1)
        loss = functional.ctc_loss(likely, letters, torch.full((4,), frames), torch.full((4,), 40))
        optimizer.zero_grad()
        loss.backward()
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


# Checkpoints would make it fit, and hide that no gradient is wanted.
@failing(
    Gpu(350 * MIB, scale=8), "graph inference", "shard others expandable pad giant accumulate checkpoint"
)
def whole_scenes_after_the_epoch() -> None:
    """Crops are trained on; the validation takes whole pictures in eval mode, and records a graph."""
    model = Streets()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(4):
        pictures, classes = scenes(4, 64)
        optimizer.zero_grad()
        functional.cross_entropy(model(pictures), classes).backward()
        optimizer.step()
    model.eval()
    right, error = 0, 0.0
    for _ in range(4):
        pictures, classes = scenes(4, 160)
        output = model(pictures)
        loss = functional.cross_entropy(output, classes)
        right += int((output.argmax(1) == classes).sum())
        error += loss.item()


@failing(
    Gpu(600 * MIB, scale=8),
    "graph metrics inference",
    "shard others expandable pad giant accumulate checkpoint",
)
def noise_of_each_level_in_one_sum() -> None:
    """A denoiser adds its validation losses to a sum, as tensors, and each brings its graph."""
    model = nn.Sequential(
        convolution(4, 32), *(convolution(32, 32) for _ in range(4)), nn.Conv2d(32, 3, 3, padding=1)
    )
    optimizer = torch.optim.Adam(model.parameters())

    def error_of(rows: int, level: float) -> Any:
        clean = torch.rand(rows, 3, 48, 48)
        noisy = torch.cat([clean + level * torch.randn_like(clean), torch.full((rows, 1, 48, 48), level)], 1)
        return functional.mse_loss(model(noisy), level * torch.randn_like(clean))

    for _ in range(2):
        model.train()
        for _ in range(3):
            optimizer.zero_grad()
            error_of(4, 0.1).backward()
            optimizer.step()
        model.eval()
        losses: Any = 0
        for step in range(20):
            losses += error_of(2, 0.01 * step)
        float(losses.detach() / 20)
