"""Jobs that run out of a GPU's memory, as ML engineers meet them every week. Written before any diagnosis.

What is meant to stay on the host is a NumPy array: only torch's allocations go through the GPU's model.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, Block, failing
from tests.truth.gpu_snapshot import Gpu


def _stage(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.GELU(), nn.MaxPool2d(2)
    )


def _classifier() -> nn.Sequential:
    return nn.Sequential(
        _stage(3, 16), _stage(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 8)
    )


def _perceptron(width: int = 384, layers: int = 4) -> nn.Sequential:
    stack: list[nn.Module] = []
    for _ in range(layers):
        stack += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*stack, nn.Linear(width, 8))


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, rows: int = 8, width: int = 384) -> float:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(torch.randn(rows, width)), torch.randint(0, 8, (rows,)))
    loss.backward()
    optimizer.step()
    return loss.item()


@failing(
    Gpu(1500 * MIB, scale=32),
    "checkpoint accumulate precision",
    "shard others giant inference graph",
)
def resolution_raised_after_each_epoch() -> None:
    """Progressive resizing: the images of the third epoch are too large for the batch size."""
    stages: list[nn.Module] = []
    for inputs in (3, 12, 12, 12):
        stages.append(nn.Sequential(nn.Conv2d(inputs, 12, 3, padding=1), nn.BatchNorm2d(12), nn.GELU()))
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for side in (24, 40, 80):
        for _ in range(3):
            images, labels = torch.randn(16, 3, side, side), torch.randint(0, 8, (16,))
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()


@failing(
    Gpu(800 * MIB, scale=32),
    "hooks other",
    "graph checkpoint accumulate shard others expandable",
)
def class_maps_kept_for_the_mean_iou() -> None:
    """An evaluation without gradients keeps the scores of all images, for a metric at the end."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 21, 1)).eval()
    scores, wanted = [], []
    with torch.no_grad():
        for _ in range(40):
            images, masks = torch.randn(4, 3, 48, 48), torch.randint(0, 21, (4, 48, 48))
            scores.append(model(images))
            wanted.append(masks)
    found = torch.cat(scores).argmax(1)
    hits = found == torch.cat(wanted)
    hits.float().mean().item()


@failing(
    Gpu(480 * MIB, scale=32),
    "load",
    "checkpoint accumulate others expandable giant inference graph",
)
def fine_tuning_beside_the_loaded_checkpoint() -> None:
    """A checkpoint (weights, their average, Adam's state) stays loaded while its model is fine-tuned."""
    file = io.BytesIO()
    source = _perceptron()
    optimizer: torch.optim.Optimizer = torch.optim.Adam(source.parameters())
    _train(source, optimizer)
    average = {name: weight.numpy() for name, weight in source.state_dict().items()}
    torch.save(
        {
            "model": source.state_dict(),
            "optimizer": optimizer.state_dict(),
            "average": {name: torch.from_numpy(weight) for name, weight in average.items()},
        },
        file,
    )
    del source, optimizer, average
    file.seek(0)
    model = _perceptron()
    saved = torch.load(file)
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(4):
        _train(model, optimizer)


@failing(
    Gpu(1000 * MIB, scale=32),
    "models",
    "checkpoint accumulate others expandable giant inference graph",
)
def grid_search_that_returns_its_models() -> None:
    """A search over learning rates keeps the model and the optimizer of each run, to pick the best later."""
    runs: list[dict[str, Any]] = []
    for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5):
        model = _perceptron()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        loss = 0.0
        for _ in range(4):
            loss = _train(model, optimizer)
        runs.append({"rate": rate, "loss": loss, "model": model, "optimizer": optimizer})
    min(runs, key=lambda run: run["loss"])


