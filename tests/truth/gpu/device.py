"""What the runs need of the GPU. On a machine without one, stand-ins make the same files: so the run as a
whole is tried before a GPU can be had."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

HAS_GPU = torch.cuda.is_available()


def wait() -> None:
    """Wait for the GPU's work."""
    if HAS_GPU:
        torch.cuda.synchronize()


def limit_memory(limit_bytes: int) -> None:
    """Leave this process so much memory, as on a small GPU."""
    if HAS_GPU:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit_bytes / total)


def begin_history() -> None:
    """Record what is allocated, with the Python frames."""
    if HAS_GPU:
        torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")


def dump_history(path: Path) -> None:
    if HAS_GPU:
        torch.cuda.memory._dump_snapshot(str(path))
    else:
        path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))


def stand_in() -> Iterator[None]:
    """A loop that takes the place of a job where there is no GPU."""
    layer, batch = nn.Linear(32, 32), torch.randn(16, 32)
    while True:
        layer(batch).sum().backward()
        yield


def run_out() -> None:
    """What takes the place of a job that runs out of memory."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (a stand-in)")


def name() -> str:
    return torch.cuda.get_device_name() if HAS_GPU else "none"
