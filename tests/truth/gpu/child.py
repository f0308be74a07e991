"""One variant of a job on a GPU: time it without the profiler, then record it; or a job that runs out of
memory. A process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch._dynamo  # optimizers import it late
from torch.profiler import profile, schedule, supported_activities, tensorboard_trace_handler

from tests.truth.gpu import device, everything  # noqa: F401
from tests.truth.gpu.failing import FAILING
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
        device.wait()
        start = time.perf_counter()
        for _ in range(each):
            next(steps)
        device.wait()
        found.append((time.perf_counter() - start) / each)
    return found


def recorded(steps: Iterator[None], job: Job, stacks: bool) -> profile:
    """Record as the README says; without `stacks`, as it says for jobs that stacks slow down."""
    with profile(
        activities=supported_activities(),
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
            device.wait()
            fcntl.flock(file, fcntl.LOCK_UN)


def main(name: str, fixed: bool, out: Path, kinds: dict[str, bool], lock: Path) -> None:
    """Run a variant. kinds: folders below `out` of the recordings, and whether with stacks."""
    job, variant = JOBS[name], "after" if fixed else "before"
    if not fixed:
        os.environ.update(job.environment)
    with written(out / f"output_{variant}.txt"):
        _run(job, fixed, out, kinds, lock)


def main_of_failure(name: str, out: Path, lock: Path) -> None:
    """Run a job out of memory, and dump the history of its allocations."""
    job = FAILING[name]
    with written(out / "output_failing.txt"), alone(lock):
        device.limit_memory(job.limit_bytes)
        device.begin_history()
        try:
            job.job() if device.HAS_GPU else device.run_out()
        except torch.OutOfMemoryError as error:
            print(str(error).split("\n")[0][:150])
        else:
            raise RuntimeError("it did not run out of memory")
        device.dump_history(out / "failed.pickle")


@contextmanager
def written(log: Path) -> Iterator[None]:
    """Write what is printed to a file, and end the process with 1 if something fails."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        yield
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # threads and workers of a job do not end by themselves


def _run(job: Job, fixed: bool, out: Path, kinds: dict[str, bool], lock: Path) -> None:
    torch.manual_seed(0)
    with alone(lock):
        steps = job.start(fixed, 0) if device.HAS_GPU else device.stand_in()
        for _ in range(WARM_UP):
            next(steps)
        times = timed(steps, job.timed)
    (out / f"times_{'after' if fixed else 'before'}.json").write_text(json.dumps(times))
    for kind, stacks in kinds.items():
        with alone(lock):
            profiler = recorded(steps, job, stacks)
        tensorboard_trace_handler(str(out / kind), worker_name="worker", use_gzip=True)(profiler)
    if job.snapshot:
        with alone(lock):
            device.begin_history()
            for _ in range(job.recorded):
                next(steps)
            device.dump_history(out / f"{'after' if fixed else 'before'}.pickle")
