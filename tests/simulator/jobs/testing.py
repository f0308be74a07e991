"""Simulated jobs for tests, each made once per process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tests.digest.test_build import digest_of
from tests.jobs.ranks.stage import facts_of
from tests.simulator.jobs.run import SimulatedJob, simulate_once
from tests.simulator.jobs.settings import DistributedJob
from tests.trace.support import read_bytes

JOBS = {
    "ddp": DistributedJob("ddp", ranks=4, layers=4),
    "ddp on two hosts": DistributedJob("ddp", ranks=4, hosts=2, layers=5, steps=4),
    "fsdp": DistributedJob("fsdp", ranks=4, hosts=2, layers=3, steps=3),
    "fsdp within hosts": DistributedJob("fsdp", ranks=4, hosts=2, degree=2, layers=3, steps=3),
    "pp": DistributedJob("pp", ranks=4, hosts=2, degree=4, layers=1, steps=3),
    "pp with replicas": DistributedJob("pp", ranks=4, degree=2, layers=1, steps=3),
    "tp": DistributedJob("tp", ranks=2, degree=2, layers=3, steps=3),
    "tp with replicas": DistributedJob("tp", ranks=4, hosts=2, degree=2, layers=3, steps=3),
    "ep": DistributedJob("ep", ranks=4, hosts=2, degree=2, layers=3, steps=3),
}
"""Healthy jobs of every parallelism."""


def simulated_job(job: DistributedJob, seed: int = 0) -> SimulatedJob:
    return simulate_once(job, seed)


@cache
def rank_facts(job: DistributedJob, rank: int, seed: int = 0) -> Facts:
    """What the diagnosis knows from the trace of one rank."""
    return Facts(read_bytes(simulated_job(job, seed).bytes(rank)))


@cache
def rank_digests(job: DistributedJob) -> tuple[Digest, ...]:
    with TemporaryDirectory() as folder:
        paths = simulated_job(job).write(Path(folder))
        return tuple(digest_of(rank_facts(job, rank), str(path)) for rank, path in enumerate(paths))


@cache
def job_facts(job: DistributedJob) -> JobFacts:
    return facts_of(rank_digests(job))
