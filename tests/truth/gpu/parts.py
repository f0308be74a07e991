"""Models that several jobs on a GPU share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset


class Block(nn.Module):
    """A block of a transformer, with torch's fused attention unless `attention` is given."""

    def __init__(self, width: int, heads: int, attention: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention or nn.functional.scaled_dot_product_attention
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Language(nn.Module):
    """A small language model."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int, length: int = 1_024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places.weight[: words.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Residual(nn.Module):
    """A stage of a residual network."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = torch.relu(x + convolution(x))
        return x


class Images(nn.Module):
    """A small residual network: images of three colors to ten classes."""

    def __init__(self, width: int = 64, depth: int = 6) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.stage, self.last = Residual(width, depth), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.stage(torch.relu(self.first(x))).mean(dim=(2, 3)))


class Recurrent(nn.Module):
    """cuDNN's LSTM."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


Train = Callable[[Tensor, Tensor], Tensor]


def trainer(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    bf16: bool = True,
) -> Train:
    """Return a function that trains a model on one batch, under autocast if `bf16`."""
    chosen = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def train(inputs: Tensor, targets: Tensor) -> Tensor:
        chosen.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            found = loss(model(inputs), targets)
        found.backward()
        chosen.step()
        return found

    return train


def of_words(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a language model."""
    return nn.functional.cross_entropy(outputs.flatten(0, 1).float(), targets.flatten())


def perceptron(width: int, depth: int, classes: int = 10) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def images(count: int, side: int, device: str = "cuda") -> tuple[Tensor, Tensor]:
    """Random images and their classes."""
    return torch.rand(count, 3, side, side, device=device), torch.randint(10, (count,), device=device)


def words(count: int, length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Random words, and the words that follow them."""
    found = torch.randint(vocabulary, (count, length + 1), device="cuda")
    return found[:, :-1].contiguous(), found[:, 1:].contiguous()


class Slow(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = torch.rand(3, 96, 96)
        for _ in range(3):
            image = nn.functional.avg_pool2d(image, 3, stride=1, padding=1)
        return image, index % 10