def _explore(session: dict[str, Any]) -> None:
    """The notebook's cells that look at the data: what they show stays in Out."""
    images = torch.rand(320, 3, 32, 32)
    session["Out"] = {4: (images - images.mean()) / images.std()}
    session["flat"] = images.flatten(1)
    session["Out"][6] = torch.corrcoef(session["flat"])
    session["Out"][7] = images.flip(-1)
    session["images"] = images


@failing(
    Gpu(540 * MIB, scale=32),
    "before",
    "checkpoint accumulate others expandable giant inference graph",
)
def cells_of_data_exploration_before_training() -> None:
    """A notebook's earlier cells leave tensors on the GPU; the training cell finds too little."""
    session: dict[str, Any] = {}
    _explore(session)
    model = _perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        _train(model, optimizer)


@failing(
    Gpu(1000 * MIB, scale=32),
    "gradients other",
    "graph checkpoint accumulate shard others expandable giant inference set_to_none",
)
def gradients_collected_for_histograms() -> None:
    """Each step keeps a copy of all gradients, for histograms that are written at the end of the epoch."""
    model = _perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    histograms: dict[str, list[Any]] = {name: [] for name, _ in model.named_parameters()}
    for _ in range(24):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.randn(8, 384)), torch.randint(0, 8, (8,)))
        loss.backward()
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                histograms[name].append(weight.grad.clone())
        optimizer.step()
    for kept in histograms.values():
        torch.stack(kept).histc(20)


@failing(
    Gpu(900 * MIB, scale=32),
    "graph",
    "shard others expandable giant set_to_none",
)
def teacher_with_gradients_in_distillation() -> None:
    """A large teacher in eval mode, but with autograd on, scores the student's batch."""
    teacher = nn.Sequential(*(Block(128) for _ in range(6)), nn.Linear(128, 100)).eval()
    student = nn.Sequential(Block(128), nn.Linear(128, 100))
    optimizer = torch.optim.AdamW(student.parameters())
    for _ in range(3):
        batch = torch.randn(8, 48, 128)
        targets = teacher(batch).softmax(-1)
        loss = functional.cross_entropy(student(batch).flatten(0, 1), targets.flatten(0, 1).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(
    Gpu(1400 * MIB, scale=32),
    "inputs",
    "checkpoint accumulate shard others expandable inference graph",
)
def training_set_augmented_on_the_gpu() -> None:
    """All images go to the GPU as floats before training, and their mirrored copies beside them."""
    pixels = np.random.default_rng(0).integers(0, 255, (1500, 3, 32, 32), dtype=np.uint8)
    labels = torch.randint(0, 8, (3000,))
    model = _classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images = torch.from_numpy(pixels).float()
    images = torch.cat([images, images.flip(-1)])
    for rows in torch.randperm(len(images)).split(16)[:8]:
        optimizer.zero_grad()
        functional.cross_entropy(model(images[rows] / 255), labels[rows]).backward()
        optimizer.step()


@failing(
    Gpu(1600 * MIB, scale=32),
    "inference",
    "checkpoint shard others expandable graph set_to_none",
)
def frames_of_a_clip_in_one_batch() -> None:
    """Features of videos are computed with all frames of a clip as one batch; one clip is long."""
    model = _classifier().eval()
    features = []
    with torch.inference_mode():
        for frames in (24, 32, 24, 300):
            clip = np.random.default_rng(frames).integers(0, 255, (frames, 3, 48, 48), dtype=np.uint8)
            features.append(model(torch.from_numpy(clip).float() / 255).mean(0))


@failing(
    Gpu(310 * MIB, scale=32),
    "expandable pad",
    "checkpoint shard others graph",
)
def utterances_of_growing_length() -> None:
    """Recordings sorted by length are embedded; what is kept of each lands in the large blocks between."""
    encoder = nn.Sequential(nn.Linear(80, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    kept = []
    with torch.inference_mode():
        for length in range(200, 3000, 60):
            hidden = encoder(torch.randn(length, 80))
            kept.append(hidden[:: length // 90].clone())
            del hidden
