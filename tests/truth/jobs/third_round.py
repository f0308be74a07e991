"""A third round of jobs, of one process and of ranks, written before any diagnosis of them was seen."""

from __future__ import annotations

import hashlib
import multiprocessing
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from tests.truth.job import job
from tests.truth.jobs.host import spin
from tests.truth.jobs.ranks import LATE, data_parallel, ddp
from tests.truth.parts import mlp, rows, trainer


@job(limiters=LATE, rules="GD603 GD602", world=2, timed=12)
def barrier_after_each_micro_batch(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Short and long micro-batches by turns, as many rows in all on both ranks, and a barrier after each one
    that was left from debugging; fixed: no barrier."""
    model = ddp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = rows(512)
    while True:
        optimizer.zero_grad()
        for part in range(4):
            count = 512 if (part + rank) % 2 else 32
            with model.no_sync() if part < 3 else nullcontext():
                nn.functional.cross_entropy(model(inputs[:count]), targets[:count]).backward()
            if not fixed:
                dist.barrier()
        optimizer.step()
        yield


@job(limiters="communication mixed", rules="GD609 GD608 GD607", world=2, timed=12)
def weights_broadcast_each_step(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 0 broadcasts all weights after each step, to be sure that they stay equal; fixed: not."""
    model = mlp(width=1_024)
    train = trainer(nn.parallel.DistributedDataParallel(model))
    batch = rows(32, 1_024)
    while True:
        train(*batch)
        if not fixed:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)
        yield


