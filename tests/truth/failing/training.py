"""Training of any model: batches, optimizers, checkpoints, searches and notebooks."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing.job import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


@failing(Gpu(600 * MIB, scale=32), BATCH, "shard others expandable pad giant inference")
def batch_too_large() -> None:
    """The first forward pass of a transformer does not fit."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, texts(64)).backward()
        optimizer.step()


@failing(Gpu(1400 * MIB, scale=32), f"expandable {BATCH}", "shard others giant inference")
def longer_batch_in_a_later_step() -> None:
    """Three steps fit; the fourth has longer texts. With expandable segments, it all fits."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, texts(16, 128 if step == 3 else 64)).backward()
        optimizer.step()


def _wide(layers: int = 6) -> nn.Module:
    return nn.Sequential(*(nn.Linear(512, 512) for _ in range(layers)))


@failing(Gpu(1000 * MIB, scale=64), "shard", "checkpoint accumulate others expandable giant inference")
def state_of_adam() -> None:
    """Weights and gradients fit; the first optimizer step makes state."""
    model = _wide()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 512)).sum().backward()
    optimizer.step()


@failing(Gpu(300 * MIB, scale=64), "shard", "checkpoint accumulate others expandable giant inference")
def weights_too_large() -> None:
    """The model alone does not fit."""
    _wide()


@failing(Gpu(420 * MIB, scale=8), "graph", "shard others expandable giant")
def losses_kept() -> None:
    """A list keeps the loss of each step with its graph."""
    model, kept = Language(2), []
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(24):
        train, valid = loss_of(model, texts(4)), loss_of(model, texts(8))
        optimizer.zero_grad()
        train.backward()
        optimizer.step()
        kept.append(valid)


@failing(Gpu(760 * MIB, scale=64), "expandable", "shard checkpoint others giant inference")
def sizes_that_differ() -> None:
    """Texts of many lengths, and a small result of each is kept between them."""
    model, kept = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64)), []
    with torch.no_grad():
        for step in range(40):
            rows = 100 + 53 * step
            hidden = model[0](torch.randn(rows, 64))
            kept.append(torch.randn(6, 1024) + step)
            del hidden
        model[0](torch.randn(4700, 64))


@failing(
    Gpu(600 * MIB, free_bytes=4096 * MIB, scale=32), "others", "shard checkpoint accumulate expandable giant"
)
def limited_process() -> None:
    """set_per_process_memory_fraction leaves a part of the GPU."""
    batch_too_large()


@failing(Gpu(1100 * MIB, scale=16), BATCH, "shard others expandable giant inference graph")
def losses_summed_before_backward() -> None:
    """Sixteen micro-batches are added up, and backward is called once."""
    model = Language(2)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(16):
            total = total + loss_of(model, texts(16))
        total.backward()
        optimizer.step()


@failing(Gpu(900 * MIB, scale=64), "shard fused_optimizer", "checkpoint accumulate others giant inference")
def updates_of_all_weights_at_once() -> None:
    """foreach=True makes temporaries as large as all weights."""
    model = _wide(4)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 512)).sum().backward()
        optimizer.step()


@failing(Gpu(600 * MIB, scale=32, expandable=True), BATCH, "shard others expandable pad giant inference")
def batch_too_large_with_expandable_segments() -> None:
    """Segments are expandable already, and it is too little anyway."""
    batch_too_large()


@failing(Gpu(1100 * MIB, scale=32), "set_to_none", "shard others expandable giant inference")
def gradients_kept_through_forward() -> None:
    """zero_grad comes right before backward, so old gradients wait through the forward pass."""
    model = nn.Sequential(nn.Linear(512, 512), *(Block(512) for _ in range(1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.randn(2 + 6 * step, 64, 512)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@failing(Gpu(560 * MIB, scale=32), BATCH, "shard others expandable giant inference")
def recomputed_and_still_too_large() -> None:
    """Blocks are checkpointed already."""
    model = Language(6, recompute=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, texts(96)).backward()
        optimizer.step()


@failing(Gpu(500 * MIB, scale=32), BATCH, "shard others expandable giant inference graph")
def accumulated_as_it_should_be() -> None:
    """Gradients of four micro-batches are accumulated, and a micro-batch with long texts does not fit."""
    model = Language(3)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(12):
        (loss_of(model, texts(8, 128 if step == 9 else 48)) / 4).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@failing(
    Gpu(640 * MIB, scale=64),
    "load before other",
    "shard checkpoint accumulate precision others expandable giant graph",
)
def a_checkpoint_loaded_beside_the_model() -> None:
    """A checkpoint of weights and momenta is loaded onto the GPU, beside the model, and stays there."""
    model = nn.Sequential(*(nn.Linear(384, 384) for _ in range(3)))
    optimizer = torch.optim.Adam(model.parameters())
    file, weights = io.BytesIO(), model.state_dict()
    momenta = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    torch.save({"model": weights, "momenta": momenta}, file)
    del momenta
    file.seek(0)
    saved = torch.load(file)
    model.load_state_dict(saved["model"])
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(16, 384)).square().mean().backward()
        optimizer.step()
    assert saved


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


@failing(Gpu(280 * MIB, scale=64), f"expandable {BATCH}", "shard others giant inference graph")
def texts_that_grow_in_training() -> None:
    """Each step's texts are a little longer, and old blocks fit none of them."""
    model = nn.Sequential(nn.Embedding(256, 64), Block(), nn.Linear(64, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(24):
        optimizer.zero_grad()
        loss_of(model, texts(4, 20 + 4 * step)).backward()
        optimizer.step()


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


@failing(
    Gpu(300 * MIB, scale=16), "inference graph hooks", "shard checkpoint accumulate others expandable giant"
)
def passes_with_dropout_to_estimate_doubt() -> None:
    """After training, many passes with dropout are collected to get their spread, with autograd on."""
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 16))
    optimizer = torch.optim.Adam(model.parameters())

    def spread(x: Any) -> Any:
        return torch.stack([model(x) for _ in range(40)]).std(0)

    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(128, 64)).square().mean().backward()
        optimizer.step()
    spread(torch.randn(128, 64))


