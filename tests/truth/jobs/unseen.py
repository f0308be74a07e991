"""Jobs of one process that were written after the rules were mended for the others, and not tuned to."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from tests.truth.job import job
from tests.truth.jobs.operators import HOST
from tests.truth.parts import mlp, rows, trainer


@job()
def healthy_checkpoint_now_and_then(fixed: bool) -> Iterator[None]:
    """A checkpoint every fiftieth step, one of which is recorded."""
    model = mlp(width=1_024)
    train = trainer(model)
    batch = rows(256, 1_024)
    path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
    step = 0
    while True:
        train(*batch)
        step += 1
        if step % 50 == 40:
            torch.save(model.state_dict(), path)
        yield


@job()
def healthy_progress_bar(fixed: bool) -> Iterator[None]:
    """A progress bar with the loss, drawn once a step."""
    train = trainer(mlp(width=1_024))
    batch = rows(256, 1_024)
    step = 0
    while True:
        loss = train(*batch)
        step += 1
        done = "#" * (step % 40)
        sys.stderr.write(f"\r{step:6} [{done:40}] loss {loss.item():.4f}")
        yield


@job()
def healthy_rollouts_and_updates(fixed: bool) -> Iterator[None]:
    """Reinforcement learning: a step plays eight moves in many games, then learns from them."""
    policy, value = mlp(width=512, classes=8), mlp(width=512, classes=1)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], foreach=True)
    moving = torch.randn(8, 512)
    state = torch.randn(64, 512)
    while True:
        states, actions, rewards = [], [], []
        with torch.no_grad():
            for _ in range(8):
                action = torch.distributions.Categorical(logits=policy(state)).sample()
                states.append(state)
                actions.append(action)
                state = torch.tanh(state + moving[action])
                rewards.append(state.mean(dim=1))
        seen, done, won = torch.cat(states), torch.cat(actions), torch.cat(rewards)
        for _ in range(2):
            optimizer.zero_grad()
            chance = torch.distributions.Categorical(logits=policy(seen)).log_prob(done)
            guess = value(seen).squeeze(1)
            loss = nn.functional.mse_loss(guess, won) - (chance * (won - guess.detach())).mean()
            loss.backward()
            optimizer.step()
        yield


@job()
def healthy_adversaries(fixed: bool) -> Iterator[None]:
    """A generator and a discriminator that learn by turns."""
    maker, judge = mlp(width=768, classes=768), mlp(width=768, classes=1)
    makes = torch.optim.Adam(maker.parameters(), foreach=True)
    judges = torch.optim.Adam(judge.parameters(), foreach=True)
    real = torch.randn(256, 768)
    loss = nn.functional.binary_cross_entropy_with_logits
    yes, no = torch.ones(256, 1), torch.zeros(256, 1)
    while True:
        made = maker(torch.randn(256, 768))
        judges.zero_grad()
        (loss(judge(real), yes) + loss(judge(made.detach()), no)).backward()
        judges.step()
        makes.zero_grad()
        loss(judge(made), yes).backward()
        makes.step()
        yield


@job(limiters=HOST, rules="GD107", allowed="GD102", timed=20)  # fixed, 2,899 operators take 6 ms of CPU time
def anomaly_detection_left_on(fixed: bool) -> Iterator[None]:
    """`torch.autograd.set_detect_anomaly` was left on after a debugging session; fixed: off."""
    torch.autograd.set_detect_anomaly(not fixed)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128)) for _ in range(40)))
    train = trainer(model, nn.functional.mse_loss)
    inputs = torch.randn(32, 128)
    while True:
        train(inputs, inputs)
        yield


@job(limiters="compute memory", rules="GD506 GD303 GD405 GD106 GD102", allowed="GD405")
def predictions_concatenated(fixed: bool) -> Iterator[None]:
    """All predictions so far are concatenated anew in each step; fixed: in a list, which grows as well."""
    train = trainer(mlp())
    batch = rows()
    seen = torch.randn(12_000_000)
    parts: list[torch.Tensor] = []
    while True:
        train(*batch)
        predictions = torch.randn(1_280)
        if fixed:
            parts.append(predictions)
        else:
            seen = torch.cat([seen, predictions])
        yield


@job(limiters="compute memory", rules="GD514", functions="dense_gradients_of_a_table")
def dense_gradients_of_a_table(fixed: bool) -> Iterator[None]:
    """A large table of words has dense gradients, although a step uses few words; fixed: sparse ones."""
    table = nn.Embedding(100_000, 64, sparse=fixed)
    head = mlp(width=64, depth=2)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.01)
    words, targets = torch.randint(100_000, (256,)), torch.randint(10, (256,))
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(table(words)), targets).backward()
        optimizer.step()
        yield
