"""More jobs that run out of memory in the ways that are most usual, written as those of failing_blind.py."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import MIB, failing
from tests.truth.failing_blind import Classifier, Gpt, UNet
from tests.truth.gpu_snapshot import Gpu


class Trainer:
    def __init__(self) -> None:
        self.model = Classifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train_epoch(self) -> None:
        self.model.train()
        for _ in range(3):
            self.optimizer.zero_grad()
            functional.cross_entropy(
                self.model(torch.randint(0, 1000, (8, 64))), torch.randint(0, 5, (8,))
            ).backward()
            self.optimizer.step()

    def validate(self) -> float:
        self.model.eval()
        logits, labels = [], []
        for _ in range(12):
            logits.append(self.model(torch.randint(0, 1000, (8, 64))))
            labels.append(torch.randint(0, 5, (8,)))
        return float((torch.cat(logits).argmax(1) == torch.cat(labels)).float().mean())


@failing(
    Gpu(900 * MIB, scale=16),
    "graph inference hooks other",
    "shard accumulate others expandable pad giant attention",
)
def validation_that_collects_logits() -> None:
    """eval() is called, no_grad is not, and the logits of all batches are collected for the accuracy."""
    trainer = Trainer()
    trainer.train_epoch()
    trainer.validate()


def detect(steps: int = 40, *, keep: bool = True) -> None:
    net, heads = UNet(), []
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        scans = torch.randn(2, 1, 64, 64)
        found = net(scans)
        loss = functional.mse_loss(found[:, 0], scans[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        heads.append({"scan": scans, "found": found if keep else found.detach().cpu().mean().item()})
        if not keep:
            heads.pop()


@failing(
    Gpu(450 * MIB, scale=64),
    "hooks other",
    "shard checkpoint accumulate others expandable pad giant attention",
)
def predictions_kept_for_a_plot() -> None:
    """Each step's inputs and predictions are put into a list, to be plotted at the end."""
    detect()


def load_images(train: int = 1500, test: int = 900) -> None:
    train_x = torch.stack([torch.rand(3, 32, 32) for _ in range(train)])
    train_y = torch.randint(0, 10, (train,))
    test_x = torch.stack([torch.rand(3, 32, 32) for _ in range(test)])
    net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 15 * 15, 10))
    optimizer = torch.optim.Adam(net.parameters())
    for at in range(0, 96, 32):
        optimizer.zero_grad()
        functional.cross_entropy(net(train_x[at : at + 32]), train_y[at : at + 32]).backward()
        optimizer.step()
    assert len(test_x) == test


@failing(
    Gpu(900 * MIB, scale=32),
    "inputs",
    "shard checkpoint accumulate others expandable pad giant graph attention",
)
def features_moved_at_once() -> None:
    """All images are put onto the GPU before training; those of the test no longer fit."""
    load_images()


class Dense(nn.Module):
    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inside, out)

    def forward(self, x: Any) -> Any:
        return functional.gelu(self.linear(x))


def fit_tabular(kind: torch.dtype = torch.float64, rows: int = 2048) -> None:
    x, y = torch.randn(rows, 50, dtype=kind), torch.randn(rows, 1, dtype=kind)
    model = nn.Sequential(Dense(50, 256), Dense(256, 256), Dense(256, 256), nn.Linear(256, 1)).to(kind)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        functional.huber_loss(model(x), y).backward()
        optimizer.step()


@failing(
    Gpu(860 * MIB, scale=32), "accumulate checkpoint", "shard others expandable pad giant inference graph"
)
def doubles_by_accident() -> None:
    """The table came from NumPy in float64, and the model was made double to match it."""
    fit_tabular()


