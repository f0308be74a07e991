"""Jobs of teams at work that run out of GPU memory: trainers with callbacks, services, data preparation.

What helps was written down, and tried, before any of them was diagnosed.
"""

from __future__ import annotations

import copy
import io
import itertools
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


class Smoothed:
    """A value for the progress bar."""

    def __init__(self, keeps: float = 0.9) -> None:
        self.keeps, self.value = keeps, torch.zeros(())

    def update(self, value: Any) -> None:
        self.value = self.keeps * self.value + (1 - self.keeps) * value


@failing(Gpu(900 * MIB, scale=64), "graph metrics", "shard checkpoint others expandable giant inference")
def an_entropy_smoothed_for_the_progress_bar() -> None:
    """A trainer shows the moving average of the predictions' entropy, which holds on to each step's graph."""
    model, entropy = Language(1), Smoothed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(16):
        tokens = texts(8)
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        likely = logits.log_softmax(-1)
        entropy.update(-(likely.exp() * likely).sum(-1).mean())


class Watch:
    """Magnitudes inside the blocks, as of the last step."""

    def __init__(self, model: Language) -> None:
        self.magnitudes: dict[int, Any] = {}
        for number, block in enumerate(model.blocks):
            block.up.register_forward_hook(self.hook(number))

    def hook(self, number: int) -> Any:
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            self.magnitudes[number] = output.detach().abs()

        return keep


class Callbacks:
    def epoch_begins(self, model: Language) -> None:
        self.watch = Watch(model)

    def epoch_ends(self) -> dict[int, float]:
        return {number: values.max().item() for number, values in self.watch.magnitudes.items()}


