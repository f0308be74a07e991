"""Jobs that give the processor more operators, or slower ones, than their arithmetic needs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from tests.truth.job import job
from tests.truth.parts import mlp, rows, trainer

HOST = "python launch compute"
"""Limiters that are right where a processor spends its time on the cost of calls: no GPU waits for them."""


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


@job(limiters="compute", rules="")
def double_precision(fixed: bool) -> Iterator[None]:
    """A model in float64; fixed: in float32."""
    dtype = torch.float32 if fixed else torch.float64
    train = trainer(mlp(width=768).to(dtype))
    inputs, targets = rows(128, 768)
    while True:
        train(inputs.to(dtype), targets)
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


@job(limiters="compute", rules="GD303 GD506")
def casts_back_and_forth(fixed: bool) -> Iterator[None]:
    """A large tensor is cast to another type and back several times."""
    train = trainer(mlp())
    inputs, targets = rows(128)
    large = torch.randn(4_000_000)
    while True:
        found = large
        for _ in range(0 if fixed else 4):
            found = found.to(torch.bfloat16).to(torch.float32)
        train(inputs + found[0], targets)
        yield


def causal_mask(size: int) -> torch.Tensor:
    mask = torch.zeros(size, size)
    for row in range(size):
        mask[row, row + 1 :] = float("-inf")
    return mask


@job(limiters=HOST, rules="GD102 GD201 GD202", functions="causal_mask")
def mask_each_step(fixed: bool) -> Iterator[None]:
    """An attention mask is filled row by row in each step; fixed: once."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    train = trainer(nn.Sequential(layer), nn.functional.mse_loss)
    inputs = torch.randn(2, 512, 64)
    once = causal_mask(512)
    while True:
        mask = once if fixed else causal_mask(512)
        train(inputs + mask[0, 0], inputs)
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


def clip(parameters: list[nn.Parameter]) -> None:
    total = 0.0
    for parameter in parameters:
        assert parameter.grad is not None
        for row in parameter.grad:
            total += row.norm().item() ** 2
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad.mul_(1.0 / max(1.0, total**0.5))


@job(limiters=HOST, rules="GD102 GD301 GD201 GD202", functions="clip")
def clipping_by_hand(fixed: bool) -> Iterator[None]:
    """Gradients are clipped row by row in Python; fixed: by `clip_grad_norm_`."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(60)))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01, foreach=True)
    inputs = torch.randn(512, 64)
    while True:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        if fixed:
            nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        else:
            clip(parameters)
        optimizer.step()
        yield


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


def cell_by_cell(cell: nn.LSTMCell, inputs: torch.Tensor) -> torch.Tensor:
    hidden, memory = torch.zeros(4, 32), torch.zeros(4, 32)
    found = []
    for place in range(inputs.shape[1]):
        hidden, memory = cell(inputs[:, place], (hidden, memory))
        found.append(hidden)
    return torch.stack(found, dim=1)


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


@job(limiters="compute memory", rules="")
def fresh_buffers(fixed: bool) -> Iterator[None]:
    """A buffer of 200 MB is made anew in each step, so that the system maps it again; fixed: kept."""
    train = trainer(mlp())
    inputs, targets = rows(128)
    kept = torch.empty(50_000_000)
    while True:
        buffer = kept if fixed else torch.empty(50_000_000)
        buffer[::1_024] = 1.0
        train(inputs + buffer[0], targets)
        yield


@job(limiters="compute", rules="")
def autocast_on_a_processor_without_it(fixed: bool) -> Iterator[None]:
    """bfloat16 on a processor that has no instructions for it; fixed: float32."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(128)
    while True:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=not fixed):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        yield
