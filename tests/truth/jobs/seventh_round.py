"""A seventh round of jobs, written by somebody who knew no rule, and before any diagnosis of them was seen:
six mistakes that public issues tell of, and three healthy jobs that look suspicious."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.utils.data import DataLoader, Dataset

from tests.truth.job import job
from tests.truth.jobs.loading import Rows
from tests.truth.parts import endless, mlp, rows, trainer

Sample = tuple[torch.Tensor, torch.Tensor]


class Stored(Dataset[Sample]):
    """Samples in a database, each found by its name."""

    def __init__(self, indexed: bool, count: int = 1_000) -> None:
        self.count = count
        self.base = sqlite3.connect(Path(tempfile.mkdtemp()) / "samples.db")
        self.base.execute("CREATE TABLE samples (name TEXT, label INTEGER, features BLOB)")
        features = np.random.default_rng(0).standard_normal((count, 512), dtype=np.float32)
        self.base.executemany(
            "INSERT INTO samples VALUES (?, ?, ?)",
            ((f"sample-{place}", place % 10, row.tobytes()) for place, row in enumerate(features)),
        )
        if indexed:
            self.base.execute("CREATE INDEX names ON samples (name)")
        self.base.commit()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        asked = self.base.execute("SELECT features, label FROM samples WHERE name = ?", (f"sample-{index}",))
        features, label = asked.fetchone()
        return torch.frombuffer(bytearray(features), dtype=torch.float32), torch.tensor(label)


@job(limiters="input", rules="GD101", functions="__getitem__ table_without_an_index")
def table_without_an_index(fixed: bool) -> Iterator[None]:
    """Samples are looked up by name in an SQL table, all of which is read for each; fixed: an index."""
    train = trainer(mlp())
    for inputs, targets in endless(DataLoader(Stored(indexed=fixed), batch_size=32, shuffle=True)):
        train(inputs, targets)
        yield


@job(
    limiters="input mixed compute",
    rules="GD101 GD106",
    functions="__iter__ _get_iterator __init__ start endless _shutdown_workers workers_started_each_epoch",
)
def workers_started_each_epoch(fixed: bool) -> Iterator[None]:
    """An epoch has five steps, and each starts two new workers; fixed: `persistent_workers=True`."""
    train = trainer(mlp(depth=8))
    data = torch.utils.data.Subset(Rows(), range(5 * 64))
    loader = DataLoader(
        data,
        batch_size=64,
        shuffle=True,
        num_workers=2,
        persistent_workers=fixed,
        multiprocessing_context="fork",  # as Python did by itself before 3.14: a few ms for each worker
    )
    for inputs, targets in endless(loader):
        train(inputs, targets)
        yield


class Picture(torch.Tensor):
    """A tensor that knows which files it comes from, and hands that on to what is computed from it."""

    files: list[str]

    @classmethod
    def __torch_function__(
        cls,
        function: Any,
        types: Sequence[type],
        arguments: tuple[Any, ...] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        found = super().__torch_function__(function, types, arguments, options or {})
        sources = [one for one in arguments if isinstance(one, Picture) and hasattr(one, "files")]
        if isinstance(found, Picture) and sources:
            found.files = sources[0].files
        return found


class Scaled(nn.Module):
    """A layer, and a scaled way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.layer(x) * self.scale + self.shift) * 0.5


@job(
    limiters="python launch",
    rules="GD102 GD201 GD202",
    functions="__torch_function__ _convert <listcomp> forward subclass_kept_in_the_model",
    allowed="GD102 GD201 GD202",  # fixed, it still calls small operators in sixty small layers
)
def subclass_kept_in_the_model(fixed: bool) -> Iterator[None]:
    """A loader's subclass of Tensor takes each operator through Python; fixed: `as_subclass`."""
    train = trainer(nn.Sequential(*(Scaled(64) for _ in range(60)), nn.Linear(64, 10)))
    inputs, targets = rows(32, 64)
    pictures = inputs.as_subclass(Picture)
    pictures.files = [f"{place}.png" for place in range(32)]
    while True:
        train(pictures.as_subclass(torch.Tensor) if fixed else pictures, targets)
        yield


class Player(nn.Module):
    """Chooses an action out of eight, and how hard to push."""

    def __init__(self, checked: bool) -> None:
        super().__init__()
        self.checked = checked
        self.body, self.choice, self.push = mlp(64, depth=1, classes=64), nn.Linear(64, 8), nn.Linear(64, 2)

    def forward(self, seen: torch.Tensor) -> tuple[Categorical, Normal]:
        found = torch.relu(self.body(seen))
        choice = Categorical(logits=self.choice(found), validate_args=self.checked)
        mean, spread = self.push(found).unbind(dim=1)
        return choice, Normal(mean, spread.exp(), validate_args=self.checked)


@torch.no_grad()
def play(player: Player, games: torch.Tensor, moves: int) -> torch.Tensor:
    """How probable the moves were, of each game."""
    total = torch.zeros(len(games))
    for _ in range(moves):
        choice, push = player(games)
        chosen, pushed = choice.sample(), push.sample()
        total += choice.log_prob(chosen) + push.log_prob(pushed)
        games = games.roll(1, dims=1) + 0.01 * (chosen + pushed)[:, None]
    return total


