"""Ten more jobs that run out of memory, written and checked together with those of failing_again.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(400 * MIB, scale=16), "inputs before other", "shard precision giant graph")
def a_replay_memory_made_at_once() -> None:
    """Room for all transitions is made on the GPU at the start, and training has the rest."""

    class Transitions:
        def __init__(self, length: int) -> None:
            self.states, self.rewards = torch.zeros(length, 64), torch.zeros(length)

        def sample(self, rows: int) -> tuple[Any, Any]:
            chosen = torch.randint(0, len(self.rewards), (rows,))
            return self.states[chosen], self.rewards[chosen]

    memory = Transitions(80_000)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(4):
        memory.states[step * 64 : step * 64 + 64] = torch.randn(64, 64)
        states, rewards = memory.sample(2048)
        optimizer.zero_grad()
        (model(states).squeeze(1) - rewards).square().mean().backward()
        optimizer.step()


@failing(
    Gpu(760 * MIB, scale=64),
    "shard",
    "checkpoint accumulate precision others expandable giant graph inference",
)
def four_models_of_a_preference() -> None:
    """A policy learns with its reference, a reward and a critic: weights and Adam's state of two of them."""

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512))

    policy, reference, reward, critic = (network() for _ in range(4))
    for frozen in (reference, reward):
        frozen.requires_grad_(False)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (policy, critic)]
    for _ in range(2):
        x = torch.randn(8, 512)
        with torch.no_grad():
            wanted, score = reference(x), reward(x)
        loss = (policy(x) - wanted).square().mean() + (critic(x) - score).square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()


@failing(Gpu(730 * MIB, scale=16), "giant accumulate", "shard others expandable inference graph")
def masks_of_many_classes() -> None:
    """A Dice loss makes one-hot masks of integers of 8 bytes, [batch, height, width, classes]."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 40, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in (1, 1, 6):
        wanted = torch.randint(0, 40, (rows, 96, 96))
        optimizer.zero_grad()
        found = model(torch.randn(rows, 3, 96, 96)).softmax(1)
        masks = functional.one_hot(wanted, 40).permute(0, 3, 1, 2).float()
        (1 - (2 * found * masks).sum() / (found + masks).sum()).backward()
        optimizer.step()


@failing(
    Gpu(900 * MIB, scale=64),
    "shard",
    "checkpoint accumulate precision others expandable giant graph inference set_to_none",
)
def micro_batches_of_a_large_table() -> None:
    """Few rows of a table are used, but its gradient has all of them, and a micro-batch's is added to it."""
    words, head = nn.Embedding(20_000, 64), nn.Linear(64, 2)
    optimizer = torch.optim.SGD([*words.parameters(), *head.parameters()], lr=0.1)
    for step in range(8):
        head(words(torch.randint(0, 20_000, (16, 8)))).square().mean().backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@failing(
    Gpu(400 * MIB, scale=32),
    "hooks other inference",
    "shard checkpoint accumulate others giant graph expandable",
)
def scores_of_each_token_kept() -> None:
    """A generation keeps the scores of all words at each token, to return them."""
    model, head, kept = nn.GRUCell(64, 64), nn.Linear(64, 8_000), list[Any]()
    with torch.inference_mode():
        state = torch.zeros(8, 64)
        for _ in range(100):
            state = model(torch.randn(8, 64), state)
            kept.append(head(state))


@failing(Gpu(370 * MIB, scale=32), "expandable", "shard others giant inference graph")
def images_of_many_sizes() -> None:
    """A detector is trained with images of another size at each step; old blocks fit none of them."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 4, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for size in (64, 96, 72, 104, 80, 112, 88, 120, 76, 124, 84, 128):
        optimizer.zero_grad()
        model(torch.randn(2, 3, size, size)).square().mean().backward()
        optimizer.step()


@failing(
    Gpu(350 * MIB, free_bytes=6000 * MIB, scale=32),
    "others",
    "shard checkpoint accumulate expandable giant graph",
)
def a_server_with_its_share() -> None:
    """A server may use a tenth of the GPU, and a large request does not fit in it."""
    model = Language(4).eval()
    with torch.inference_mode():
        for rows in (4, 8, 4, 16, 96):
            model(texts(rows))


@failing(Gpu(300 * MIB, scale=32), "hooks other", "shard checkpoint accumulate others expandable giant")
def features_that_a_hook_keeps() -> None:
    """A hook appends a layer's output at each training step, to draw it at the end of the epoch."""
    model, features = Language(2), list[Any]()
    model.blocks[0].register_forward_hook(lambda module, inputs, output: features.append(output))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(36):
        optimizer.zero_grad()
        loss_of(model, texts(8)).backward()
        optimizer.step()


@failing(
    Gpu(560 * MIB, scale=32),
    "other",
    "checkpoint accumulate precision others expandable giant graph inference",
)
def a_long_history_of_lbfgs() -> None:
    """The optimizer keeps directions and gradients of its last hundred iterations."""
    model = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 64))
    x, y = torch.randn(64, 128), torch.randn(64, 64)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=20)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)


@failing(Gpu(640 * MIB, scale=32), BATCH, "shard others expandable giant inference graph")
def lengths_that_vary_up_to_one_too_long() -> None:
    """Lengths differ from step to step, but what does not fit at last is too large for an empty GPU, too."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in (40, 56, 32, 64, 48, 72, 36, 200):
        optimizer.zero_grad()
        loss_of(model, texts(16, length)).backward()
        optimizer.step()
