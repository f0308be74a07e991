"""How long the what-if analysis takes: published operation tables, and jobs of a thousand ranks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tb_gpudiag.jobs.what_if import what_if
from tb_gpudiag.jobs.what_if_slowdown import slowdown_of
from tb_gpudiag.jobs.what_if_table import OperationTable, Parallelism
from tb_gpudiag.jobs.what_if_work import JobWork
from tests.jobs.pipeline import Step, table
from tests.jobs.test_what_if import PUBLISHED, published_table
from tests.jobs.test_what_if_simulated import work_of
from tests.simulator.jobs import DistributedJob, JobFault

HEADER = f"{'what':<40}{'ranks':>7}{'operations':>12}{'seconds':>9}{'S':>8}"

RANKS = 1_000


@dataclass(frozen=True)
class Row:
    what: str
    ranks: int
    operations: int
    seconds: float
    slowdown: float


def line(row: Row) -> str:
    return f"{row.what:<40}{row.ranks:>7,}{row.operations:>12,}{row.seconds:>9.2f}{row.slowdown:>8.3f}"


def rows() -> Iterator[Row]:
    for name in ("AR", "SE") if PUBLISHED.is_dir() else ():
        yield _analyzed(f"published table {name}", *published_table(name))
    yield _analyzed("pipelines of 4 stages, 10 steps", *pipelines(RANKS // 4, 4, 8, 10))
    job = DistributedJob("fsdp", ranks=4, hosts=2, steps=5, fault=JobFault("loader", (2,), 30))
    work = many_times(work_of(job), RANKS // 4)
    start = time.perf_counter()
    found = slowdown_of(work)
    yield Row("digests of FSDP, 5 steps", work.members, len(work), time.perf_counter() - start, found.s)


def _analyzed(what: str, operations: OperationTable, job: Parallelism) -> Row:
    start = time.perf_counter()
    found = what_if(operations, job)
    return Row(what, job.dp * job.pp, len(operations), time.perf_counter() - start, found.slowdown)


def pipelines(dp: int, pp: int, micro_batches: int, steps: int) -> tuple[OperationTable, Parallelism]:
    """Many data-parallel ranks like one simulated pipeline."""
    draw = random.Random(0)

    def duration(optype: str, *_: int) -> float:
        return (1.0 if optype.endswith("compute") else 0.1) * draw.uniform(0.9, 1.1)

    one = Parallelism(1, pp)
    simulated = table([Step(one, micro_batches, duration).run() for _ in range(steps)])
    rank = OperationTable.from_arrow(simulated)
    columns = {field.name: np.tile(getattr(rank, field.name), dp) for field in fields(rank)}
    columns["dp_rank"] = np.repeat(np.arange(dp), len(rank))
    return OperationTable(**columns), Parallelism(dp, pp)


def many_times(work: JobWork, times: int) -> JobWork:
    """Copies of the ranks of a job that take part in the same collectives, on hosts of their own."""
    columns: dict[str, Any] = {}
    for field in fields(work):
        value = getattr(work, field.name)
        columns[field.name] = np.concatenate([value] * times) if isinstance(value, np.ndarray) else value
    copy = np.repeat(np.arange(times), len(work))
    columns["member"] = columns["member"] + copy * work.members
    columns["host"] = columns["host"] + np.repeat(np.arange(times), work.members) * (int(work.host.max()) + 1)
    return JobWork(**columns)
