"""Real jobs that run out of a GPU's memory, each after a question that is asked often on forums.

What helps was written down before any of them was diagnosed.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


def _eye(channels: int = 16) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
        nn.BatchNorm2d(2 * channels),
        nn.ReLU(),
        nn.Conv2d(2 * channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
    )


def _classifier(classes: int = 10) -> nn.Sequential:
    return nn.Sequential(_eye(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


@failing(Gpu(560 * MIB, scale=16), "graph inference metrics", "shard accumulate expandable others giant")
def validation_loss_added_up_as_a_tensor() -> None:
    """Training fits; the validation, without no_grad, adds up its loss over all batches."""
    model = _classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        model.train()
        for _ in range(4):
            images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        model.eval()
        validation_loss = 0.0
        for _ in range(12):
            images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
            validation_loss += functional.cross_entropy(model(images), labels)
        print(f"validation loss {float(validation_loss) / 12:.3f}")


@failing(
    Gpu(600 * MIB, scale=32),
    "hooks other metrics inference",
    "shard checkpoint accumulate expandable others graph",
)
def logits_of_every_epoch_for_the_confusion_matrix() -> None:
    """A trainer collects the logits of each validation, and never clears its list between epochs."""

    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Sequential(_eye(8), nn.ConvTranspose2d(16, 21, 2, stride=2))
            self.optimizer = torch.optim.Adam(self.model.parameters())
            self.logits: list[Any] = []
            self.labels: list[Any] = []

        def train(self) -> None:
            self.model.train()
            for _ in range(2):
                images, labels = torch.randn(4, 3, 64, 64), torch.randint(0, 21, (4, 64, 64))
                self.optimizer.zero_grad()
                functional.cross_entropy(self.model(images), labels).backward()
                self.optimizer.step()

        @torch.no_grad()
        def validate(self) -> Any:
            self.model.eval()
            for _ in range(3):
                self.logits.append(self.model(torch.randn(2, 3, 64, 64)))
                self.labels.append(torch.randint(0, 21, (2, 64, 64)))
            confusion = torch.zeros(21, 21, dtype=torch.int64)
            for logits, labels in zip(self.logits, self.labels, strict=True):
                pairs = 21 * labels.flatten() + logits.argmax(1).flatten()
                confusion += torch.bincount(pairs, minlength=441).view(21, 21)
            return confusion

    trainer = Trainer()
    for _ in range(8):
        trainer.train()
        trainer.validate()


@failing(
    Gpu(1500 * MIB, scale=64), "shard", "checkpoint accumulate expandable others giant inference set_to_none"
)
def entities_of_a_knowledge_graph_with_dense_gradients() -> None:
    """The first backward pass makes a gradient for each row of a large embedding."""
    entities, relations = nn.Embedding(40_000, 64), nn.Embedding(200, 64)
    optimizer = torch.optim.Adam([*entities.parameters(), *relations.parameters()])
    for _ in range(3):
        heads, tails, wrong = torch.randint(0, 40_000, (3, 512))
        kinds = relations(torch.randint(0, 200, (512,)))
        near = (entities(heads) + kinds - entities(tails)).norm(dim=1)
        far = (entities(heads) + kinds - entities(wrong)).norm(dim=1)
        loss = functional.relu(1 + near - far).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(2600 * MIB, scale=64), "load models before", "checkpoint accumulate expandable others giant")
def best_weights_loaded_for_the_test() -> None:
    """After training, the best checkpoint is loaded for the test, and a second model made for it."""

    def make() -> nn.Module:
        wide, deep = nn.Linear(256, 1024), nn.Linear(1024, 1024)
        return nn.Sequential(wide, nn.GELU(), deep, nn.GELU(), nn.Linear(1024, 256))

    model = make()
    optimizer = torch.optim.AdamW(model.parameters())
    best, saved = float("inf"), io.BytesIO()
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 256)).square().mean()
        loss.backward()
        optimizer.step()
        if loss.item() < best:
            best, saved = loss.item(), io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    checkpoint = torch.load(saved)
    tested = make()
    tested.load_state_dict(checkpoint["model"])
    tested.eval()
    with torch.no_grad():
        for _ in range(3):
            tested(torch.randn(32, 256))


@failing(Gpu(900 * MIB, scale=32), "graph gradients metrics", "shard others expandable giant inference")
def sharpness_of_each_step_with_its_graph() -> None:
    """A list for the plot keeps a curvature of each step, made with create_graph and so with a graph."""
    model = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weights = list(model.parameters())
    sharpness = []
    for _ in range(10):
        inputs, targets = torch.randn(512, 32), torch.randn(512, 1)
        loss = functional.mse_loss(model(inputs), targets)
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        direction = [torch.randn_like(weight) for weight in weights]
        slope = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
        products = torch.autograd.grad(slope, weights, create_graph=True)
        sharpness.append(sum((p * d).sum() for p, d in zip(products, direction, strict=True)))
        optimizer.zero_grad()
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.detach()
        optimizer.step()
    print([round(float(value), 3) for value in sharpness])


@failing(Gpu(1300 * MIB, scale=16), "giant checkpoint", "shard accumulate expandable others inference")
def distances_embedded_for_every_pair_of_words() -> None:
    """Attention with relative positions makes an embedding for each pair of positions of a long text."""

    class Relative(nn.Module):
        def __init__(self, length: int) -> None:
            super().__init__()
            self.attends, self.joins = nn.Linear(64, 192), nn.Linear(64, 64)
            self.distance, self.longest = nn.Embedding(2 * length - 1, 32), length

        def forward(self, x: Any) -> Any:
            rows, length, width = x.shape
            q, k, v = self.attends(x).view(rows, length, 3, 2, 32).permute(2, 0, 3, 1, 4)
            at = torch.arange(length)
            near = self.distance(at[:, None] - at[None, :] + self.longest - 1)
            scores = q @ k.transpose(2, 3) + torch.einsum("bhld,lrd->bhlr", q, near)
            attended = (torch.softmax(scores / 6, -1) @ v).transpose(1, 2).reshape(rows, length, width)
            return x + self.joins(attended)

    layers = nn.ModuleList(Relative(384) for _ in range(6))
    optimizer = torch.optim.AdamW(layers.parameters())
    for length in (128, 384):
        x = torch.randn(1, length, 64)
        for layer in layers:
            x = layer(x)
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()


@failing(Gpu(560 * MIB, scale=16), "before", "shard others expandable giant inference")
def a_batch_retried_inside_its_exception() -> None:
    """A batch with a wrong label raises; its other rows are tried again while the error is being handled."""
    model = _classifier()
    optimizer = torch.optim.Adam(model.parameters())

    def train(images: Any, labels: Any) -> float:
        scores = model(images)
        loss = functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in range(5):
        images, labels = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
        if step == 3:
            labels[5] = 10
        try:
            train(images, labels)
        except IndexError:
            valid = labels < 10
            train(images[valid], labels[valid])


@failing(
    Gpu(900 * MIB, scale=16), "inference giant", "shard checkpoint accumulate expandable others cache graph"
)
def prompts_scored_at_every_position_before_the_answer() -> None:
    """A generation makes the logits of all positions of its prompts, and takes the last."""
    model = nn.Sequential(nn.Embedding(4096, 64), nn.TransformerEncoderLayer(64, 4, 128, batch_first=True))
    head = nn.Linear(64, 4096, bias=False)
    model.eval()

    @torch.no_grad()
    def answer(tokens: Any, length: int = 3) -> Any:
        for _ in range(length):
            logits = head(model(tokens)) / 0.8
            chances = torch.softmax(logits[:, -1], -1)
            tokens = torch.cat([tokens, torch.multinomial(chances, 1)], 1)
        return tokens

    for prompt in (16, 64, 256):
        answer(torch.randint(0, 4096, (8, prompt)))


@failing(Gpu(480 * MIB, scale=16), "inference precision", "shard checkpoint expandable others graph")
def patches_of_a_slide_through_a_frozen_backbone() -> None:
    """All patches of a slide go through a frozen backbone at once; only the pooling is trained."""
    backbone = _eye().eval().requires_grad_(False)
    attends, decides = nn.Linear(32, 1), nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*attends.parameters(), *decides.parameters()])
    for patches in (40, 64, 52, 240):
        slide = torch.randn(patches, 3, 32, 32)
        features = backbone(slide).mean((2, 3))
        pooled = (torch.softmax(attends(features), 0) * features).sum(0, keepdim=True)
        optimizer.zero_grad()
        functional.cross_entropy(decides(pooled), torch.randint(0, 2, (1,))).backward()
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


@failing(Gpu(960 * MIB, scale=16), BATCH, "shard others expandable giant inference")
def a_batch_padded_to_its_widest_picture() -> None:
    """Pictures of a batch are padded to the widest of them, which is a panorama in the fourth step."""

    def stage(channels: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())

    model = nn.Sequential(stage(3), stage(16), stage(16), stage(16), nn.Conv2d(16, 5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(5):
        widths = [48, 40, 56, 48, 64, 40, 48, 256 if step == 3 else 56]
        pictures = [torch.randn(3, 48, width) for width in widths]
        batch = torch.zeros(8, 3, 48, max(widths))
        for row, picture in zip(batch, pictures, strict=True):
            row[:, :, : picture.shape[2]] = picture
        found = model(batch)
        optimizer.zero_grad()
        functional.mse_loss(found, torch.rand_like(found)).backward()
        optimizer.step()


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