@job(limiters=LATE, rules="GD102 GD602", functions="wait_for_marker wait_for_rank_zero", world=3, timed=12)
def poll_for_a_file(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Ranks look every 25 ms for a file that rank 0 writes in each step; fixed: they meet in a barrier."""
    marker = Path(tempfile.gettempdir()) / "gpudiag-truth-marker.txt"
    if rank == 0:
        marker.write_text("-1")
    dist.barrier()

    def wait_for_rank_zero(step: int) -> None:
        if fixed:
            dist.barrier()
        elif rank == 0:
            time.sleep(0.002)
            marker.write_text(str(step))
        else:
            wait_for_marker(marker, step)

    yield from data_parallel(rank, wait_for_rank_zero)


def wait_for_marker(marker: Path, step: int) -> None:
    while int(marker.read_text() or "-1") < step:
        time.sleep(0.025)


@job(limiters=LATE, rules="GD602", rank=1, world=3, timed=12)
def monitor_thread_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """A thread of rank 1 computes in Python all the time, and takes the interpreter's lock."""
    if rank == 1 and not fixed:
        threading.Thread(target=spin, daemon=True).start()
    yield from data_parallel(rank)


@job(world=2, timed=15)
def healthy_compressed_gradients(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Gradients travel in 16 bits, by the hook that torch has for that."""
    model = ddp()
    model.register_comm_hook(None, fp16_compress_hook)
    train = trainer(model)
    batch = rows(128)
    while True:
        train(*batch)
        yield


@job(limiters=LATE, rules="GD602 GD603", functions="fill_buffer", rank=2, world=3, timed=12)
def fresh_buffers_on_a_rank(fixed: bool, rank: int, world: int) -> Iterator[None]:
    """Rank 2 makes a buffer of 400 MB anew in each step, which the system has to map; fixed: it is kept."""
    kept = torch.zeros(100_000_000 if rank == 2 else 1)

    def fill_buffer(step: int) -> None:
        buffer = kept if fixed or rank != 2 else torch.empty(100_000_000)
        buffer[::1_024] = 1.0

    yield from data_parallel(rank, fill_buffer)


LINES = [f"{index},{index / 7},{index / 3}" for index in range(2_000)]


def parse_line(line: str) -> float:
    return sum(float(part) for part in line.split(","))


@job(
    limiters="python",
    rules="GD102",
    functions="parse_in_pool pool_each_step",
    allowed="GD102",  # fixed, parsing takes 2.4 of 14 ms of CPU time, beside the optimizer's Python
)
def pool_each_step(fixed: bool) -> Iterator[None]:
    """A pool of processes is started in each step, to parse a file; fixed: the file is parsed here."""
    train = trainer(mlp())
    batch = rows()
    while True:
        train(*batch)
        if fixed:
            sum(map(parse_line, LINES))
        else:
            parse_in_pool()
        yield


def parse_in_pool() -> float:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(parse_line, LINES))


@job(limiters="python", rules="GD102", functions="checksum checksum_of_weights")
def checksum_of_weights(fixed: bool) -> Iterator[None]:
    """A checksum of all weights is computed in each step, to compare runs; fixed: every hundredth."""
    model = mlp()
    train = trainer(model)
    batch = rows()
    step = 0
    while True:
        train(*batch)
        step += 1
        if not fixed or step % 100 == 0:
            checksum(model)
        yield


def checksum(model: nn.Module) -> str:
    found = hashlib.md5()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


@job(limiters="python", rules="GD102", functions="batch_from_lists tensor_from_lists")
def tensor_from_lists(fixed: bool) -> Iterator[None]:
    """Samples are kept as lists of numbers, from which each batch is made; fixed: as tensors."""
    train = trainer(mlp())
    inputs, targets = rows(256)
    samples = inputs.tolist()
    while True:
        train(inputs if fixed else batch_from_lists(samples), targets)
        yield


def batch_from_lists(samples: list[list[float]]) -> torch.Tensor:
    return torch.tensor(samples)


@job(
    limiters="python",
    rules="GD102",
    functions="parameter_of move_averages parameters_found_by_name",
    allowed="GD102",  # fixed, 2,085 operators take 6.8 ms of CPU time; some 200 MFLOP of them are arithmetic
)
def parameters_found_by_name(fixed: bool) -> Iterator[None]:
    """Averages of the weights look each weight up by walking the model; fixed: it is walked once."""
    model = mlp(width=128, depth=32)
    train = trainer(model)
    batch = rows(64, 128)
    averages = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    known = dict(model.named_parameters())
    while True:
        train(*batch)
        with torch.no_grad():
            for name, average in averages.items():
                parameter = known[name] if fixed else parameter_of(model, name)
                average.mul_(0.99).add_(parameter, alpha=0.01)
        yield


def parameter_of(model: nn.Module, name: str) -> nn.Parameter:
    return dict(model.named_parameters())[name]


@job(limiters="python input", rules="GD102 GD101", functions="poll_answer asks_and_polls")
def asks_and_polls(fixed: bool) -> Iterator[None]:
    """A thread looks features up on demand, and the step asks every 20 ms whether it is done; fixed: it waits
    for the answer."""
    train = trainer(mlp())
    batch = rows(256)
    asked: queue.Queue[int] = queue.Queue()
    answers: queue.Queue[int] = queue.Queue()

    def answer() -> None:
        while True:
            answers.put(asked.get() + 1)

    threading.Thread(target=answer, daemon=True).start()
    step = 0
    while True:
        step += 1
        asked.put(step)
        if fixed:
            answers.get()
        else:
            poll_answer(answers)
        train(*batch)
        yield


def poll_answer(answers: queue.Queue[int]) -> int:
    while True:
        try:
            return answers.get_nowait()
        except queue.Empty:
            time.sleep(0.02)


@job()
def healthy_prefetching_thread(fixed: bool) -> Iterator[None]:
    """A thread makes the next batch while this one is trained on."""
    train = trainer(mlp(width=1_024))
    batches: queue.Queue[tuple[torch.Tensor, torch.Tensor]] = queue.Queue(maxsize=2)

    def prefetch() -> None:
        while True:
            time.sleep(0.002)
            batches.put(rows(256, 1_024))

    threading.Thread(target=prefetch, daemon=True).start()
    while True:
        train(*batches.get())
        yield
