"""Jobs that run out of memory, written after those of failing_too.py, and diagnosed once before anything was
mended."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(400 * MIB, scale=32), BATCH, "shard others expandable giant graph")
def adversary_with_the_generators_graph() -> None:
    """A discriminator is trained through the generator, whose results are not detached."""
    generator = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Tanh())
    judge = nn.Sequential(nn.Linear(512, 256), nn.LeakyReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(judge.parameters())
    for rows in (64, 64, 2048):
        optimizer.zero_grad()
        functional.softplus(judge(generator(torch.randn(rows, 64)))).mean().backward()
        optimizer.step()


@failing(Gpu(470 * MIB, scale=16), "inputs before other", "shard checkpoint accumulate precision giant graph")
def data_set_on_the_gpu() -> None:
    """All of the data set was put on the GPU before training; each step takes some rows of it."""
    data = torch.randn(28_000, 256)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        rows = data[torch.randint(0, len(data), (256,))]
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


@failing(Gpu(600 * MIB, scale=64), "before shard other", "checkpoint accumulate precision others giant graph")
def the_model_of_an_earlier_cell() -> None:
    """A notebook's cell makes a new model while the old one, and its optimizer, are still there."""

    def trained() -> Any:
        model = nn.Sequential(*(nn.Linear(384, 384) for _ in range(3)))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 384)).square().mean().backward()
            optimizer.step()
        return model, optimizer

    first = trained()
    second = trained()
    assert first is not second


@failing(Gpu(420 * MIB, scale=32), "inference", "shard checkpoint others expandable giant graph")
def larger_batches_in_validation() -> None:
    """Training fits; validation without gradients takes batches sixteen times as large."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, texts(4)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        loss_of(model, texts(96))


@failing(Gpu(900 * MIB, scale=16), BATCH, "shard others expandable inference graph")
def words_of_a_large_vocabulary() -> None:
    """Scores of all words at all positions, and their logarithms, are most of what is kept."""
    words, head = nn.Embedding(8_000, 32), nn.Linear(32, 8_000)
    optimizer = torch.optim.SGD([*words.parameters(), *head.parameters()], lr=0.1)
    for rows in (2, 2, 24):
        tokens = torch.randint(0, 8_000, (rows, 64))
        optimizer.zero_grad()
        functional.cross_entropy(head(words(tokens)).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()


@failing(Gpu(560 * MIB, scale=64), "shard", "checkpoint accumulate precision others expandable giant graph")
def an_average_of_the_weights_beside_adam() -> None:
    """Weights, their average, gradients and two states of each."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(2)))
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 512)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)


@failing(Gpu(300 * MIB, scale=32), "gradients other", "shard checkpoint accumulate others giant graph")
def gradients_of_all_steps() -> None:
    """Gradients are kept to estimate their noise at the end."""
    model, kept = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)), list[Any]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(16, 256)).square().mean().backward()
        kept.append([parameter.grad for parameter in model.parameters()])
        optimizer.step()


@failing(Gpu(280 * MIB, scale=64), "cache larger inference", "shard checkpoint others giant graph")
def beams_with_their_keys() -> None:
    """A search with beams reorders and extends the keys of each layer at every token."""
    layers = nn.ModuleList(nn.Linear(64, 128) for _ in range(2))
    keys = [torch.zeros(8, 0, 128) for _ in layers]
    with torch.inference_mode():
        for _ in range(300):
            x, order = torch.randn(8, 1, 64), torch.randint(0, 8, (8,))
            for number, layer in enumerate(layers):
                keys[number] = torch.cat([keys[number].index_select(0, order), layer(x)], 1)


@failing(Gpu(330 * MIB, scale=32), f"graph gradients {BATCH}", "shard others expandable giant inference")
def inner_steps_of_a_meta_learner() -> None:
    """Sixteen inner steps, through all of which the outer loss is differentiated."""
    weights = [torch.randn(256, 256, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for inner in (2, 2, 16):
        fast = weights
        for _ in range(inner):
            x = torch.randn(64, 256)
            loss = (torch.tanh(x @ fast[0]) @ fast[1]).square().mean()
            gradients = torch.autograd.grad(loss, fast, create_graph=True)
            fast = [w - 0.1 * g for w, g in zip(fast, gradients, strict=True)]
        optimizer.zero_grad()
        (torch.tanh(torch.randn(64, 256) @ fast[0]) @ fast[1]).square().mean().backward()
        optimizer.step()


@failing(Gpu(460 * MIB, scale=32), f"{BATCH} graph", "shard others expandable giant inference")
def two_losses_of_one_pass() -> None:
    """The graph is retained for the second of two losses."""
    body, heads = Language(3), [nn.Linear(256, 2) for _ in range(2)]
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    for rows in (4, 4, 40):
        optimizer.zero_grad()
        features = body(texts(rows))
        heads[0](features).square().mean().backward(retain_graph=True)
        heads[1](features).square().mean().backward()
        optimizer.step()
