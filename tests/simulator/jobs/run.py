"""Run: simulate a job, write its traces, compute its truth."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from tests.builder import EPOCH_NS, Recording, TopLevel, to_bytes
from tests.simulator.gpu_truth import union
from tests.simulator.jobs.ddp import Ddp
from tests.simulator.jobs.expert import Expert
from tests.simulator.jobs.fsdp import Fsdp
from tests.simulator.jobs.layer import layer_time
from tests.simulator.jobs.network import Network
from tests.simulator.jobs.pipeline import Pipeline
from tests.simulator.jobs.program import MORE_OF_ELSE, Training, replicas_of
from tests.simulator.jobs.rank import Rank
from tests.simulator.jobs.settings import DistributedJob, Parallelism
from tests.simulator.jobs.solver import Solver, run_together
from tests.simulator.jobs.tensor import Tensor
from tests.simulator.jobs.truth import (
    Clock,
    CollectiveTruth,
    JobTruth,
    RankTruth,
    collective_truth,
    slow_ranks,
    suspected,
)
from tests.simulator.written import moved

PROGRAMS: dict[Parallelism, type[Training]] = {
    "ddp": Ddp,
    "fsdp": Fsdp,
    "pp": Pipeline,
    "tp": Tensor,
    "ep": Expert,
}

DEVICE_SPREAD = 0.003  # between GPUs of the same model


@dataclass(eq=False)  # each is one run, and a key of caches
class SimulatedJob:
    """One simulated job. recordings: of each rank, in its host's local time."""

    job: DistributedJob
    seed: int
    recordings: list[Recording]
    truth: JobTruth
    programs: Sequence[Training] = field(repr=False)

    @cached_property
    def _without(self) -> SimulatedJob:
        return simulate_once(replace(self.job, fault=None), self.seed)

    def without(self) -> SimulatedJob:
        """Return the same job without the fault."""
        return self._without

    @cached_property
    def fixed(self) -> SimulatedJob:
        """The same job after the fix. Batches that are too long somewhere are dealt out to all replicas then:
        all have as many tokens, and as much work."""
        job, fault, count = self.job, self.job.fault, replicas_of(self.job)
        if fault is None or fault.steps or not self._has_longer_batches:
            return self.without()
        longer = (1 if fault.kind == "uneven_batches" else len(fault.ranks) * count // job.ranks) / count
        tokens = round(job.tokens * (1 + (fault.amount - 1) * longer) / 8) * 8
        layer_us = job.layer_us * (1 + (layer_time(fault.amount) - 1) * longer)
        return simulate_job(replace(job, fault=None, tokens=tokens, layer_us=layer_us), self.seed)

    @property
    def _has_longer_batches(self) -> bool:
        fault = self.job.fault
        return fault is not None and (
            fault.kind == "uneven_batches"
            or (fault.kind == "uneven_work" and self.job.parallelism not in MORE_OF_ELSE)
        )

    @property
    def saving_share(self) -> float:
        """Share of the step time that the fix saves."""
        return 1 - self.fixed.truth.step_ns / self.truth.step_ns

    @property
    def cost_share(self) -> float:
        """Share of the step time that the fault costs."""
        return 1 - self.without().truth.step_ns / self.truth.step_ns

    def bytes(self, rank: int) -> bytes:
        return _bytes_of(self, rank)

    def write(self, folder: Path, ranks: Iterable[int] | None = None) -> list[Path]:
        """Write one file for each rank, or for those given, named as torch names them."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for rank in range(self.job.ranks) if ranks is None else ranks:
            recording = self.recordings[rank]
            worker = f"{self.job.host_of(rank)}_{recording.pid}"
            path = folder / f"{worker}.{EPOCH_NS + recording.last_ns()}.pt.trace.json"
            path.write_bytes(self.bytes(rank))
            paths.append(path)
        return paths

    def _top(self, rank: int) -> TopLevel:
        info: dict[str, Any] = {"nccl_version": "2.21.5"}
        if self.job.with_groups:
            groups = sorted(self.programs[rank].groups.values(), key=lambda group: int(group.name))
            info = {"pg_count": len(groups), "pg_config": [group.config() for group in groups], **info}
        return TopLevel(
            simulated=True,
            rank=rank,
            world_size=self.job.ranks,
            distributed=info,
            extra={"hostname": self.job.host_of(rank)},
        )


@lru_cache(16)
def _bytes_of(run: SimulatedJob, rank: int) -> bytes:
    """Return a rank's trace. Cached: tests write it to a file, and then read it once more from memory."""
    return to_bytes(run.recordings[rank], "C2", run._top(rank))


@cache
def simulate_once(job: DistributedJob, seed: int = 0) -> SimulatedJob:
    """Simulate a job once per process."""
    return simulate_job(job, seed)


def simulate_job(job: DistributedJob, seed: int = 0) -> SimulatedJob:
    """Simulate a job. The same arguments give the same traces."""
    name = f"{seed} job"
    draw = random.Random(name)
    clocks = _clocks(job, draw)
    solver, network = Solver(), Network(job, name)
    programs = []
    for number in range(job.ranks):
        rank = Rank(
            number,
            number % job.ranks_per_host,
            solver,
            seed=name,
            start_ns=round(draw.random() * job.start_spread_us * 1_000),
            speed=1 + DEVICE_SPREAD * draw.gauss(0, 1),
            stacks=job.with_stacks,
        )
        programs.append(PROGRAMS[job.parallelism](job, rank, network, name))
    run_together([program.run() for program in programs])
    for program in programs:
        program.rank.finish(job.ranks_per_host)
    truth = _truth(job, programs, network, clocks)
    recordings = [
        _local(program.rank.recording, clocks[job.host_of(number)]) for number, program in enumerate(programs)
    ]
    return SimulatedJob(job, seed, recordings, truth, programs)


def _clocks(job: DistributedJob, draw: random.Random) -> dict[str, Clock]:
    """Draw the hosts' clocks: most differ by milliseconds, some by hours."""
    clocks = {}
    for number in range(job.hosts):
        spread_ns = min(job.skew_s * 1e9, 10 ** draw.uniform(5, 13))
        offset = round(draw.choice((-1, 1)) * spread_ns)
        clocks[f"node{number}"] = Clock(offset, draw.uniform(-job.drift_ppm, job.drift_ppm))
    return clocks


def _local(recording: Recording, clock: Clock) -> Recording:
    """Return the recording in the host's local time."""
    return replace(
        recording,
        host=[
            moved(span, clock.local_ns(span.start_ns), clock.local_ns(span.end_ns)) for span in recording.host
        ],
        gpu=[
            replace(span, start_ns=clock.local_ns(span.start_ns), end_ns=clock.local_ns(span.end_ns))
            for span in recording.gpu
        ],
        start_ns=clock.local_ns(recording.start_ns),
    )


def _truth(
    job: DistributedJob, programs: list[Training], network: Network, clocks: dict[str, Clock]
) -> JobTruth:
    collectives = collective_truth(network.called)
    starts = [program.rank.recording.start_ns for program in programs]
    ends = [program.rank.recording.last_ns() for program in programs]
    fault, ranks = job.fault, slow_ranks(job)
    return JobTruth(
        healthy=fault is None,
        rule=fault.rule if fault else None,
        cause=fault.cause if fault else None,
        ranks=ranks,
        suspects=suspected(network.called, ranks),
        groups={group.name: group.ranks for program in programs for group in program.groups.values()},
        clocks=clocks,
        collectives=collectives,
        by_rank={rank: _rank_truth(job, programs[rank].rank, collectives) for rank in range(job.ranks)},
        step_ns=max(_mean_step_ns(program) for program in programs),
        window_ns=max(ends) - min(starts),
    )


def _mean_step_ns(program: Training) -> float:
    ends = [work.end_ns or 0 for work in program.optimized]
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def _rank_truth(job: DistributedJob, rank: Rank, collectives: list[CollectiveTruth]) -> RankTruth:
    own = [collective for collective in collectives if rank.number in collective.arrival_ns]
    computing, both = [], []
    for one in rank.work:
        if one.kind != "annotation":
            span = (one.work.start_ns, one.work.end_ns or 0)
            both.append(span)
            if one.work.meeting is None:
                computing.append(span)
    busy = sum(end - start for start, end in union(both))
    return RankTruth(
        host=job.host_of(rank.number),
        waiting_ns=sum(collective.waiting_ns(rank.number) for collective in own),
        transferring_ns=sum(collective.transferring_ns(rank.number) for collective in own),
        busy_ns=busy,
        exposed_ns=busy - sum(end - start for start, end in union(computing)),
        last_in=sum(collective.last_rank == rank.number for collective in own),
    )
