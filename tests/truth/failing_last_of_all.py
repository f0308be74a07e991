"""Ten jobs that run out of memory, as in threads on forums: detection, speech, view synthesis, segmentation,
retrieval of images and texts, features of a gallery, a resumed run, a notebook, and a script that compares.

Each was written down with what helps before it was diagnosed.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


def _images_to_maps(classes: int, width: int = 16, layers: int = 3) -> nn.Sequential:
    """A network of convolutions: [N, 3, H, W] to [N, classes, H, W]."""
    found: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(layers):
        found += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*found, nn.Conv2d(width, classes, 1))


# Training


# A scene with many boxes is split, or its overlaps are computed on the host (the thread's own fix): both are
# what giant and inference show.
@failing(Gpu(1000 * MIB, scale=16), "giant inference", "shard checkpoint accumulate others")
def crowded_scene_is_assigned() -> None:
    """A detector compares each anchor with each box, and the fourth image has many boxes."""
    size, kinds = 64, 5
    model = _images_to_maps(kinds)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    corner = torch.rand(size * size * kinds, 2) * 56
    anchors = torch.cat([corner, corner + 2 + 6 * torch.rand_like(corner)], 1)

    def overlaps(ours: Any, boxes: Any) -> Any:
        begin = torch.maximum(ours[:, None, :2], boxes[None, :, :2])
        end = torch.minimum(ours[:, None, 2:], boxes[None, :, 2:])
        common = (end - begin).clamp(min=0).prod(2)
        area, of_boxes = (each[:, 2:] - each[:, :2] for each in (ours, boxes))
        return common / (area.prod(1)[:, None] + of_boxes.prod(1)[None] - common)

    for objects in (8, 14, 11, 320):
        place = torch.rand(objects, 2) * 56
        boxes = torch.cat([place, place + 4], 1)
        with torch.no_grad():
            best = overlaps(anchors, boxes).amax(1)
        scores = model(torch.randn(1, 3, size, size)).permute(0, 2, 3, 1).flatten()
        loss = functional.binary_cross_entropy_with_logits(scores, (best > 0.3).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(560 * MIB, scale=16), BATCH, "shard others inference")
def one_text_is_far_too_long() -> None:
    """A transducer joins each frame with each token, and a text of the fourth batch is far too long."""

    class Transducer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encodes, self.predicts = nn.Linear(40, 64), nn.Linear(64, 64)
            self.embed, self.joins = nn.Embedding(64, 64), nn.Linear(64, 64)

        def forward(self, sound: Any, tokens: Any) -> Any:
            heard, said = self.encodes(sound), self.predicts(self.embed(tokens))
            return self.joins(torch.tanh(heard[:, :, None] + said[:, None]))

    model = Transducer()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in (10, 12, 9, 150):
        sound, tokens = torch.randn(4, 50, 40), torch.randint(0, 64, (4, length))
        scores = model(sound, tokens)
        wanted = tokens[:, None].expand(-1, 50, -1)
        loss = functional.cross_entropy(scores.flatten(0, 2), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(720 * MIB, scale=16), BATCH, "shard others giant inference")
def full_size_after_the_warm_up() -> None:
    """Views are trained on at a quarter of their size first, and then at their full size."""
    model = _images_to_maps(3, layers=5)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(5):
        size = 32 if step < 4 else 128
        views, wanted = torch.randn(4, 3, size, size), torch.rand(4, 3, size, size)
        optimizer.zero_grad()
        (model(views) - wanted).abs().mean().backward()
        optimizer.step()


# Evaluation and inference


# The validation has no loop of outputs: the graph of the batch before lives while the next one is computed.
# That a pass in eval mode with a graph is meant to have none is the intent, so both names are accepted.
@failing(Gpu(560 * MIB, scale=16), "graph inference", "shard others giant expandable")
def validation_builds_graphs() -> None:
    """A validation of a segmentation has no no_grad, and its batches are larger."""
    model = _images_to_maps(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        images, wanted = torch.randn(4, 3, 64, 64), torch.randint(0, 8, (4, 64, 64))
        loss = functional.cross_entropy(model(images), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    right = 0
    for _ in range(4):
        images, wanted = torch.randn(10, 3, 64, 64), torch.randint(0, 8, (10, 64, 64))
        output = model(images)
        loss = functional.cross_entropy(output, wanted)
        right += int((output.argmax(1) == wanted).sum())


@failing(Gpu(1000 * MIB, scale=16), "giant inference", "shard checkpoint accumulate others")
def all_captions_for_each_image() -> None:
    """A validation attends from all captions to the regions of many images at once."""
    sees, reads = nn.Linear(128, 64), nn.Embedding(500, 64)
    optimizer = torch.optim.Adam([*sees.parameters(), *reads.parameters()])

    def similarity(regions: Any, words: Any) -> Any:
        weights = torch.einsum("ird,cwd->icwr", regions, words).softmax(-1)
        context = torch.einsum("icwr,ird->icwd", weights, regions)
        return functional.cosine_similarity(context, words[None], dim=-1).mean(-1)

    for _ in range(3):
        found = similarity(sees(torch.randn(12, 36, 128)), reads(torch.randint(0, 500, (12, 12))))
        optimizer.zero_grad()
        functional.cross_entropy(found, torch.arange(12)).backward()
        optimizer.step()
    at_once = 32
    with torch.no_grad():
        images, captions = sees(torch.randn(64, 36, 128)), reads(torch.randint(0, 500, (300, 12)))
        rows = [similarity(part, captions).argmax(1) for part in images.split(at_once)]
        torch.cat(rows)


@failing(Gpu(1000 * MIB, scale=16), "inference precision", "shard checkpoint accumulate others")
def windows_in_one_batch() -> None:
    """A validation cuts a large image in windows that overlap, and puts all of them in one batch."""
    model = _images_to_maps(5)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        images, wanted = torch.randn(2, 3, 64, 64), torch.randint(0, 5, (2, 64, 64))
        optimizer.zero_grad()
        functional.cross_entropy(model(images), wanted).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        image = torch.randn(1, 3, 256, 512)
        windows = image.unfold(2, 64, 32).unfold(3, 64, 32)[0]
        windows = windows.permute(1, 2, 0, 3, 4).reshape(-1, 3, 64, 64)
        scores = model(windows)
        found = functional.fold(
            scores.permute(1, 2, 3, 0).flatten(1, 2), (256, 512), kernel_size=64, stride=32
        )
        found.argmax(0)


@failing(
    Gpu(380 * MIB, scale=16), "other hooks inference", "shard checkpoint accumulate others giant expandable"
)
def features_of_the_gallery() -> None:
    """The maps of features of all images of a gallery are kept on the GPU until they are written."""
    model = _images_to_maps(32).eval()
    features = []
    with torch.no_grad():
        for _ in range(50):
            found = model(torch.randn(4, 3, 64, 64))
            features.append(functional.normalize(functional.adaptive_avg_pool2d(found, 32), dim=1))
    torch.cat(features)


# Scripts and notebooks


def _wide(width: int = 512, layers: int = 8) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def _train(model: nn.Module, optimizer: Any, width: int = 512, steps: int = 2) -> float:
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(16, width)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


# To delete what was loaded (before) is the thread's own fix; to load it on the host is the usual one.
@failing(Gpu(1450 * MIB, scale=32), "load before", "shard checkpoint accumulate others expandable giant")
def resumed_run_keeps_what_it_loaded() -> None:
    """A run that fits is resumed, and what was loaded stays on the GPU beside the model."""
    file = io.BytesIO()

    def first_run() -> None:
        model = _wide()
        optimizer = torch.optim.AdamW(model.parameters())
        _train(model, optimizer)
        weights = model.state_dict()
        averaged = {name: weight.clone() for name, weight in weights.items()}
        torch.save({"model": weights, "averaged": averaged, "optimizer": optimizer.state_dict()}, file)

    def resume() -> None:
        saved = torch.load(file)
        model = _wide()
        model.load_state_dict(saved["model"])
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(saved["optimizer"])
        _train(model, optimizer)

    first_run()
    file.seek(0)
    resume()


@failing(Gpu(700 * MIB, scale=8), "before models", "shard checkpoint accumulate others expandable giant")
def the_cell_runs_again() -> None:
    """A cell of a notebook is run again and again, and its outputs keep the learners of each run."""
    out: dict[int, tuple[Any, Any]] = {}

    def cell() -> tuple[Any, Any]:
        wide = (nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
        model = nn.Sequential(nn.Conv2d(3, 256, 3, padding=1), *wide, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            scores = model(torch.randn(4, 3, 16, 16))
            functional.cross_entropy(scores, torch.randint(0, 256, (4,))).backward()
            optimizer.step()
        return model, optimizer

    for number in range(1, 5):
        out[number] = cell()


@failing(Gpu(2400 * MIB, scale=32), "models before", "shard checkpoint accumulate others expandable giant")
def script_compares_classifiers() -> None:
    """A script trains one classifier after the other for a table, and keeps all of them with their scores."""
    table: dict[str, tuple[Any, Any, float]] = {}
    for name, width, layers in (
        ("small", 256, 4),
        ("base", 512, 4),
        ("deep", 512, 8),
        ("wide", 768, 4),
        ("large", 768, 5),
    ):
        model = _wide(width, layers)
        optimizer = torch.optim.Adam(model.parameters())
        table[name] = model, optimizer, _train(model, optimizer, width)
    min(table, key=lambda name: table[name][2])