@failing(Gpu(800 * MIB, scale=64), "hooks other", "shard checkpoint others expandable giant inference graph")
def magnitudes_watched_anew_in_each_epoch() -> None:
    """A callback registers its hooks at the beginning of each epoch and never removes them."""
    model, callbacks, history = Language(2), Callbacks(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        callbacks.epoch_begins(model)
        for _ in range(2):
            loss = loss_of(model, texts(8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        history.append(callbacks.epoch_ends())


class Writer:
    """Writes a checkpoint while the training goes on, so it needs a copy that stays as it is."""

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.pending = {
            "model": {name: weight.clone() for name, weight in model.state_dict().items()},
            "optimizer": copy.deepcopy(optimizer.state_dict()),
        }


def _perceptron() -> nn.Module:
    widths = [256, 1024, 512, 512, 256]
    layers = ([nn.Linear(*pair), nn.GELU()] for pair in itertools.pairwise(widths))
    return nn.Sequential(*itertools.chain(*layers))


@failing(
    Gpu(1750 * MIB, scale=64), "models other", "checkpoint accumulate others expandable giant inference pad"
)
def state_cloned_for_the_writer_of_checkpoints() -> None:
    """Training fits; then a checkpoint's copy of the weights and of Adam's state is made on the GPU."""
    model, writer = _perceptron(), Writer()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        loss = model(torch.randn(16, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 4:
            writer.save(model, optimizer)


def _saved(model: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.getvalue()


@failing(
    Gpu(1600 * MIB, scale=64),
    "load models other",
    "checkpoint accumulate attention others expandable giant inference",
)
def a_soup_of_all_checkpoints() -> None:
    """The weights of eight fine-tuning runs are loaded onto the GPU, to be averaged for an evaluation."""
    model = _perceptron()
    runs = [_saved(model)] * 8
    states = [torch.load(io.BytesIO(run)) for run in runs]
    for name, weight in model.state_dict().items():
        weight.copy_(torch.stack([state[name] for state in states]).mean(0))
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(64, 256))


def _trial(rate: float) -> float:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    x = torch.randn(64, 256)
    for _ in range(6):
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        if not loss.item() < 1e6:
            raise FloatingPointError(f"diverged at a rate of {rate}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@failing(
    Gpu(1140 * MIB, scale=64),
    "models before other",
    "checkpoint accumulate others expandable giant inference graph",
)
def diverged_trials_kept_by_their_errors() -> None:
    """A search lists the errors of trials that diverged, and each traceback holds model and optimizer."""
    losses: dict[float, float] = {}
    errors: list[FloatingPointError] = []
    for number in range(12):
        rate = math.exp(number - 6)
        try:
            losses[rate] = _trial(rate)
        except FloatingPointError as error:
            errors.append(error)


@failing(Gpu(1760 * MIB, scale=64), "set_to_none inference", "checkpoint accumulate others expandable pad")
def validation_beside_the_last_gradients() -> None:
    """A validation with larger batches runs while the gradients of the epoch's last step are still there."""
    model = _perceptron()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(16, 256)).square().mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                model(torch.randn(1200, 256)).square().mean()
        model.train()


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(256) for _ in range(4))

    def forward(self, x: Any, prompt: Any) -> Any:
        x = torch.cat([prompt, x], 1)
        for block in self.blocks:
            x = block(x)
        return x[:, prompt.shape[1] :]


@failing(
    Gpu(1500 * MIB, scale=64), "before models", "checkpoint accumulate others expandable giant inference pad"
)
def a_text_encoder_that_stays_after_the_prompts() -> None:
    """Nightly pictures: prompts are encoded first, and the encoder stays while the denoiser is made."""
    encoder = nn.Sequential(nn.Embedding(1024, 256), *(Block(256) for _ in range(5)))
    with torch.no_grad():
        prompts = [encoder(torch.randint(0, 1024, (4, 16))) for _ in range(6)]
        denoiser, pictures = Denoiser(), []
        for prompt in prompts:
            x = torch.randn(4, 64, 256)
            for _ in range(4):
                x = x - 0.1 * denoiser(x, prompt)
            pictures.append((x.mean(2) > 0).to(torch.uint8))


class Adapter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(256, 128, bias=False), nn.Linear(128, 256, bias=False)

    def forward(self, x: Any) -> Any:
        return self.up(self.down(x))


class Service:
    """One base model, and an adapter for each customer, which is loaded at the first request."""

    def __init__(self) -> None:
        self.read, self.write = nn.Linear(64, 256), nn.Linear(256, 64)
        self.adapters: dict[int, Adapter] = {}

    def answer(self, customer: int, request: Any) -> Any:
        hidden = functional.gelu(self.read(request))
        if customer not in self.adapters:
            self.adapters[customer] = Adapter()
        return self.write(hidden + self.adapters[customer](hidden))


@failing(Gpu(1090 * MIB, scale=64), "expandable pad", "shard checkpoint others giant graph")
def adapters_loaded_between_requests() -> None:
    """Requests of many lengths leave blocks that the adapters of new customers take small parts of."""
    service = Service()
    with torch.no_grad():
        for number in range(16):
            service.answer(number, torch.randn(200 + 150 * number, 64))
        service.answer(0, torch.randn(3000, 64))


@failing(
    Gpu(850 * MIB, scale=64),
    "larger cache other inference",
    "shard checkpoint accumulate attention others giant",
)
def an_index_joined_with_each_shard() -> None:
    """A search index is built on the GPU: embeddings of each shard of documents are joined to all before."""
    model = Language(2).eval()
    model.head = nn.Linear(64, 64)
    index = torch.zeros(0, 64)
    with torch.no_grad():
        for _ in range(60):
            embedded = functional.normalize(model(texts(16, 32)).flatten(0, 1), dim=-1)
            index = torch.cat([index, embedded])


class Student(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 4, stride=4)
        self.blocks = nn.Sequential(*(Block() for _ in range(2)))
        self.head = nn.Linear(64, 128)

    def forward(self, images: Any) -> Any:
        return self.head(self.blocks(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


@failing(Gpu(800 * MIB, scale=64), BATCH, "shard others expandable giant inference graph")
def crops_of_a_self_supervised_student() -> None:
    """A student sees two large and six small crops of each image before one backward pass."""
    student = Student()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters())
    for _ in range(2):
        large = [torch.randn(8, 3, 32, 32) for _ in range(2)]
        small = [torch.randn(8, 3, 16, 16) for _ in range(6)]
        with torch.no_grad():
            wanted = [teacher(crop).softmax(-1) for crop in large]
        found = [student(crop).log_softmax(-1) for crop in [*large, *small]]
        losses = [-(one * target).sum(-1).mean() for target in wanted for one in found]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.01)


def _windows(series: Any, length: int) -> Any:
    """[windows, channels, length], each with a mean of 0 and a deviation of 1."""
    windows = series.unfold(0, length, 1)
    return (windows - windows.mean(2, keepdim=True)) / windows.std(2, keepdim=True)


@failing(Gpu(1000 * MIB, scale=32), "giant inputs", "shard checkpoint accumulate others expandable graph")
def windows_of_a_long_recording_of_sensors() -> None:
    """Before a forecaster is trained, each window of 128 readings is cut out and normalized, all at once."""
    windows = _windows(torch.randn(6000, 8), 128)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8 * 96, 64), nn.ReLU(), nn.Linear(64, 8 * 32))
    optimizer = torch.optim.Adam(model.parameters())
    for batch in windows.split(64)[:20]:
        loss = (model(batch[:, :, :96]) - batch[:, :, 96:].flatten(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
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
