"""One variant of a job on a GPU: time it without the profiler, then record it. A process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch._dynamo  # optimizers import it late
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from tests.truth.gpu import everything  # noqa: F401
from tests.truth.job import JOBS, Job

WARM_UP = 8
"""Steps before the first timed one: first-run work, and loaders that fill."""

BLOCKS = 8
"""Timed are blocks of steps, each up to the end of its work on the GPU: a wait after each step would keep the
host from running ahead, and so change what is measured. Every second block belongs to the second run."""


def timed(steps: Iterator[None], count: int) -> list[float]:
    """Seconds of a step, of each block."""
    found = []
    each = max(1, count // BLOCKS)
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(each):
            next(steps)
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / each)
    return found


def recorded(steps: Iterator[None], job: Job, stacks: bool) -> profile:
    """Record as the README says; without `stacks`, as it says for jobs that stacks slow down."""
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=2, active=job.recorded, repeat=1),
        record_shapes=True,
        profile_memory=stacks,
        with_stack=stacks,
    ) as profiler:
        for _ in range(3 + job.recorded):
            next(steps)
            profiler.step()
    return profiler


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """While the GPU is measured no other process measures. The system releases what a killed process held."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            torch.cuda.synchronize()
            fcntl.flock(file, fcntl.LOCK_UN)


def main(name: str, fixed: bool, out: Path, kinds: dict[str, bool], lock: Path) -> None:
    """Run a variant. kinds: folders below `out` of the recordings, and whether with stacks."""
    job = JOBS[name]
    if not fixed:
        os.environ.update(job.environment)
    variant = "after" if fixed else "before"
    log = os.open(out / f"output_{variant}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        _run(job, fixed, out, kinds, lock)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # threads and workers of a job do not end by themselves


def _run(job: Job, fixed: bool, out: Path, kinds: dict[str, bool], lock: Path) -> None:
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    with alone(lock):
        steps = job.start(fixed, 0)
        for _ in range(WARM_UP):
            next(steps)
        times = timed(steps, job.timed)
    (out / f"times_{'after' if fixed else 'before'}.json").write_text(json.dumps(times))
    for kind, stacks in kinds.items():
        with alone(lock):
            profiler = recorded(steps, job, stacks)
        tensorboard_trace_handler(str(out / kind), worker_name="worker")(profiler)
    if job.snapshot:
        with alone(lock):
            torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
            for _ in range(job.recorded):
                next(steps)
            torch.cuda.memory._dump_snapshot(str(out / f"{'after' if fixed else 'before'}.pickle"))
