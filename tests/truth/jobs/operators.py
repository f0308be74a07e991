"""Arithmetic that is done in a slow way, and work that nobody needs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributions import Categorical, Normal

from tests.truth.job import job
from tests.truth.jobs.parts import HOST, mlp, rows, trainer


def loss_by_sample(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for index in range(len(outputs)):
        total = total + nn.functional.cross_entropy(outputs[index : index + 1], targets[index : index + 1])
    return total / len(outputs)


@job(limiters=HOST, rules="GD102 GD201 GD202", functions="loss_by_sample")
def loss_sample_by_sample(fixed: bool) -> Iterator[None]:
    """The loss is summed in a loop over the samples; fixed: in one call."""
    train = trainer(mlp(width=256), nn.functional.cross_entropy if fixed else loss_by_sample)
    batch = rows(256, 256)
    while True:
        train(*batch)
        yield


class HandWritten(torch.optim.Optimizer):
    """Adam, one small operator after another."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.first = [torch.zeros_like(p) for p in parameters]
        self.second = [torch.zeros_like(p) for p in parameters]
        self.parameters = parameters

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        for parameter, first, second in zip(self.parameters, self.first, self.second, strict=True):
            assert parameter.grad is not None
            first.copy_(0.9 * first + 0.1 * parameter.grad)
            second.copy_(0.999 * second + 0.001 * parameter.grad * parameter.grad)
            parameter.copy_(parameter - 1e-3 * first / (second.sqrt() + 1e-8))


@job(limiters=HOST, rules="GD102 GD201 GD202", functions="step")
def optimizer_in_python(fixed: bool) -> Iterator[None]:
    """An optimizer of small operators on many small parameters; fixed: Adam with `fused=True`."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(60)))
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, fused=True) if fixed else HandWritten(parameters)
    train = trainer(model, nn.functional.mse_loss, optimizer)
    inputs = torch.randn(512, 64)
    while True:
        train(inputs, inputs)
        yield


@job(limiters="compute", rules="GD303 GD506")
def copies_for_layout(fixed: bool) -> Iterator[None]:
    """Large tensors are transposed and made contiguous again and again; fixed: not at all."""
    train = trainer(mlp())
    inputs, targets = rows(128)
    large = torch.randn(2_048, 2_048)
    while True:
        found = large
        for _ in range(0 if fixed else 4):
            found = found.t().contiguous()
        train(inputs + found[0, 0], targets)
        yield


@job(limiters="compute", rules="")
def one_hot_matmul(fixed: bool) -> Iterator[None]:
    """Words are looked up by a matmul with one-hot rows; fixed: by index."""
    table = nn.Parameter(torch.randn(8_000, 256))
    model = mlp(width=256, depth=3)
    optimizer = torch.optim.SGD([*model.parameters()], lr=0.01)
    words = torch.randint(8_000, (512,))
    targets = torch.randint(10, (512,))
    while True:
        inputs = table[words] if fixed else nn.functional.one_hot(words, 8_000).float() @ table
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs.detach()), targets).backward()
        optimizer.step()
        yield


@job(limiters=HOST, rules="GD102 GD301 GD201 GD202", functions="item_by_item")
def item_by_item(fixed: bool) -> Iterator[None]:
    """Each prediction is read with `.item()`; fixed: all with one `.tolist()`."""
    model = mlp()
    train = trainer(model)
    inputs, targets = rows(128)
    many = torch.rand(10_000)
    while True:
        train(inputs, targets)
        values = many.tolist() if fixed else [value.item() for value in many]
        assert len(values) == len(many)
        yield


def cell_by_cell(cell: nn.LSTMCell, inputs: torch.Tensor) -> torch.Tensor:
    hidden, memory = torch.zeros(4, 32), torch.zeros(4, 32)
    found = []
    for place in range(inputs.shape[1]):
        hidden, memory = cell(inputs[:, place], (hidden, memory))
        found.append(hidden)
    return torch.stack(found, dim=1)


@job(limiters=HOST, rules="GD102 GD201 GD202", functions="cell_by_cell")
def recurrence_by_hand(fixed: bool) -> Iterator[None]:
    """A recurrent layer as a loop over the time steps; fixed: nn.LSTM."""
    cell, whole = nn.LSTMCell(32, 32), nn.LSTM(32, 32, batch_first=True)
    optimizer = torch.optim.SGD([*cell.parameters(), *whole.parameters()], lr=0.01)
    inputs = torch.randn(4, 256, 32)
    while True:
        optimizer.zero_grad()
        found = whole(inputs)[0] if fixed else cell_by_cell(cell, inputs)
        found.mean().backward()
        optimizer.step()
        yield


@job(limiters="compute", rules="")
def padded_to_the_longest(fixed: bool) -> Iterator[None]:
    """Sequences of 64 are padded to 512; fixed: not padded."""
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0)
    train = trainer(nn.Sequential(layer), nn.functional.mse_loss)
    inputs = torch.randn(4, 64 if fixed else 512, 256)
    while True:
        train(inputs, inputs)
        yield


@job(limiters="compute memory", rules="")
def too_many_threads(fixed: bool) -> Iterator[None]:
    """Sixteen threads on two cores; fixed: two."""
    torch.set_num_threads(2 if fixed else 16)
    train = trainer(mlp(depth=8))
    batch = rows(128)
    while True:
        train(*batch)
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


def penalty_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """How fast the output changes with the input, as a loss that has a gradient itself."""
    inputs = inputs.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    return slope.square().sum(dim=1).mean()


def smooth(width: int = 512, depth: int = 4) -> nn.Module:
    """A perceptron whose output changes smoothly."""
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.SiLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


@job(limiters="compute", rules="")
def penalty_with_weight_zero(fixed: bool) -> Iterator[None]:
    """A penalty of gradients is computed although its weight has fallen to zero; fixed: it is left out."""
    model = smooth()
    inputs, targets = rows(256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weight = 0.0
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if weight > 0 or not fixed:
            loss = loss + weight * penalty_of(model, inputs)
        loss.backward()
        optimizer.step()
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