@job(
    limiters="python launch",
    rules="GD102 GD201 GD202 GD301",
    functions="__init__ _validate_sample log_prob check forward play distributions_validated",
)
def distributions_validated(fixed: bool) -> Iterator[None]:
    """In 64 moves of a game, distributions check their values and samples; fixed: `validate_args=False`."""
    player = Player(checked=not fixed)
    optimizer = torch.optim.Adam(player.parameters(), lr=0.0001)
    games = torch.randn(16, 64)
    while True:
        before = play(player, games, 64)
        optimizer.zero_grad()
        choice, push = player(games)
        (-(choice.entropy() + push.entropy()) * before).mean().backward()
        optimizer.step()
        yield


class Weighed:
    """Which transitions to replay: by their weights, which change as the model learns."""

    def __init__(self, count: int) -> None:
        self.weights = np.random.default_rng(0).random(count)

    def draw(self, count: int) -> np.ndarray[Any, Any]:
        return np.random.choice(len(self.weights), count, p=self.weights / self.weights.sum())

    def change(self, places: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> None:
        self.weights[places] = weights


class WeighedByTree(Weighed):
    """Sums of two, of four, … weights, so that a draw looks at twenty of them."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.sums = [self.weights]
        while len(self.sums[-1]) > 1:
            self.sums.append(self.sums[-1].reshape(-1, 2).sum(axis=1))

    def draw(self, count: int) -> np.ndarray[Any, Any]:
        places = np.zeros(count, dtype=np.int64)
        left = np.random.random(count) * self.sums[-1][0]
        for sums in reversed(self.sums[:-1]):
            places *= 2
            over = left >= sums[places]
            left -= np.where(over, sums[places], 0)
            places += over
        return places

    def change(self, places: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> None:
        super().change(places, weights)
        for below, sums in zip(self.sums, self.sums[1:], strict=False):
            places = places // 2
            sums[places] = below[2 * places] + below[2 * places + 1]


@job(limiters="python input", rules="GD102 GD101", functions="draw replay_drawn_from_all_weights")
def replay_drawn_from_all_weights(fixed: bool) -> Iterator[None]:
    """A replay buffer draws with `numpy.random.choice` from a million weights; fixed: with a tree of sums."""
    count = 2**20
    buffer = WeighedByTree(count) if fixed else Weighed(count)
    states, values = torch.randn(4_096, 512), torch.randn(4_096, 1)
    model = mlp(classes=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)
    while True:
        places = buffer.draw(128)
        chosen = torch.from_numpy(places % 4_096)
        optimizer.zero_grad()
        wrong = model(states[chosen]) - values[chosen]
        wrong.square().mean().backward()
        optimizer.step()
        buffer.change(places, wrong.detach().abs().squeeze(1).numpy() + 0.01)
        yield


def hardest_by_rank(losses: torch.Tensor, count: int) -> torch.Tensor:
    order = losses.argsort(dim=1, descending=True)
    return order.argsort(dim=1) < count


def hardest(losses: torch.Tensor, count: int) -> torch.Tensor:
    return losses >= losses.topk(count, dim=1).values[:, -1:]


@job(limiters="compute", rules="")
def anchors_sorted_twice(fixed: bool) -> Iterator[None]:
    """The hardest of 8,732 anchors are found by sorting their losses twice; fixed: by `topk`."""
    choose = hardest if fixed else hardest_by_rank
    layer = nn.Linear(16, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    anchors, found = torch.randn(32, 8_732, 16), torch.randint(2, (32, 8_732))
    while True:
        optimizer.zero_grad()
        scores = layer(anchors)
        losses = nn.functional.cross_entropy(scores.transpose(1, 2), found, reduction="none")
        with torch.no_grad():
            mask = choose(losses, 300)
        losses[mask].mean().backward()
        optimizer.step()
        yield


@job()
def healthy_large_optimizer(fixed: bool) -> Iterator[None]:
    """Few rows for many weights, so that their update, by a fused AdamW, takes as long as the passes."""
    model = mlp(1_024, depth=6)
    train = trainer(model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.0001, fused=True))
    batch = rows(64, 1_024)
    while True:
        train(*batch)
        yield


class Experts(nn.Module):
    """Each word goes to one of eight experts, which get their words sorted and in one piece."""

    def __init__(self, width: int = 256, count: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(count)
        )

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.gate(words).softmax(dim=1).max(dim=1)
        order = chosen.argsort()
        counts = chosen.bincount(minlength=len(self.experts)).tolist()
        parts = words[order].split(counts)
        done = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return words + shares[:, None] * torch.zeros_like(words).index_copy(0, order, done)


@job()
def healthy_experts(fixed: bool) -> Iterator[None]:
    """A mixture of experts, which reads how many words each one gets, and calls them one after the other."""
    train = trainer(nn.Sequential(Experts(), Experts(), nn.Linear(256, 10)))
    while True:
        train(*rows(512, 256))
        yield


@job()
def healthy_critic(fixed: bool) -> Iterator[None]:
    """A critic learns in each step, and the generator in every third one, which so takes longer."""
    generator, critic = mlp(classes=512), mlp(classes=1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=0.0001)
    of_critic = torch.optim.Adam(critic.parameters(), lr=0.0001)
    real, step = torch.randn(256, 512), 0
    while True:
        with torch.no_grad():
            made = generator(torch.randn(256, 512))
        of_critic.zero_grad()
        (critic(made).mean() - critic(real).mean()).backward()
        of_critic.step()
        if step % 3 == 2:
            of_generator.zero_grad()
            (-critic(generator(torch.randn(256, 512))).mean()).backward()
            of_generator.step()
        step += 1
        yield
