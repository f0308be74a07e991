"""Run one variant of a job: time it without the profiler, then record it. Each rank is a process.

It begins each of these when it is told so, and says when it has ended: in between, the other variant runs.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch._dynamo  # DistributedDataParallel and optimizers import it late
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from tests.truth.job import JOBS, Job
from tests.truth.jobs import everything  # noqa: F401

WARM_UP = 3
"""Steps before the first timed one: first-run work."""

STRETCHES = 6
"""Stretches of timed steps, by turns with the other variant's."""


def timed(steps: Iterator[None], count: int) -> float:
    """Mean seconds of `count` steps, without what this thread waited for a core that others used."""
    start, waited = time.perf_counter(), _waited_s()
    for _ in range(count):
        next(steps)
    return (time.perf_counter() - start - (_waited_s() - waited)) / count


def _waited_s() -> float:
    """Seconds for which this thread could have run and had no core, since it began; 0 but on Linux."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


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
    name: str,
    fixed: bool,
    folder: Path,
    recordings: Sequence[str],
    environment: dict[str, str],
    turns: Connection,
) -> None:
    """Run a rank of a job, in a group of processes. Write `times_RANK.json`, `output_RANK.txt` and a folder
    for each of `recordings` ("plain", "stacks")."""
    os.setpgid(0, 0)
    os.environ.update(environment)
    rank = int(environment["RANK"])
    output = os.open(folder / f"output_{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        _run(JOBS[name], fixed, rank, folder, recordings, turns)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # threads and workers of a job do not end by themselves


def _run(
    job: Job, fixed: bool, rank: int, folder: Path, recordings: Sequence[str], turns: Connection
) -> None:
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    seconds: list[float] = []
    steps: Iterator[None] = iter(())
    for turn in range(STRETCHES + 2):
        turns.recv()
        if turn == 0:
            if job.world > 1:
                dist.init_process_group("gloo")
            steps = job.start(fixed, rank)
            timed(steps, WARM_UP)
        elif turn <= STRETCHES:
            seconds.append(timed(steps, max(2, job.timed // STRETCHES)))
        else:
            (folder / f"times_{rank}.json").write_text(json.dumps(seconds))
            for kind in recordings:
                record(steps, folder / kind, job, rank, stacks=kind == "stacks")
            if job.world > 1:
                dist.barrier()
            sys.stdout.flush()
        turns.send(None)
