"""Shared by the demo scripts: arguments, a model, and a good recording."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

WAIT, WARMUP, ACTIVE = 2, 2, 5
"""Steps that are skipped, that warm up the profiler, and that are recorded."""

TIMED = 20
"""Steps that are timed before the recording, on a GPU."""

STEP_MS = "step_ms.json"
"""The file next to a trace with the milliseconds of a step without the profiler."""


def parse(doc: str | None, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse --logdir, --fixed and --device. `doc` is the script's docstring."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", type=Path, required=True, help="where the trace goes")
    parser.add_argument("--fixed", action="store_true", help="run with the fault fixed")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default, help=f"cuda or cpu (default here: {default})")
    return parser.parse_args(arguments)


def needs_gpu(arguments: argparse.Namespace, why: str) -> None:
    """Exit if there is no GPU, for a script whose fault or fix needs one."""
    if arguments.device == "cpu":
        raise SystemExit(f"no GPU: {why}")


def record(
    step: Callable[[], Any],
    logdir: Path,
    *,
    active: int = ACTIVE,
    skip_warm_up: bool = False,
    mark_steps: bool = True,
) -> None:
    """Call `step` repeatedly, and record the last `active` calls into one trace in `logdir`.

    `skip_warm_up` and `mark_steps` make common mistakes on purpose.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
        if not skip_warm_up:
            time_without_profiler(step, logdir)
    wait, warmup = (0, 0) if skip_warm_up else (WAIT, WARMUP)
    with profile(
        activities=activities,
        schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1) if mark_steps else None,
        on_trace_ready=tensorboard_trace_handler(str(logdir), use_gzip=True),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as profiler:
        for _ in range(wait + warmup + active):
            step()
            if mark_steps:
                profiler.step()


def time_without_profiler(step: Callable[[], Any], logdir: Path) -> None:
    """Write the milliseconds of a step to `logdir`: what a fix really gives is the difference of two."""
    for _ in range(WAIT):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(TIMED):
        step()
    torch.cuda.synchronize()
    logdir.mkdir(parents=True, exist_ok=True)
    (logdir / STEP_MS).write_text(json.dumps(1e3 * (time.perf_counter() - start) / TIMED))


def snapshot(step: Callable[[], Any], logdir: Path) -> None:
    """Record the memory of a few steps as a snapshot in `logdir`, also if it runs out. Needs a GPU."""
    torch.cuda.memory._record_memory_history(max_entries=20_000, stacks="python")
    try:
        for _ in range(ACTIVE):
            step()
    except torch.OutOfMemoryError as error:
        print(error)
    logdir.mkdir(parents=True, exist_ok=True)
    torch.cuda.memory._dump_snapshot(str(logdir / "snapshot.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)


class Convolutions(nn.Module):
    """A few convolutions: enough work that the GPU is slower than the host."""

    def __init__(self, width: int = 64, depth: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.rest = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.last = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        for layer in self.rest:
            x = x + torch.relu(layer(x))
        return self.last(x.mean(dim=(2, 3)))


def convolutions(device: str, *, width: int = 64, depth: int = 8) -> Convolutions:
    """Return the model on its device. On a CPU it is a sixteenth as wide, to finish in seconds."""
    return Convolutions(width if device != "cpu" else width // 16, depth).to(device)


def trainer(model: nn.Module) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a function that trains `model` on one batch and returns the loss, still on its device."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)  # deep ones diverge otherwise

    def train(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train


def batch(device: str, size: int = 64, side: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images and labels on a device."""
    images = torch.rand(size, 3, side, side, device=device)
    return images, torch.randint(10, (size,), device=device)
