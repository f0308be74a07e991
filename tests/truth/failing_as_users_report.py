"""Jobs that run out of memory as in issues and in threads on forums, field by field: what trains, and scripts
around it.

What helps is what was found there, or what else makes the job fit. It was written down before any of them was
diagnosed.
"""

from __future__ import annotations

import collections
import io
import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.truth.failing import BATCH, MIB, Block, Language, failing, loss_of, texts
from tests.truth.gpu_snapshot import Gpu


def _twice(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class _UNet(nn.Module):
    def __init__(self, classes: int = 6) -> None:
        super().__init__()
        self.first, self.second, self.bottom = _twice(3, 16), _twice(16, 32), _twice(32, 64)
        self.up_second, self.up_first = _twice(96, 32), _twice(48, 16)
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, x: Any) -> Any:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        x = self.bottom(functional.max_pool2d(second, 2))
        x = self.up_second(torch.cat([functional.interpolate(x, scale_factor=2.0), second], 1))
        return self.head(self.up_first(torch.cat([functional.interpolate(x, scale_factor=2.0), first], 1)))


@failing(Gpu(3584 * MIB, scale=32), BATCH, "shard others pad giant inference graph")
def unet_on_a_small_card() -> None:
    """A U-Net of six classes trains with batches of 20 on a small card, and fails in its first step."""
    model = _UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(3):
        images, masks = torch.randn(20, 3, 64, 64), torch.rand(20, 6, 64, 64).round()
        optimizer.zero_grad()
        predicted = model(images)
        loss = functional.binary_cross_entropy_with_logits(predicted, masks)
        overlap = (torch.sigmoid(predicted) * masks).sum()
        (loss + 1 - 2 * overlap / (predicted.numel() + masks.sum())).backward()
        optimizer.step()


@failing(Gpu(1152 * MIB, scale=32), BATCH, "shard others inference graph")
def one_very_long_sentence() -> None:
    """Sentences have 20 to 40 tokens; then one of 320 is among them, and all are padded to its length."""
    model = Language(3)
    optimizer = torch.optim.Adam(model.parameters())
    longest = [24, 31, 40, 28, 36, 320, 30]
    for length in longest:
        sentences = [texts(1, int(n))[0] for n in torch.randint(length // 2, length, (7,))]
        batch = nn.utils.rnn.pad_sequence([*sentences, texts(1, length)[0]], batch_first=True)
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def _overlaps(wanted: Any, anchors: Any) -> Any:
    """[N, 4] and [M, 4] to [N, M]."""
    low = torch.max(wanted[:, None, :2], anchors[None, :, :2])
    high = torch.min(wanted[:, None, 2:], anchors[None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (wanted, anchors)]
    return common / (areas[0][:, None] + areas[1][None] - common)


def _boxes(count: int) -> Any:
    corners = torch.rand(count, 2)
    return torch.cat([corners, corners + 0.05 + 0.2 * torch.rand(count, 2)], 1)


@failing(Gpu(2048 * MIB, scale=64), "giant", "shard checkpoint accumulate others inference graph")
def boxes_of_a_crowded_image() -> None:
    """A detector trains until an image with 400 ships is to be matched with all anchors at once."""
    features = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
    scores, offsets = nn.Conv2d(16, 12, 1), nn.Conv2d(16, 48, 1)
    weights = [*features.parameters(), *scores.parameters(), *offsets.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.01, momentum=0.9)
    anchors = _boxes(12 * 24 * 24)
    for count in (8, 14, 5, 21, 400, 9):
        image, wanted = torch.randn(1, 3, 96, 96), _boxes(count)
        x = features(image)
        score, offset = scores(x).flatten(), offsets(x).reshape(-1, 4)
        with torch.no_grad():
            best, which = _overlaps(wanted, anchors).max(0)
            target, found = (best > 0.5).float(), (wanted[which] - anchors) * (best > 0.5)[:, None]
        loss = functional.binary_cross_entropy_with_logits(score, target)
        loss = loss + functional.smooth_l1_loss(offset, found)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class _EdgeConvolution(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, outputs)

    def forward(self, x: Any, edges: Any, weight: Any) -> Any:
        x = self.project(x)
        messages = x[edges[0]] * weight[:, None]
        return torch.zeros_like(x).index_add(0, edges[1], messages)


class _Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = [32, 64, 64, 64]
        self.layers = nn.ModuleList(_EdgeConvolution(a, b) for a, b in itertools.pairwise(widths))
        self.head = nn.Linear(64, 12)

    def forward(self, x: Any, edges: Any, weight: Any) -> Any:
        for layer in self.layers:
            x = functional.dropout(functional.relu(layer(x, edges, weight)), 0.5, self.training)
        return self.head(x)


# Parts of the graph with their neighbours are what was advised: `accumulate` is the advice of that kind.
@failing(Gpu(4096 * MIB, scale=64), f"{BATCH} giant", "shard others inference graph")
def messages_of_the_whole_graph() -> None:
    """A graph network takes all nodes and edges as one batch: its messages have a row for each edge."""
    x, edges = torch.randn(3000, 32), torch.randint(0, 3000, (2, 40000))
    weight, labels = torch.rand(40000).requires_grad_(), torch.randint(0, 12, (3000,))
    model = _Graph()
    optimizer = torch.optim.Adam([*model.parameters(), weight], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        found = model(x, edges, weight)
        functional.cross_entropy(found[:600], labels[:600]).backward()
        optimizer.step()


class _Denoiser(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.inwards, self.outwards = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.time, self.text = nn.Linear(1, width), nn.Linear(64, width)
        self.mixes = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.attends = nn.ModuleList(Block(width) for _ in range(3))

    def forward(self, x: Any, time: Any, text: Any) -> Any:
        x = self.inwards(x) + (self.time(time) + self.text(text.mean(1)))[:, :, None, None]
        for mix, attend in zip(self.mixes, self.attends, strict=True):
            x = x + functional.silu(mix(x))
            x = attend(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(x.shape)
        return self.outwards(x)


@failing(Gpu(3200 * MIB, scale=64), BATCH, "shard others inference graph giant")
def diffusion_without_recomputing() -> None:
    """A diffusion model that makes images well is fine-tuned, and its first step does not fit."""
    encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 4, 3, 2, 1)).requires_grad_(
        False
    )
    words = nn.Embedding(256, 64).requires_grad_(False)
    model = _Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    for _ in range(3):
        images, prompts, time = torch.randn(4, 3, 128, 128), texts(4, 20), torch.rand(4, 1)
        with torch.no_grad():
            latents, text = encoder(images), words(prompts)
        noise = torch.randn_like(latents)
        noisy = (1 - time)[:, :, None, None] * latents + time[:, :, None, None] * noise
        loss = functional.mse_loss(model(noisy, time, text), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class _Trainer:
    """As such classes do: it holds the model and its optimizer."""

    def __init__(self, width: int, rate: float) -> None:
        self.model = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 8)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)

    def train(self, steps: int = 4) -> float:
        last = 0.0
        for _ in range(steps):
            loss = functional.cross_entropy(self.model(torch.randn(32, 64)), torch.randint(0, 8, (32,)))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            last = loss.item()
        return last


@failing(
    Gpu(1024 * MIB, scale=64), "models before other", "checkpoint accumulate others expandable shard giant"
)
def trials_that_keep_their_models() -> None:
    """A search over hyperparameters notes the trainer of each trial beside its score."""
    trials: list[tuple[float, _Trainer]] = []
    for trial in range(8):
        trainer = _Trainer(384 + 32 * (trial % 3), 10.0 ** -(2 + trial % 3))
        trials.append((trainer.train(), trainer))
    min(trials, key=lambda trial: trial[0])


def _layers() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.GELU())))


