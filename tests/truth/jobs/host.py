"""Work of the host in each step that is no training: logs, checkpoints, locks, settings, metrics."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.truth.job import job
from tests.truth.jobs.parts import HOST, mlp, rows, trainer


@job(limiters="python", rules="GD102", functions="collect_each_step")
def collect_each_step(fixed: bool) -> Iterator[None]:
    """`gc.collect()` in each step of a process with many objects."""
    train = trainer(mlp())
    batch = rows()
    kept = [{"index": index, "names": [str(index)]} for index in range(60_000)]
    while True:
        train(*batch)
        if not fixed:
            gc.collect()
        assert kept
        yield


class Node:
    """One of two objects that refer to each other."""

    def __init__(self) -> None:
        self.other: Node | None = None


def paired_nodes(count: int) -> list[Node]:
    found = []
    for _ in range(count):
        first, second = Node(), Node()
        first.other, second.other = second, first
        found.append(first)
    return found


@job(limiters="python", rules="GD102 GD106", functions="paired_nodes cyclic_garbage")
def cyclic_garbage(fixed: bool) -> Iterator[None]:
    """Objects that refer to each other are made in each step, and the collector runs by itself."""
    train = trainer(mlp())
    batch = rows()
    while True:
        train(*batch)
        if not fixed:
            paired_nodes(12_000)
        yield


@job(limiters="python", rules="GD102", functions="save_each_step")
def save_each_step(fixed: bool) -> Iterator[None]:
    """A checkpoint in each step; fixed: every hundredth."""
    model = mlp()
    train = trainer(model)
    batch = rows()
    path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            torch.save(model.state_dict(), path)
        yield


def evaluate(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = (model(inputs).argmax(dim=1) == targets).float().mean().item()
    model.train()
    return right


@job(limiters="evaluation", rules="GD511", functions="evaluate evaluate_each_step")
def evaluate_each_step(fixed: bool) -> Iterator[None]:
    """The model is evaluated on a validation set after each step; fixed: every hundredth."""
    model = mlp()
    train = trainer(model)
    batch, validation = rows(), rows(1_024)
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            evaluate(model, *validation)
        yield


@job(limiters="python", rules="GD102", functions="run_command_each_step run")
def run_command_each_step(fixed: bool) -> Iterator[None]:
    """A command is run in each step, as for `nvidia-smi`; fixed: every hundredth."""
    train = trainer(mlp())
    batch = rows()
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            subprocess.run([sys.executable, "-S", "-c", "print(1)"], check=True, capture_output=True)
        yield


def averaged(average: torch.nn.Module, model: torch.nn.Module) -> torch.nn.Module:
    found = copy.deepcopy(model)
    with torch.no_grad():
        for mine, old in zip(found.parameters(), average.parameters(), strict=True):
            mine.copy_(0.99 * old + 0.01 * mine)
    return found


@job(limiters="python compute", rules="GD102 GD303 GD511", functions="averaged copy_model_each_step")
def copy_model_each_step(fixed: bool) -> Iterator[None]:
    """An average of the weights is kept by copying the model in each step; fixed: in place."""
    model = mlp(width=768)
    train = trainer(model)
    batch = rows(32, 768)
    average = copy.deepcopy(model)
    while True:
        train(*batch)
        if fixed:
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)
        else:
            average = averaged(average, model)
        yield


def smoothed(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found = values.copy()
    for _ in range(3):
        for column in range(1, values.shape[1]):
            found[:, column] = 0.9 * found[:, column - 1] + 0.1 * values[:, column]
    return found


@job(limiters="python compute", rules="GD102", functions="smoothed numpy_round_trip")
def numpy_round_trip(fixed: bool) -> Iterator[None]:
    """Inputs go through NumPy and a Python loop in each step; fixed: once."""
    train = trainer(mlp(width=1_024))
    inputs, targets = rows(32, 1_024)
    once = torch.from_numpy(smoothed(inputs.numpy()))
    while True:
        ready = once if fixed else torch.from_numpy(smoothed(inputs.numpy()))
        train(ready, targets)
        yield


def spin() -> None:
    while True:
        sum(range(1_000))


@job(limiters="python unknown", rules="GD102 GD106", timed=20)
def busy_thread(fixed: bool) -> Iterator[None]:
    """Another thread of the process computes in Python and takes the interpreter's lock."""
    train = trainer(mlp())
    batch = rows(64)
    if not fixed:
        threading.Thread(target=spin, daemon=True).start()
    while True:
        train(*batch)
        yield


@job(limiters=HOST, rules="GD107", allowed="GD102", timed=20)  # fixed, 2,899 operators take 6 ms of CPU time
def anomaly_detection_left_on(fixed: bool) -> Iterator[None]:
    """`torch.autograd.set_detect_anomaly` was left on after a debugging session; fixed: off."""
    torch.autograd.set_detect_anomaly(not fixed)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128)) for _ in range(40)))
    train = trainer(model, nn.functional.mse_loss)
    inputs = torch.randn(32, 128)
    while True:
        train(inputs, inputs)
        yield
