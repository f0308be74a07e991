"""Jobs that run out of memory as in issues and in threads on forums: evaluation and inference.

What helps is what was found there, or what else makes the job fit. It was written down before any of them was
diagnosed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu

# Nothing is differentiated, and it is no matter of the model's size.
NOT_FOR_RESULTS = "shard checkpoint accumulate others expandable graph"


@failing(Gpu(1536 * MIB, scale=32), "hooks other inference larger", NOT_FOR_RESULTS)
def logits_of_the_evaluation_set() -> None:
    """Training fits; then an evaluation joins the logits of all its batches for a metric at the end."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(model, texts(8)).backward()
        optimizer.step()
    model.eval()
    predictions = labels = None
    for _ in range(64):
        tokens = texts(8)
        with torch.no_grad():
            logits = model(tokens)
        predictions = logits if predictions is None else torch.cat([predictions, logits])
        labels = tokens if labels is None else torch.cat([labels, tokens])


class _Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.LSTM(12, 32, batch_first=True), nn.LSTM(12, 32, batch_first=True)
        self.attends, self.quantiles = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 7)

    def forward(self, x: Any) -> dict[str, Any]:
        past, state = self.encoder(x["past"])
        future, _ = self.decoder(x["future"], state)
        found, weights = self.attends(future, past, past, average_attn_weights=False)
        return {"prediction": self.quantiles(found), "attention": weights, "past": past}


@failing(Gpu(1024 * MIB, scale=64), "hooks other inference", f"{NOT_FOR_RESULTS} giant")
def raw_forecasts_with_their_inputs() -> None:
    """Forecasts of a test set are returned raw, with their inputs, and all of it stays on the GPU."""
    model = _Forecaster()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        x = {"past": torch.randn(16, 48, 12), "future": torch.randn(16, 12, 12)}
        loss = functional.l1_loss(model(x)["prediction"], torch.randn(16, 12, 7))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    outputs, inputs = [], []
    with torch.no_grad():
        for _ in range(60):
            x = {"past": torch.randn(32, 48, 12), "future": torch.randn(32, 12, 12)}
            outputs.append(model(x))
            inputs.append(x)
    {name: torch.cat([output[name] for output in outputs]) for name in outputs[0]}


class _Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
        )

    def forward(self, points: Any) -> Any:
        waves = [wave(points * 2.0**i) for i in range(4) for wave in (torch.sin, torch.cos)]
        return self.layers(torch.cat([points, *waves], -1))


def _rendered(field: nn.Module, rays: Any, samples: int = 32) -> dict[str, Any]:
    depths = torch.linspace(2.0, 6.0, samples).expand(len(rays), samples)
    points = rays[:, None, :3] + depths[:, :, None] * rays[:, None, 3:]
    found = field(points)
    opaque = 1 - torch.exp(-functional.relu(found[..., 3]) * 0.1)
    weights = opaque * torch.cumprod(1 - opaque + 1e-6, 1)
    colors = (weights[:, :, None] * torch.sigmoid(found[..., :3])).sum(1)
    return {"rgb": colors, "depth": (weights * depths).sum(1), "weights": weights, "z": depths.contiguous()}


@failing(Gpu(1024 * MIB, scale=32), "hooks other inference", f"{NOT_FOR_RESULTS} giant")
def views_rendered_in_parts() -> None:
    """A radiance field renders a test view part by part; what each part returns is kept on the GPU."""
    field = _Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
    for _ in range(4):
        rays, colors = torch.randn(512, 6), torch.rand(512, 3)
        loss = functional.mse_loss(_rendered(field, rays)["rgb"], colors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for side in (48, 64, 320):
        results: dict[str, list[Any]] = {"rgb": [], "depth": [], "weights": [], "z": []}
        with torch.no_grad():
            for _ in range(0, side * side, 1024):
                part = _rendered(field, torch.randn(1024, 6))
                for name, value in part.items():
                    results[name].append(value)
        view = {name: torch.cat(values)[: side * side] for name, values in results.items()}
        view["rgb"].reshape(side, side, 3).numpy()


def _labels(model: nn.Module, volume: Any, classes: int = 14, patch: int = 16) -> Any:
    """Of each voxel. volume: [1, X, Y, Z]."""
    total, count = torch.zeros(classes, *volume.shape[1:]), torch.zeros(volume.shape[1:])
    starts = [range(0, side - patch + 1, patch // 2) for side in volume.shape[1:]]
    for x in starts[0]:
        for y in starts[1]:
            for z in starts[2]:
                where = slice(x, x + patch), slice(y, y + patch), slice(z, z + patch)
                all_classes = slice(None), *where
                total[all_classes] += model(volume[all_classes][None])[0]
                count[where] += 1
    total /= count.clamp(min=1)
    return torch.softmax(total, 0).argmax(0)


# Not the network is too large for it, but what is put together from its patches: on the host, or in parts.
@failing(
    Gpu(1024 * MIB, scale=64), "giant inference other", "shard checkpoint accumulate others graph expandable"
)
def logits_of_a_whole_volume() -> None:
    """Segmented patches are put together for all 14 organs, and one scan is larger than the others."""
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(8, 14, 1),
    ).eval()
    with torch.no_grad():
        for sides in ((32, 32, 32), (40, 32, 32), (56, 56, 48)):
            _labels(model, torch.randn(1, *sides)).numpy()


@failing(Gpu(1024 * MIB, scale=32), "giant inference", "shard checkpoint accumulate others expandable graph")
def queries_scored_against_a_corpus_at_once() -> None:
    """Sentences are embedded batch by batch; then all queries are compared with the corpus in one product."""
    model = Language(1).eval()
    with torch.no_grad():
        corpus = torch.cat([model.blocks[0](model.embed(texts(250, 16))).mean(1) for _ in range(24)])
        queries = torch.cat([model.blocks[0](model.embed(texts(250, 16))).mean(1) for _ in range(8)])
        corpus, queries = functional.normalize(corpus, dim=1), functional.normalize(queries, dim=1)
        scores = queries @ corpus.T
        scores.topk(5, dim=1).indices.tolist()
