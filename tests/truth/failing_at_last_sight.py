"""Jobs as an engineer shows them to a colleague: the plain causes of a full GPU, most of them in one line.

What helps was written down before any of them was diagnosed, and tried: see `failing.py`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from tests.truth.failing import BATCH, MIB, failing
from tests.truth.gpu_snapshot import Gpu


class Spotter(nn.Module):
    """Spoken commands from the waveform."""

    def __init__(self, width: int = 16, commands: int = 35) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(1 if stage == 0 else width, width, 9, padding=4), nn.BatchNorm1d(width), nn.SiLU()
            )
            for stage in range(4)
        )
        self.classify = nn.Linear(width, commands)

    def forward(self, waves: Any) -> Any:
        for stage in self.stages:
            waves = stage(waves)
        return self.classify(waves.mean(-1))


@failing(Gpu(1200 * MIB, scale=16), BATCH, "shard others expandable pad giant inference")
def spoken_commands_in_a_doubled_batch() -> None:
    """The batch was doubled, because the GPU looked half empty."""
    spotter = Spotter()
    optimizer = torch.optim.RMSprop(spotter.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for _ in range(2):
        waves, commands = torch.randn(64, 1, 2048), torch.randint(0, 35, (64,))
        loss = criterion(spotter(waves), commands)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Voice(nn.Module):
    """A vector for each utterance, of its frames."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Conv1d(40, 96, 5, padding=2), nn.Conv1d(96, 96, 3, padding=2, dilation=2)
        self.project = nn.Linear(192, 64)

    def forward(self, frames: Any) -> Any:
        heard = functional.leaky_relu(self.far(functional.leaky_relu(self.near(frames))))
        pooled = torch.cat([heard.mean(-1), heard.std(-1)], dim=-1)
        return functional.normalize(self.project(pooled), dim=-1)


@failing(Gpu(450 * MIB, scale=16), "graph hooks inference other", "shard others expandable giant")
def voiceprints_enrolled_with_autograd() -> None:
    """A dictionary gets the voiceprint of each speaker, after training, with autograd on."""
    voice = Voice()
    optimizer = torch.optim.Adam(voice.parameters(), lr=1e-3)
    for _ in range(3):
        anchor, positive, negative = (voice(torch.randn(8, 40, 50)) for _ in range(3))
        loss = functional.triplet_margin_loss(anchor, positive, negative)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    voice.eval()
    enrolled: dict[str, Any] = {}
    for speaker in range(40):
        enrolled[f"id{speaker:05d}"] = voice(torch.randn(12, 40, 50)).mean(0)


@failing(Gpu(500 * MIB, scale=16), "graph metrics hooks other", "shard others expandable giant inference")
def soft_dice_of_each_organ_for_the_plot() -> None:
    """A score for the plot is computed of the logits, and put into a history as it is."""
    organs = 8
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.GroupNorm(4, 12), nn.ReLU(), nn.Conv2d(12, organs, 1)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    history: dict[str, list[Any]] = defaultdict(list)
    for _ in range(40):
        scans, labels = torch.randn(4, 1, 64, 64), torch.randint(0, organs, (4, 64, 64))
        logits = net(scans)
        loss = functional.cross_entropy(logits, labels)

        found, wanted = logits.softmax(1), functional.one_hot(labels, organs).permute(0, 3, 1, 2).float()
        overlap = (found * wanted).sum((0, 2, 3))
        history["dice"].append(2 * overlap / (found.sum((0, 2, 3)) + wanted.sum((0, 2, 3))))
        history["loss"].append(loss.item())

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _pyramid(width: int, out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(4):
        layers += [nn.Conv2d(3 if i == 0 else width, width, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, out))


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, criterion: Any, batches: Any) -> None:
    for images, target in batches:
        optimizer.zero_grad()
        criterion(model(images), target).backward()
        optimizer.step()


@failing(Gpu(800 * MIB, scale=16), "models before", "accumulate others expandable giant inference")
def a_finder_of_plates_beside_their_reader() -> None:
    """A script trains a network that finds number plates, then one that reads them. The first one stays."""
    finder = _pyramid(256, 4)
    finder_optimizer = torch.optim.AdamW(finder.parameters(), lr=3e-4)
    boxes = [(torch.randn(4, 3, 32, 32), torch.rand(4, 4)) for _ in range(3)]
    _train(finder, finder_optimizer, nn.SmoothL1Loss(), boxes)

    reader = _pyramid(256, 37)
    reader_optimizer = torch.optim.AdamW(reader.parameters(), lr=3e-4)
    letters = [(torch.randn(4, 3, 32, 32), torch.randint(0, 37, (4,))) for _ in range(3)]
    _train(reader, reader_optimizer, nn.CrossEntropyLoss(), letters)


class Demonstrations(Dataset[tuple[Any, Any]]):
    """What a robot's cameras saw, and what its arm did."""

    def __init__(self, episodes: int) -> None:
        self.frames, self.moves = [], []
        for _ in range(episodes):
            self.frames.append(torch.randint(0, 255, (10, 3, 48, 48)).float().div(255))
            self.moves.append(torch.randn(10, 7))

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.frames[index], self.moves[index]


