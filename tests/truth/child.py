"""Run one variant of a job: time it without the profiler, then record it. Each rank is a process."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch._dynamo  # DistributedDataParallel and optimizers import it late
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from tests.truth.job import JOBS, Job
from tests.truth.jobs import everything  # noqa: F401

WARM_UP = 3
"""Steps before the first timed one: first-run work."""


def timed(steps: Iterator[None], count: int) -> list[float]:
    """Seconds of each of `count` steps."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        next(steps)
        found.append(time.perf_counter() - start)
    return found


def record(steps: Iterator[None], folder: Path, job: Job, rank: int, stacks: bool) -> None:
    """Record as the README says; without `stacks`, as it says for jobs that stacks slow down."""
    shift = job.later if rank == job.world - 1 else 0
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1 + shift, warmup=2, active=job.recorded, repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder), worker_name=worker()),
        record_shapes=True,
        profile_memory=stacks,
        with_stack=stacks,
    ) as profiler:
        for _ in range(3 + job.recorded + job.later):
            next(steps)
            profiler.step()


def worker() -> str:
    return f"rank{dist.get_rank()}" if dist.is_initialized() else "worker"


def main(
    name: str, fixed: bool, folder: Path, recordings: Sequence[str], environment: dict[str, str]
) -> None:
    """Run a rank of a job. Write `times_RANK.json`, `output_RANK.txt` and a folder for each of `recordings`
    ("plain", "stacks")."""
    os.environ.update(environment)
    rank = int(environment["RANK"])
    output = os.open(folder / f"output_{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        _run(JOBS[name], fixed, rank, folder, recordings)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # threads and workers of a job do not end by themselves


def _run(job: Job, fixed: bool, rank: int, folder: Path, recordings: Sequence[str]) -> None:
    torch.manual_seed(rank)
    if job.world > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    steps = job.start(fixed, rank)
    timed(steps, WARM_UP)
    seconds = timed(steps, job.timed)
    (folder / f"times_{rank}.json").write_text(json.dumps(seconds))
    for kind in recordings:
        record(steps, folder / kind, job, rank, stacks=kind == "stacks")
    if job.world > 1:
        dist.barrier()
    sys.stdout.flush()