class Relative(nn.Module):
    """Attention with a bias of distance, by einsum."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192, bias=False), nn.Linear(64, 64)
        places = torch.arange(length)
        self.register_buffer(
            "bias", -(places[:, None] - places).abs() / torch.tensor([2.0, 4, 8, 16]).view(4, 1, 1)
        )

    def forward(self, x: Any) -> Any:
        rows, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(rows, length, 3, 4, 16).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 4 + self.bias
        weights = functional.softmax(scores, dim=-1)
        return x + self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


def see(rows: int = 6, length: int = 400) -> None:
    patches, head = nn.Conv2d(3, 64, 4, 4), nn.Linear(64, 10)
    body = nn.Sequential(*(Relative(length) for _ in range(3)))
    side = 4 * int(length**0.5)
    optimizer = torch.optim.AdamW([*patches.parameters(), *body.parameters(), *head.parameters()])
    for step in range(2):
        images = torch.randn(1 if step == 0 else rows, 3, side, side)
        x = patches(images).flatten(2).transpose(1, 2)
        loss = functional.cross_entropy(head(body(x).mean(1)), torch.randint(0, 10, (len(x),)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(
    Gpu(1100 * MIB, scale=16),
    "attention giant checkpoint accumulate",
    "shard others expandable pad inference graph",
)
def vision_transformer_with_einsum() -> None:
    """Attention by einsum keeps the scores of all patches, twice in each layer."""
    see()


@failing(
    Gpu(500 * MIB, free_bytes=6000 * MIB, scale=32),
    "others inference",
    "shard expandable pad giant graph attention",
)
def service_with_a_fraction() -> None:
    """A service limits each worker to a fraction of the GPU; images of one request do not fit into it."""
    net = UNet().eval()
    with torch.inference_mode():
        for rows in (1, 2, 16):
            net(torch.randn(rows, 1, 96, 96)).argmax(1)


def transcribe(last: int = 3000, keep: int = 384) -> None:
    listen = nn.Sequential(nn.Conv1d(16, 64, 3, padding=1), nn.GELU(), nn.Conv1d(64, 32, 3, padding=1))
    texts = []
    with torch.inference_mode():
        for step in range(30):
            heard = listen(torch.randn(1, 16, 400 + 71 * step))
            texts.append(heard.mean(2).repeat(1, keep))
        listen(torch.randn(1, 16, last))
    assert texts


@failing(
    Gpu(285 * MIB, scale=64),
    "expandable pad hooks other inference",
    "shard checkpoint accumulate others giant graph attention",
)
def recordings_that_grow() -> None:
    """Recordings of all lengths are transcribed, the shortest first; blocks that were freed are too small."""
    transcribe()


def cross_validate(folds: int = 5, *, keep: bool = True) -> None:
    best: list[Any] = []
    start = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    for _ in range(folds):
        model = copy.deepcopy(start)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            functional.mse_loss(model(torch.randn(32, 256)), torch.randn(32, 256)).backward()
            optimizer.step()
        if keep:
            best.append({"model": model, "optimizer": optimizer})


@failing(
    Gpu(520 * MIB, scale=64),
    "models other before hooks",
    "checkpoint accumulate others expandable pad giant inference graph attention",
)
def models_of_all_folds() -> None:
    """A cross-validation keeps each fold's model and optimizer; the fourth does not fit."""
    cross_validate()


def generate(rows: int = 16, new: int = 144) -> None:
    model = Gpt(300, 4).eval()
    tokens = torch.randint(0, 300, (rows, 16))
    with torch.no_grad():
        logits, past = model(tokens)
        for _ in range(new):
            token = logits[:, -1].softmax(-1).multinomial(1)
            tokens = torch.cat([tokens, token], 1)
            logits, past = model(token, past)


@failing(
    Gpu(520 * MIB, scale=64),
    "cache inference larger",
    "shard checkpoint accumulate others pad giant graph attention",
)
def generation_with_a_growing_cache() -> None:
    """Keys and values of each layer grow with each token of many sequences."""
    generate()


def regress(squeeze: bool = False) -> None:
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(5000, 20), torch.randn(5000)
    for at in range(0, 5000, 1000):
        loss = functional.mse_loss(model(x[at : at + 1000]).squeeze(1), y[at : at + 1000])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        predicted = model(x).squeeze(1) if squeeze else model(x)
        (predicted - y).abs().mean().item()


@failing(
    Gpu(700 * MIB, scale=8),
    "giant",
    "shard checkpoint accumulate others expandable pad graph attention",
)
def mean_error_of_all_by_all() -> None:
    """Training squeezes the prediction; the mean error at the end does not: [N, 1] minus [N]."""
    regress()