@failing(Gpu(620 * MIB, scale=16), "inputs", "shard others expandable giant graph")
def demonstrations_of_a_robot_cached_on_the_gpu() -> None:
    """A Dataset puts every episode on the GPU when it is made, to spare the copies."""
    episodes = DataLoader(Demonstrations(130), batch_size=4, shuffle=True)
    policy = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2), nn.ELU(), nn.Conv2d(8, 16, 5, stride=2), nn.ELU(), nn.Flatten()
    )
    arm = nn.Linear(16 * 9 * 9, 7)
    optimizer = torch.optim.Adam([*policy.parameters(), *arm.parameters()])
    for step, (frames, moves) in enumerate(episodes):
        if step == 6:
            break
        loss = functional.mse_loss(arm(policy(frames.flatten(0, 1))), moves.flatten(0, 1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@failing(Gpu(1250 * MIB, scale=32), "shard", "checkpoint accumulate others expandable giant inference")
def first_update_of_a_protein_model() -> None:
    """All weights are fine-tuned on one protein at a time. Backward fits, the first update does not."""
    embed = nn.Embedding(33, 256)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True, norm_first=True),
        num_layers=4,
        enable_nested_tensor=False,
    )
    stable = nn.Linear(256, 1)
    weights = [*embed.parameters(), *encoder.parameters(), *stable.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-5, weight_decay=0.01)
    for _ in range(2):
        residues, measured = torch.randint(0, 33, (1, 48)), torch.randn(1, 1)
        loss = functional.mse_loss(stable(encoder(embed(residues)).mean(1)), measured)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()


@failing(Gpu(1000 * MIB, scale=8), "giant", "shard checkpoint accumulate others expandable inference")
def losses_of_customers_by_the_weights_of_all() -> None:
    """Losses are [N, 1] and the weights of customers are [N]: their product is [N, N]."""
    churn = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(churn.parameters())
    for _ in range(2):
        customers, worth = torch.randn(5000, 30), torch.rand(5000)
        left = torch.randint(0, 2, (5000, 1)).float()
        each = functional.binary_cross_entropy_with_logits(churn(customers), left, reduction="none")
        loss = (each * worth).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Remembering(nn.Module):
    """A layer of attention with a cache."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Any, past: tuple[Any, Any] | None) -> tuple[Any, tuple[Any, Any]]:
        key, value = self.key(x), self.value(x)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=1), torch.cat([past[1], value], dim=1)
        return x + functional.scaled_dot_product_attention(self.query(x), key, value), (key, value)


@failing(Gpu(1060 * MIB, scale=64), "cache larger", "shard checkpoint others giant inference")
def a_chat_that_never_forgets() -> None:
    """An assistant hands the keys and values of all earlier turns to the next one."""
    words, layers = nn.Embedding(500, 64), nn.ModuleList(Remembering() for _ in range(2))
    past: list[Any] = [None] * len(layers)
    with torch.no_grad():
        for _ in range(16):
            said = torch.randint(0, 500, (8, 60))
            for _ in range(6):
                x = words(said)
                for i, layer in enumerate(layers):
                    x, past[i] = layer(x, past[i])
                said = (x[:, -1] @ words.weight.T).argmax(-1, keepdim=True)


class Sessions(nn.Module):
    """The next item of a session, of all items of a shop."""

    def __init__(self, items: int = 16_000, width: int = 32) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.read = nn.GRU(width, width, batch_first=True)

    def forward(self, seen: Any) -> Any:
        return self.read(self.items(seen))[0] @ self.items.weight.T


@failing(Gpu(1000 * MIB, scale=8), "accumulate giant", "shard others expandable pad inference")
def next_item_of_a_large_shop() -> None:
    """A loss needs the logits of each item of a shop, at each click."""
    model = Sessions()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for _ in range(2):
        clicks = torch.randint(0, 16_000, (32, 26))
        logits = model(clicks[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), clicks[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


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


class Biased(nn.Module):
    """Attention that prefers what is near, by a slope for each head."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any, bias: Any) -> Any:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias
        return x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width))


@failing(Gpu(1000 * MIB, scale=8), "attention checkpoint giant", "shard others expandable pad inference")
def a_long_piece_of_music_with_biased_attention() -> None:
    """Scores are written out in each layer, to add a bias of distances. One piece is a batch."""
    notes, layers, head = nn.Embedding(400, 64), nn.ModuleList(Biased() for _ in range(5)), nn.Linear(64, 400)
    parameters = [*notes.parameters(), *layers.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    at = torch.arange(1000)
    distance = (at[None, :] - at[:, None]).abs().float()
    bias = -distance * torch.tensor([0.5, 0.25, 0.125, 0.0625])[:, None, None]
    for _ in range(2):
        piece = torch.randint(0, 400, (1, 1001))
        x = notes(piece[:, :-1])
        for layer in layers:
            x = layer(x, bias)
        optimizer.zero_grad()
        functional.cross_entropy(head(x).flatten(0, 1), piece[:, 1:].flatten()).backward()
        optimizer.step()
