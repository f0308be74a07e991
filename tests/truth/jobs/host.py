"""Jobs whose training process does something else between its operators."""

from __future__ import annotations

import copy
import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.truth.job import job
from tests.truth.parts import mlp, rows, trainer


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


def log_norms(log: logging.Logger, model: torch.nn.Module, step: int) -> None:
    for name, parameter in model.named_parameters():
        values = parameter.detach().flatten().tolist()
        log.info("step %d %s: first %s mean %f", step, name, values[:8], sum(values) / len(values))


@job(limiters="python", rules="GD102 GD301", functions="log_norms")
def log_each_step(fixed: bool) -> Iterator[None]:
    """Statistics of all parameters are computed in Python and logged in each step; fixed: every hundredth."""
    model = mlp(width=256)
    train = trainer(model)
    batch = rows(512, 256)
    log = logging.getLogger("tests.truth")
    log.addHandler(logging.FileHandler(tempfile.mkstemp()[1]))
    log.setLevel(logging.INFO)
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            log_norms(log, model, step)
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


@job(limiters="python launch", rules="GD102 GD301", functions="print_tensor_each_step")
def print_tensor_each_step(fixed: bool) -> Iterator[None]:
    """The output of the model is printed in each step; fixed: every hundredth."""
    model = mlp()
    train = trainer(model)
    batch = rows()
    sink = open(os.devnull, "w")  # noqa: SIM115
    torch.set_printoptions(threshold=100_000)
    step = 0
    while True:
        loss = train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            print(loss, batch[0][:4], file=sink)
        yield


@job(limiters="compute python", rules="GD102 GD511", functions="evaluate evaluate_each_step")
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


def evaluate(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = (model(inputs).argmax(dim=1) == targets).float().mean().item()
    model.train()
    return right


def confusion(predicted: torch.Tensor, targets: torch.Tensor) -> list[list[int]]:
    counts = [[0] * 10 for _ in range(10)]
    for guess, target in zip(predicted.tolist(), targets.tolist(), strict=True):
        counts[target][guess] += 1
    for _ in range(200):
        counts = [list(row) for row in counts]
    return counts


@job(limiters="python compute", rules="GD102", functions="confusion metrics_in_python")
def metrics_in_python(fixed: bool) -> Iterator[None]:
    """A confusion matrix is counted in Python in each step; fixed: with `bincount`."""
    model = mlp()
    train = trainer(model)
    inputs, targets = rows(128)
    many_predicted, many = torch.randint(10, (40_000,)), torch.randint(10, (40_000,))
    while True:
        train(inputs, targets)
        if fixed:
            torch.bincount(many * 10 + many_predicted, minlength=100)
        else:
            confusion(many_predicted, many)
        yield


@job(limiters="python", rules="GD102", functions="wait_for_lock lock_held_elsewhere")
def lock_held_elsewhere(fixed: bool) -> Iterator[None]:
    """Each step takes a lock that another thread holds for most of the time."""
    train = trainer(mlp())
    batch = rows()
    lock = threading.Lock()

    def hold() -> None:
        while True:
            with lock:
                time.sleep(0.02)
            time.sleep(0.001)

    if not fixed:
        threading.Thread(target=hold, daemon=True).start()
    while True:
        train(*batch)
        wait_for_lock(lock)
        yield


def wait_for_lock(lock: threading.Lock) -> None:
    with lock:
        pass


class Slow(BaseHTTPRequestHandler):
    """A service that answers after 20 ms."""

    def do_GET(self) -> None:
        time.sleep(0.02)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@job(limiters="python", rules="GD102", functions="report_progress request_each_step")
def request_each_step(fixed: bool) -> Iterator[None]:
    """Each step tells a service on this machine how far it is; fixed: every hundredth."""
    train = trainer(mlp())
    batch = rows()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            report_progress(server.server_port, step)
        yield


def report_progress(port: int, step: int) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/?step={step}").read()


@job(limiters="python", rules="GD102", functions="sleep_each_step")
def sleep_each_step(fixed: bool) -> Iterator[None]:
    """A pause in each step that somebody forgot."""
    train = trainer(mlp())
    batch = rows()
    while True:
        train(*batch)
        if not fixed:
            time.sleep(0.03)
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


@job(limiters="python", rules="GD102", functions="read_settings read_settings_each_step")
def read_settings_each_step(fixed: bool) -> Iterator[None]:
    """A large file of settings is parsed in each step; fixed: once."""
    train = trainer(mlp())
    batch = rows()
    path = Path(tempfile.mkdtemp()) / "settings.json"
    path.write_text(json.dumps({f"key{i}": {"rate": i / 7, "names": ["a", "b"]} for i in range(20_000)}))
    once = read_settings(path)
    while True:
        settings = once if fixed else read_settings(path)
        train(batch[0] * settings["key7"]["rate"], batch[1])
        yield


def read_settings(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
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


def averaged(average: torch.nn.Module, model: torch.nn.Module) -> torch.nn.Module:
    found = copy.deepcopy(model)
    with torch.no_grad():
        for mine, old in zip(found.parameters(), average.parameters(), strict=True):
            mine.copy_(0.99 * old + 0.01 * mine)
    return found


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


@job(limiters="python", rules="GD102", functions="append_durably log_durably")
def log_durably(fixed: bool) -> Iterator[None]:
    """Each step writes a line and waits until the disk has it; fixed: the file is left open."""
    train = trainer(mlp())
    batch = rows(64)
    path = Path(tempfile.mkdtemp()) / "metrics.txt"
    with path.open("a") as file:
        while True:
            loss = train(*batch)
            if fixed:
                file.write(f"{float(loss.detach())}\n")
            else:
                for _ in range(40):
                    append_durably(path, float(loss.detach()))
            yield


def append_durably(path: Path, loss: float) -> None:
    with path.open("a") as file:
        file.write(f"{loss}\n")
        file.flush()
        os.fsync(file.fileno())


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


@job(limiters="python", rules="GD102", functions="progress_bar draw")
def progress_bar(fixed: bool) -> Iterator[None]:
    """A progress bar is drawn for each sample; fixed: for each step."""
    train = trainer(mlp())
    batch = rows()
    sink = open(os.devnull, "w")  # noqa: SIM115
    while True:
        train(*batch)
        for index in range(1 if fixed else 2_000):
            draw(sink, index)
        yield


def draw(sink: Any, index: int) -> None:
    sink.write("\r[" + "".join("#" if place < index % 60 else "." for place in range(60)) + f"] {index}")
    sink.flush()