def _checkpoint() -> bytes:
    """What an earlier run saved. It is made before the job, whose recording has nothing of it."""
    file = io.BytesIO()
    with torch.random.fork_rng():
        model = _layers()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        model(torch.randn(8, 512)).square().mean().backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    return file.getvalue()


SAVED = _checkpoint()


@failing(Gpu(1300 * MIB, scale=64), "load before", "checkpoint accumulate others giant inference graph")
def resumed_beside_its_checkpoint() -> None:
    """It trained well from scratch; resumed, the loaded checkpoint stays on the GPU beside the model."""
    checkpoint = torch.load(io.BytesIO(SAVED))
    model = _layers()
    model.load_state_dict(checkpoint["model"])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    optimizer.load_state_dict(checkpoint["optimizer"])
    for _ in range(3):
        loss = model(torch.randn(8, 512)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _speech(blocks: int, width: int = 256) -> nn.Module:
    return nn.Sequential(nn.Linear(80, width), *(Block(width) for _ in range(blocks))).eval()


@failing(
    Gpu(1200 * MIB, scale=64), "before models", "checkpoint accumulate others expandable giant graph shard"
)
def three_models_for_one_recording() -> None:
    """It transcribes, then aligns words, then tells speakers apart, each with a model of its own."""
    sound = torch.randn(1, 150, 80)
    with torch.no_grad():
        transcriber = _speech(3)
        text = [transcriber(part).argmax(-1).tolist() for part in sound.split(50, 1)]
        aligner = _speech(2)
        words = [aligner(part).argmax(-1).tolist() for part in sound.split(50, 1)]
        speakers = _speech(2)
        turns = [speakers(part).argmax(-1).tolist() for part in sound.split(50, 1)]
    print(len(text), len(words), len(turns))


def _picked(memory: Any) -> tuple[Any, Any, Any, Any]:
    steps = [memory[int(i)] for i in torch.randint(0, len(memory), (8,))]
    before, actions, after, rewards = zip(*steps, strict=True)
    return torch.cat(before), torch.tensor(actions), torch.cat(after), torch.tensor(rewards)


@failing(
    Gpu(1280 * MIB, scale=92), "other inputs", "shard checkpoint accumulate others expandable giant graph"
)
def frames_in_the_replay_memory() -> None:
    """Deep Q-learning keeps 10,000 steps on the GPU, each with four stacked frames before and after it."""
    network = nn.Sequential(
        nn.Conv2d(4, 8, 4, 4), nn.ReLU(), nn.Conv2d(8, 16, 4, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
    )
    memory: Any = collections.deque(maxlen=10_000)
    frames = collections.deque([torch.rand(84, 84) for _ in range(4)], maxlen=4)
    state = torch.stack(list(frames))[None]
    network(state)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    for step in range(160):
        with torch.no_grad():
            action = network(state).argmax(1).item()
        frames.append(torch.rand(84, 84))
        following = torch.stack(list(frames))[None]
        memory.append((state, action, following, float(step % 7 == 0)))
        state = following
        if step >= 24 and step % 8 == 0:
            before, actions, after, rewards = _picked(memory)
            with torch.no_grad():
                wanted = rewards + 0.99 * network(after).max(1).values
            values = network(before)[torch.arange(8), actions]
            loss = functional.smooth_l1_loss(values, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
