"""Images, videos, scans and points."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


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


@failing(Gpu(1500 * MIB, scale=32), "accumulate precision", "shard others giant inference graph expandable")
def volumes_of_a_scanner() -> None:
    """Convolutions in three dimensions keep their activations, and volumes are large."""
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1),
        nn.InstanceNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 8, 3, padding=1),
        nn.InstanceNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 2, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for rows in (1, 1, 6):
        optimizer.zero_grad()
        model(torch.randn(rows, 1, 32, 32, 32)).square().mean().backward()
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


@failing(Gpu(560 * MIB, scale=64), "other hooks inference", "shard checkpoint others expandable giant pad")
def products_embedded_for_a_search() -> None:
    """The features of a catalogue are listed on the GPU, batch after batch, without gradients."""
    encoder = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 512)),
    ).eval()
    features = []
    with torch.inference_mode():
        for _ in range(90):
            pictures = torch.randn(64, 3, 32, 32)
            features.append(functional.normalize(encoder(pictures), dim=1))
    index = torch.cat(features)
    print("index", tuple(index.shape))


def _depth(width: int, stages: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(stages):
        layers += [nn.Conv2d(3 if i == 0 else width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 1), nn.Softplus())


@failing(Gpu(600 * MIB, scale=32), "graph inference", "shard others expandable giant")
def a_teacher_of_depth_only_in_eval_mode() -> None:
    """The depth that a student learns comes from a teacher in eval mode, with autograd on."""
    teacher, student = _depth(24, 6).eval(), _depth(8, 3)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-4)
    for side in (24, 32, 64):
        photos = torch.rand(4, 3, side, side)
        target = teacher(photos)
        loss = functional.l1_loss(student(photos).log(), target.log())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(
    Gpu(620 * MIB, scale=64), "expandable pad larger other inference", "shard checkpoint accumulate others"
)
def scans_that_leave_their_descriptors_behind() -> None:
    """Scans of many sizes, with a descriptor of each kept: enough is free, in pieces that are too small."""
    points, clusters = nn.Linear(3, 96), nn.Linear(96, 64)
    descriptors = []
    with torch.inference_mode():
        for scan in range(40):
            cloud = torch.randn(400 + 97 * scan, 3)
            features = functional.gelu(points(cloud))
            weights = torch.softmax(clusters(features), 1)
            descriptors.append(functional.normalize(weights.T @ features).flatten())
            del cloud, features, weights
    torch.stack(descriptors)


# inference says it too: in parts.
@failing(
    Gpu(440 * MIB, scale=8), "giant inference", "shard checkpoint accumulate others expandable pad inputs"
)
def colours_of_a_photo_by_k_means() -> None:
    """A script subtracts every centre from every pixel at once."""
    pixels = torch.rand(40_000, 3)
    centres = pixels[torch.randperm(40_000)[:64]].clone()
    for _ in range(3):
        distances = (pixels[:, None] - centres[None]).square().sum(2)
        nearest = distances.argmin(1)
        for i in range(64):
            centres[i] = pixels[nearest == i].mean(0)


@failing(Gpu(640 * MIB, scale=64), "giant", "shard others expandable inference")
def every_triplet_of_a_batch() -> None:
    """A triplet loss is computed for all anchors, positives and negatives of a batch."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    optimizer = torch.optim.Adam(model.parameters())
    for people in (8, 24):
        persons = torch.arange(people).repeat_interleave(4)
        embedded = functional.normalize(model(torch.randn(len(persons), 64)), dim=1)
        distance = torch.cdist(embedded, embedded)
        same = persons[:, None] == persons[None, :]
        losses = functional.relu(distance[:, :, None] - distance[:, None, :] + 0.2)
        valid = same[:, :, None] & ~same[:, None, :]
        loss = (losses * valid).sum() / valid.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
