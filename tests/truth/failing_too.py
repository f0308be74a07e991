"""More jobs that run out of memory, written after those of failing.py were diagnosed, and diagnosed once."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(680 * MIB, scale=32), BATCH, "shard others expandable giant inference graph")
def skips_of_a_segmentation() -> None:
    """A small U-Net keeps what it skips, and its backward pass does not fit."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)])
            self.up = nn.ModuleList([nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(8, 1, 1)])

        def forward(self, x: Any) -> Any:
            first = torch.relu(self.down[0](x))
            second = torch.relu(self.down[1](functional.max_pool2d(first, 2)))
            joined = torch.cat([first, functional.interpolate(second, scale_factor=2)], 1)
            return self.up[1](torch.relu(self.up[0](joined)))

    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        images = torch.randn(4, 3, 128, 128)
        model(images).sigmoid().mean().backward()
        optimizer.step()


@failing(Gpu(420 * MIB, scale=16), BATCH, "shard others expandable giant inference graph")
def long_sequence_of_an_lstm() -> None:
    """Two steps with short sequences fit, one with a long one does not."""
    model, head = nn.LSTM(32, 128, 2, batch_first=True), nn.Linear(128, 4)
    optimizer = torch.optim.RMSprop([*model.parameters(), *head.parameters()])
    for length in (10, 10, 100):
        optimizer.zero_grad()
        head(model(torch.randn(16, length, 32))[0]).square().mean().backward()
        optimizer.step()


@failing(Gpu(180 * MIB, scale=16), "other metrics hooks", "shard checkpoint others giant graph")
def replay_memory_without_end() -> None:
    """States of each step are kept on the GPU, in a list that is never cut."""
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256))
    optimizer, memory = torch.optim.Adam(model.parameters()), []

    def remember(state: Any) -> None:
        memory.append(state * 2)

    for _ in range(60):
        state = torch.randn(128, 256)
        remember(state)
        optimizer.zero_grad()
        (model(state) - state).square().mean().backward()
        optimizer.step()


@failing(Gpu(260 * MIB, scale=16), "other metrics", "checkpoint accumulate others giant graph")
def copies_of_the_weights() -> None:
    """A copy of the model is kept after every step, to return to the best one."""
    model, best = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        optimizer.zero_grad()
        model(torch.randn(32, 256)).square().mean().backward()
        optimizer.step()
        best.append(copy.deepcopy(model.state_dict()))


@failing(Gpu(800 * MIB, scale=4), "giant", "shard checkpoint others graph")
def one_hot_of_a_large_vocabulary() -> None:
    """Targets become one-hot over all words and positions."""
    model = Language(1)
    found = model(texts(8))
    wanted = functional.one_hot(torch.randint(0, 30_000, (8 * 256,)), 30_000)
    (found.sum() * wanted.sum()).backward()


@failing(Gpu(200 * MIB, scale=16), "inference other hooks", "shard checkpoint others giant graph")
def results_of_an_evaluation_joined() -> None:
    """Results of all batches are kept on the GPU, and joined at the end."""
    model, found = Language(1).eval(), []
    with torch.inference_mode():
        for _ in range(30):
            found.append(model(texts(4)))
        torch.cat(found)


@failing(Gpu(760 * MIB, scale=32), f"inference {BATCH}", "shard others expandable giant graph")
def teacher_with_a_graph() -> None:
    """A student learns from a teacher that records a graph, too."""
    teacher, student = Language(4), Language(1)
    optimizer = torch.optim.AdamW(student.parameters())
    for rows in (8, 8, 28):
        tokens = texts(rows)
        wanted = teacher(tokens)
        optimizer.zero_grad()
        functional.mse_loss(student(tokens), wanted).backward()
        optimizer.step()


@failing(Gpu(150 * MIB, scale=16), "graph gradients", "shard others giant inference")
def penalty_on_gradients_kept() -> None:
    """Norms of gradients with a graph of their own are kept for a log."""
    model, log = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 1)), []
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(40):
        inputs = torch.randn(64, 128, requires_grad=True)
        (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
        penalty = gradient.norm()
        optimizer.zero_grad()
        penalty.backward(retain_graph=True)
        optimizer.step()
        log.append(penalty)


@failing(Gpu(640 * MIB, scale=64), "shard", "checkpoint accumulate others expandable giant inference graph")
def state_of_a_large_embedding() -> None:
    """An embedding dominates: weights, gradient, and two states."""
    words, head = nn.Embedding(8_000, 128), nn.Linear(128, 2)
    optimizer = torch.optim.Adam([*words.parameters(), *head.parameters()])
    for _ in range(2):
        optimizer.zero_grad()
        head(words(torch.randint(0, 8_000, (16,)))).sum().backward()
        optimizer.step()


@failing(Gpu(280 * MIB, scale=64), f"expandable {BATCH}", "shard others giant inference graph")
def texts_that_grow_in_training() -> None:
    """Each step's texts are a little longer, and old blocks fit none of them."""
    model = nn.Sequential(nn.Embedding(256, 64), Block(), nn.Linear(64, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(24):
        optimizer.zero_grad()
        loss_of(model, texts(4, 20 + 4 * step)).backward()
        optimizer.step()
