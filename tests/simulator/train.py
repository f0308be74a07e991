"""The script of simulated traces: their Python frames name the lines of its functions.

Read it next to such a trace. Each fault is one function, which its scenario switches on.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[torch.Tensor]):
    def __getitem__(self, index: int) -> torch.Tensor:
        return augment(torch.load(f"{index}.pt"))


def augment(image: torch.Tensor) -> torch.Tensor:
    return image.flip(-1) if torch.rand(()) < 0.5 else image


def brighten(value: float) -> float:
    """item_calls: a tiny function, called for every pixel or word of an item."""
    return value * 1.1


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return check_alive(torch.relu(check_alive(self.linear(x))))


def check_alive(x: torch.Tensor) -> torch.Tensor:
    """host_sync: the `if` needs the value, so the host waits for the GPU."""
    if not x.all():
        raise ValueError("an activation is dead")
    return x


class Model(nn.Module):
    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def reweigh_tokens(batch: torch.Tensor, counts: dict[int, int]) -> list[float]:
    """host_bound: a Python loop over a batch, in every step."""
    return [1.0 / (1 + counts.get(token, 0)) for token in range(len(batch))]


def scale_of(layer: int) -> float:
    """helper_calls: a tiny function, called thousands of times per step."""
    return 1.0 / (1 + layer)


def prepare_next(batch: torch.Tensor, side: torch.cuda.Stream) -> torch.Tensor:
    """side work: on a stream of its own, while the step computes."""
    with torch.cuda.stream(side):
        return batch.flip(-1)


def grow_workspace(step: int) -> torch.Tensor:
    """allocator_in_step: each step wants another size, so the caching allocator has none that fits."""
    return torch.empty(64_000_000 + step * 4_000_000, device="cuda")


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor
) -> tuple[torch.Tensor, Any]:
    batch = batch.to("cuda", non_blocking=batch.is_pinned())
    loss: torch.Tensor = model(batch).sum()
    host_loss = loss.detach().to("cpu", non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return host_loss, arrived


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[torch.Tensor], profiler: Any
) -> None:
    history = []
    for batch in batches:
        loss, arrived = train_step(model, optimizer, batch)
        arrived.synchronize()  # of the forward pass: the GPU has the backward pass to do meanwhile
        history.append(loss)
        profiler.step()


def rank_tokens(tokens: torch.Tensor) -> torch.Tensor:
    """slow_operator: an operator on the CPU that takes long by itself."""
    return tokens.cpu().sort(dim=-1).indices


def run_custom_kernel(source: str) -> Any:
    """module_loads: compiled elsewhere, but loaded again in every step."""
    return torch.cuda._compile_kernel(source, "kernel")


def pin(batch: torch.Tensor) -> torch.Tensor:
    """pinned_buffers: a new pinned buffer for every batch."""
    return torch.empty_like(batch, device="cpu").pin_memory()


def tidy_up() -> None:
    """cache_emptied: the allocator frees its memory, and asks for it again in the next step."""
    torch.cuda.empty_cache()


def keep_activations(activations: torch.Tensor, kept: list[torch.Tensor]) -> None:
    """large_readback: into pageable memory, so the host waits until all is copied."""
    kept.append(activations.cpu())


def remember(features: torch.Tensor, seen: list[torch.Tensor]) -> None:
    """leak: a list that is never emptied."""
    seen.append(features.clone())


def evaluate(model: nn.Module, batch: torch.Tensor, losses: list[torch.Tensor]) -> None:
    """leak_kept_graph: without torch.no_grad() the loss keeps every activation that led to it."""
    losses.append(model(batch).sum())


def extend_cache(cache: list[torch.Tensor], new: list[torch.Tensor]) -> None:
    """leak_growing_cache: old entries are never dropped."""
    for layer, rows in enumerate(new):
        cache[layer] = torch.cat([cache[layer], rows])


def measure(output: torch.Tensor, metrics: list[torch.Tensor]) -> None:
    """leak_metrics: numbers that stay on the GPU."""
    metrics.extend((output.mean(), output.square().mean(), output.abs().mean()))


def collect_samples(batch: torch.Tensor, samples: list[torch.Tensor]) -> None:
    """host_leak: a list of what was on the host."""
    samples.append(batch.clone())


def collect() -> None:
    """garbage_collection: visits all of Python's objects, in every step."""
    gc.collect()


def validate(step: int) -> None:
    """uneven_steps: what only some steps do."""
    if step % 4 == 3:
        sorted(range(1_000_000), reverse=True)


def rank_elsewhere(scores: torch.Tensor) -> torch.Tensor:
    """round_trips: sorted where it is not needed."""
    return torch.from_numpy(numpy.sort(scores.cpu().numpy())).to(scores.device)


def main() -> None:
    model = Model(2048, 12).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, iter(DataLoader(Images(), batch_size=64)), torch.profiler.profile())


if __name__ == "__main__":
    main()
