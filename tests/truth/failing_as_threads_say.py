"""Jobs that run out of memory as in threads on forums whose cause was found: training, searches, data sets.

Each is code of its own with the mechanism that the thread ended with. What helps was written down, and tried
in the model of the allocator, before any of them was diagnosed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tests.truth.failing import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


def _conv(inside: int, outside: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, padding=1), nn.GroupNorm(4, outside), nn.SiLU()
    )


def update(optimizer: torch.optim.Optimizer, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@failing(
    Gpu(1000 * MIB, scale=32),
    "models before other",
    "shard checkpoint accumulate precision others expandable giant inference",
)
def architectures_trained_one_after_the_other() -> None:
    """Five classifiers train in turn, and each stays with its optimizer when the next one starts."""
    compared = {}
    for name, width in {"tiny": 256, "small": 320, "base": 384, "wide": 448, "large": 512}.items():
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(768, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(4):
            images, labels = torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))
            update(optimizer, functional.cross_entropy(model(images), labels))
        compared[name] = {"model": model, "optimizer": optimizer}


class _Forecaster(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.recurrent, self.head = nn.LSTM(8, hidden, 2, batch_first=True), nn.Linear(hidden, 1)

    def forward(self, series: Any) -> Any:
        return self.head(self.recurrent(series)[0][:, -1]).squeeze(1)


class _Search:
    """Keeps the model and the optimizer of the last trial until the next one has ended."""

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None

    def trial(self, rate: float) -> float:
        model = _Forecaster(256)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(3):
            series, wanted = torch.randn(8, 16, 8), torch.randn(8)
            loss = functional.mse_loss(model(series), wanted)
            update(optimizer, loss)
        self.model, self.optimizer = model, optimizer
        return loss.item()


@failing(
    Gpu(800 * MIB, scale=32),
    "models before",
    "shard checkpoint accumulate precision others expandable giant inference",
)
def a_search_beside_its_last_trial() -> None:
    """A search for hyperparameters builds the model of a trial while it still holds that of the last one."""
    search = _Search()
    scores = {rate: search.trial(rate) for rate in (1e-2, 3e-3, 1e-3)}
    min(scores, key=lambda rate: scores[rate])


@failing(
    Gpu(500 * MIB, scale=64),
    "other hooks inference before",
    "shard checkpoint accumulate others expandable giant graph",
)
def results_kept_between_folds() -> None:
    """Each fold of a cross-validation adds the predictions and labels of its held-out part to the results."""
    results = []
    for _ in range(6):
        model = nn.Sequential(_conv(3, 16), _conv(16, 16), nn.Conv2d(16, 12, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 12, (4, 32, 32))
            update(optimizer, functional.cross_entropy(model(images), labels))
        predictions, wanted = [], []
        with torch.no_grad():
            for _ in range(8):
                images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 12, (4, 32, 32))
                predictions.append(model(images).softmax(1))
                wanted.append(labels)
        results.append({"predictions": torch.cat(predictions), "labels": torch.cat(wanted)})


@failing(
    Gpu(800 * MIB, scale=32),
    "inputs other",
    "shard checkpoint accumulate precision others expandable giant inference graph",
)
def masks_of_all_views_preloaded() -> None:
    """The masks of every view of a scene are put on the GPU before the training of its features begins."""
    scene = []
    for _ in range(160):
        photo = torch.rand(3, 40, 40)
        masks = torch.rand(24, 40, 40).round()
        scene.append((photo, masks))
    model = nn.Sequential(_conv(3, 16), nn.Conv2d(16, 24, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for photo, masks in scene[:4]:
        update(optimizer, functional.binary_cross_entropy_with_logits(model(photo[None])[0], masks))


class _Messages(nn.Module):
    """Sends a message along each edge, and sums those that reach a node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.keep = nn.Linear(2 * width, width), nn.Linear(width, width)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        sent = functional.silu(self.message(torch.cat([x[source], x[target]], 1)))
        return functional.silu(self.keep(x) + sent.new_zeros(x.shape).index_add(0, target, sent))


class _OnGraph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(_Messages(32) for _ in range(3)), nn.Linear(32, 5)

    def forward(self, x: Any, edges: Any) -> Any:
        for layer in self.layers:
            x = layer(x, edges)
        return self.head(x)


@failing(Gpu(1000 * MIB, scale=32), BATCH, "shard others expandable inference")
def a_loader_around_one_graph() -> None:
    """A loader with a batch size holds a list of one large graph, so that each batch is all of it."""
    graph = torch.randn(2000, 32), torch.randint(0, 2000, (2, 24000)), torch.randint(0, 5, (2000,))
    model = _OnGraph()
    optimizer = torch.optim.Adam(model.parameters())
    for (batch,) in DataLoader([graph], batch_size=16, collate_fn=list):
        features, edges, labels = batch
        update(optimizer, functional.cross_entropy(model(features, edges), labels))


class _Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(3, 16), _conv(16, 32, 2), _conv(32, 32), _conv(32, 64, 2))
        self.boxes, self.scores = nn.Conv2d(64, 12, 1), nn.Conv2d(64, 3, 1)

    def forward(self, images: Any) -> Any:
        found = self.body(images)
        return self.boxes(found), self.scores(found)


@failing(Gpu(1000 * MIB, scale=64), BATCH, "shard others expandable giant inference")
def a_detector_at_changing_scales() -> None:
    """A detector trains at another image size every second step, and the largest size comes late."""
    model = _Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for side in (48, 48, 40, 40, 56, 56, 48, 48, 80, 80):
        boxes, scores = model(functional.interpolate(torch.randn(6, 3, 48, 48), side))
        update(optimizer, boxes.square().mean() + scores.sigmoid().mean())