@failing(
    Gpu(300 * MIB, scale=16),
    "inputs before other",
    "shard checkpoint precision others expandable giant graph",
)
def all_batches_put_on_the_gpu_first() -> None:
    """To go faster, all batches of the loader are collected on the GPU before the epoch."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def collect() -> list[Any]:
        return [torch.randn(256, 256) for _ in range(64)]

    for batch in collect():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


@failing(Gpu(1200 * MIB, scale=16), "giant", "shard checkpoint others expandable inference pad")
def a_jacobian_between_all_samples_of_a_batch() -> None:
    """How much outputs change with inputs is asked of a batch, and comes for each pair of two samples."""
    model = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        x = torch.randn(128, 128)
        optimizer.zero_grad()
        (model(x).sum(1) - x[:, 0]).square().mean().backward()
        optimizer.step()
    of_pairs = torch.func.jacrev(model)(torch.randn(128, 128))
    own = torch.diagonal(of_pairs, dim1=0, dim2=2)
    own.square().sum((0, 1)).topk(5)


@failing(Gpu(900 * MIB, scale=32), "models before", "checkpoint accumulate others expandable giant inference")
def three_widths_in_three_cells() -> None:
    """A notebook trains one model in each cell, and keeps every model with its optimizer."""
    runs: dict[int, Any] = {}
    images, labels = torch.randn(32, 400), torch.randint(0, 10, (32,))
    for width in (512, 640, 768):
        model = nn.Sequential(
            *(nn.Linear(400, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, 10),
        )
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        runs[width] = (model, optimizer)


@failing(
    Gpu(900 * MIB, scale=32),
    "graph",
    "shard others expandable giant set_to_none",
)
def teacher_with_gradients_in_distillation() -> None:
    """A large teacher in eval mode, but with autograd on, scores the student's batch."""
    teacher = nn.Sequential(*(Block(128) for _ in range(6)), nn.Linear(128, 100)).eval()
    student = nn.Sequential(Block(128), nn.Linear(128, 100))
    optimizer = torch.optim.AdamW(student.parameters())
    for _ in range(3):
        batch = torch.randn(8, 48, 128)
        targets = teacher(batch).softmax(-1)
        loss = functional.cross_entropy(student(batch).flatten(0, 1), targets.flatten(0, 1).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _explore(session: dict[str, Any]) -> None:
    """The notebook's cells that look at the data: what they show stays in Out."""
    images = torch.rand(320, 3, 32, 32)
    session["Out"] = {4: (images - images.mean()) / images.std()}
    session["flat"] = images.flatten(1)
    session["Out"][6] = torch.corrcoef(session["flat"])
    session["Out"][7] = images.flip(-1)
    session["images"] = images


def _perceptron(width: int = 384, layers: int = 4) -> nn.Sequential:
    stack: list[nn.Module] = []
    for _ in range(layers):
        stack += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*stack, nn.Linear(width, 8))


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, rows: int = 8, width: int = 384) -> float:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(torch.randn(rows, width)), torch.randint(0, 8, (rows,)))
    loss.backward()
    optimizer.step()
    return loss.item()


@failing(
    Gpu(540 * MIB, scale=32),
    "before",
    "checkpoint accumulate others expandable giant inference graph",
)
def cells_of_data_exploration_before_training() -> None:
    """A notebook's earlier cells leave tensors on the GPU; the training cell finds too little."""
    session: dict[str, Any] = {}
    _explore(session)
    model = _perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        _train(model, optimizer)


def _customers_model(width: int = 384, layers: int = 3) -> nn.Module:
    hidden = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


@failing(Gpu(400 * MIB, scale=32), "models shard", "checkpoint accumulate others expandable giant graph")
def models_of_a_server() -> None:
    """A server loads the model of each customer at its first request, and keeps all of them."""
    loaded: dict[int, nn.Module] = {}
    with torch.no_grad():
        for customer in (0, 1, 0, 2, 1, 3, 4, 0, 5, 6, 7, 8, 9):
            if customer not in loaded:
                loaded[customer] = _customers_model().eval()
            loaded[customer](torch.randn(16, 64)).softmax(-1)


@failing(
    Gpu(1600 * MIB, scale=64), "models before", "others expandable giant accumulate checkpoint inference"
)
def a_table_of_models_trained_in_turn() -> None:
    """A script trains one model after another, and a dictionary keeps each with its optimizer."""
    trained: dict[str, Any] = {}
    for name in ("baseline", "deeper", "no dropout", "dropout", "cosine"):
        depth = 4 if name == "deeper" else 3
        model = nn.Sequential(*(nn.Linear(384, 384) for _ in range(depth)))
        optimizer = torch.optim.Adam(model.parameters())
        trained[name] = {"model": model, "optimizer": optimizer}
        for _ in range(3):
            optimizer.zero_grad()
            functional.mse_loss(model(torch.randn(16, 384)), torch.randn(16, 384)).backward()
            optimizer.step()
