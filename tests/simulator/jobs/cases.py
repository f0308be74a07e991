"""Cases: jobs of all parallelisms and sizes at random settings, with one planted fault or none.

Each fault costs from 5% of the step to most of it; its amount follows from that share, not from the
thresholds of rules. Some healthy jobs have a fault that costs nothing, because other work hides it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from tests.simulator.jobs.program import replicas_of
from tests.simulator.jobs.run import SimulatedJob, simulate_job
from tests.simulator.jobs.settings import DistributedJob, FaultKind, JobFault

LEAST_SHARE, MOST_SHARE = 0.06, 0.6  # of the step that a fault costs
HARMLESS_SHARE = 0.01  # a fault that costs less is not one
TRIES = 7

SMALL = (
    DistributedJob("ddp", ranks=2),
    DistributedJob("ddp", ranks=8),
    DistributedJob("ddp", ranks=8, hosts=2),
    DistributedJob("fsdp", ranks=4),
    DistributedJob("fsdp", ranks=8, hosts=2),
    DistributedJob("fsdp", ranks=8, hosts=2, degree=4),
    DistributedJob("pp", ranks=4, hosts=2, degree=4, layers=2),
    DistributedJob("pp", ranks=8, hosts=4, degree=4, layers=2),
    DistributedJob("tp", ranks=4, degree=4),
    DistributedJob("tp", ranks=8, hosts=2, degree=4),
    DistributedJob("ep", ranks=4, degree=4),
    DistributedJob("ep", ranks=8, hosts=2, degree=4),
)
LARGE = (
    DistributedJob("ddp", ranks=16, hosts=2, layers=4, steps=4),
    DistributedJob("fsdp", ranks=32, hosts=4, layers=6, steps=3),
    DistributedJob("pp", ranks=16, hosts=4, degree=4, layers=2, steps=3),
    DistributedJob("tp", ranks=16, hosts=2, degree=8, layers=4, steps=4),
    DistributedJob("ddp", ranks=64, hosts=8, layers=3, steps=3),
)

COUNTS: dict[FaultKind, int] = {
    "slow_gpu": 6,
    "loader": 4,
    "gc": 3,
    "logging": 3,
    "python": 2,
    "allocator": 3,
    "uneven_work": 5,
    "uneven_batches": 3,
    "slow_link": 5,
    "mismatch": 2,
    "late_start": 3,
    "not_overlapped": 3,
}
HEALTHY, HARMLESS = 11, 4

FIXED: tuple[FaultKind, ...] = ("mismatch", "not_overlapped")
"""Faults whose cost follows from the job."""

FACTORS: tuple[FaultKind, ...] = ("slow_gpu", "uneven_work", "uneven_batches", "slow_link")

TRANSFERS: tuple[FaultKind, ...] = ("slow_link", "not_overlapped")
"""Faults that only transfers show. Where a rank has no trace, waiting for it looks like transfer."""


@dataclass(frozen=True)
class JobCase:
    """One job. recorded: the ranks that have a trace; usually all."""

    name: str
    job: DistributedJob
    seed: int
    recorded: tuple[int, ...]

    def simulate(self) -> SimulatedJob:
        return simulate_job(self.job, self.seed)


def cases(seed: int = 0, names: Container[str] | None = None) -> Iterator[JobCase]:
    """Draw the benchmark set. The same seed gives the same cases.

    names: kinds of faults, "healthy" and "harmless"; all if not given.
    """
    for kind, count in COUNTS.items():
        if names is None or kind in names:
            yield from _faulty_cases(seed, kind, count)
    if names is None or "healthy" in names:
        yield from _healthy_cases(seed)
    if names is None or "harmless" in names:
        yield from _harmless_cases(seed)


def _faulty_cases(seed: int, kind: FaultKind, count: int) -> Iterator[JobCase]:
    shapes = [job for job in (*SMALL, *LARGE) if _fits(kind, job)]
    for number, job in enumerate(_chosen(shapes, count, random.Random(f"{seed} {kind}"))):
        draw = random.Random(f"{seed} {kind} {number}")
        yield _faulty(kind, _varied(job, draw), draw)


def _healthy_cases(seed: int) -> Iterator[JobCase]:
    usual = (*SMALL, *LARGE[:3])
    for number in range(HEALTHY):
        draw = random.Random(f"{seed} healthy {number}")
        yield _case("healthy", _varied(usual[(number * 4 + seed) % len(usual)], draw), draw, ())


def _harmless_cases(seed: int) -> Iterator[JobCase]:
    for number in range(HARMLESS):
        draw = random.Random(f"{seed} harmless {number}")
        yield _harmless(_varied(draw.choice(SMALL[:6]), draw), draw)


def _chosen(shapes: list[DistributedJob], count: int, draw: random.Random) -> list[DistributedJob]:
    """Choose shapes of different parallelisms first, one large one among four or more."""
    large = [job for job in shapes if job.ranks >= 16]
    small = [job for job in shapes if job.ranks < 16]
    draw.shuffle(small)
    seen: Counter[str] = Counter()
    turns = []
    for job in small:
        turns.append(seen[job.parallelism])
        seen[job.parallelism] += 1
    small = [job for _, job in sorted(zip(turns, small, strict=True), key=lambda pair: pair[0])]
    chosen = [small[i % len(small)] for i in range(count)]
    if count >= 4 and large:
        chosen[-1] = draw.choice(large)
    return chosen


def _fits(kind: FaultKind, job: DistributedJob) -> bool:
    if kind == "not_overlapped":
        return job.parallelism in ("ddp", "fsdp")
    if kind == "mismatch":
        return job.parallelism in ("ddp", "fsdp") and job.ranks < 64
    if kind == "slow_link":  # others have too little on the link for it to cost much
        return job.parallelism != "ep" and job.ranks <= 16
    if kind == "uneven_batches":
        return replicas_of(job) > 1
    if kind in ("logging", "uneven_work"):
        return job.parallelism != "tp" or job.degree < job.ranks
    return True


def _varied(job: DistributedJob, draw: random.Random) -> DistributedJob:
    layer_us = 900 * draw.uniform(0.6, 1.6)
    older = job.parallelism == "ddp" and draw.random() < 0.15
    return replace(
        job,
        steps=job.steps if job.ranks >= 16 else draw.randint(3, 6),
        layers=job.layers if job.parallelism == "pp" or job.ranks >= 16 else draw.randint(5, 9),
        layer_us=layer_us,
        layer_mib=24 * layer_us / 900 * draw.uniform(0.5, 1.0),
        microbatches=draw.choice((6, 8, 12)),
        clips=draw.random() < 0.8,
        noise=draw.uniform(0.005, 0.03),
        batch_spread=draw.choice((0, 0, 0.005, 0.01)),
        start_spread_us=10 ** draw.uniform(2, 2.7),
        with_groups=not older,
        with_sequence=draw.random() < 0.7,
        with_stacks=draw.random() < 0.8,
    )


def _case(name: str, job: DistributedJob, draw: random.Random, needed: tuple[int, ...]) -> JobCase:
    """Make a case. Of some jobs a few ranks have no trace, but those that matter have."""
    recorded = range(job.ranks)
    if job.ranks >= 8 and job.parallelism != "pp" and draw.random() < 0.15:
        lost = {draw.randrange(job.ranks) for _ in range(draw.randint(1, job.ranks // 4))} - set(needed)
        return JobCase(name, job, draw.randrange(2**31), tuple(r for r in recorded if r not in lost))
    return JobCase(name, job, draw.randrange(2**31), tuple(recorded))


def _faulty(kind: FaultKind, job: DistributedJob, draw: random.Random) -> JobCase:
    ranks = _ranks(kind, job, draw)
    steps: tuple[int, ...] = ()
    everything = kind == "slow_link" and job.degree == 1  # then only the other steps show what is usual
    if kind == "gc" or everything or (kind in ("slow_link", "loader") and draw.random() < 0.4):
        steps = tuple(sorted(draw.sample(range(1, job.steps), draw.randint(1, job.steps - 1))))
    fault = JobFault(kind, ranks, 0.5, steps)
    needed = tuple(range(job.ranks)) if kind in TRANSFERS else ranks
    case = _case(kind, replace(job, fault=fault), draw, needed)
    share = LEAST_SHARE * (MOST_SHARE / LEAST_SHARE) ** draw.random()
    return case if kind in FIXED else _calibrated(case, share)


def _ranks(kind: FaultKind, job: DistributedJob, draw: random.Random) -> tuple[int, ...]:
    """Draw the ranks with the fault: mostly one, all of a tensor group where they share the batch."""
    if kind in ("not_overlapped", "uneven_batches"):
        return ()
    rank = draw.choice((0, draw.randrange(job.ranks), draw.randrange(job.ranks)))
    if job.parallelism == "pp" and kind == "uneven_work":  # all replicas of a stage have its layers
        width = job.ranks // job.degree
        return tuple(range(rank // width * width, rank // width * width + width))
    if job.parallelism == "pp" and kind == "logging":  # the last stage has the loss
        return (job.ranks - 1,)
    if job.parallelism == "tp" and kind == "uneven_work":
        first = rank // job.degree * job.degree
        return tuple(range(first, first + job.degree))
    return (rank,)


def _calibrated(case: JobCase, share: float) -> JobCase:
    """Return the case with an amount that costs about this share of the step, and at least the least one."""
    fault = case.job.fault
    assert fault is not None
    usual = simulate_job(replace(case.job, fault=None), case.seed)
    step_ms = usual.truth.step_ns / 1e6
    lost_ms = step_ms * share / (1 - share) * (case.job.steps / len(fault.steps) if fault.steps else 1)
    if fault.kind == "late_start":
        return _with_amount(case, max(lost_ms, 1.0))
    if fault.kind in ("loader", "gc", "python"):
        amount = lost_ms + max(0.0, lead_ms(usual, fault.ranks[0]))
    elif fault.kind in ("logging", "allocator"):
        amount = max(0.2, lost_ms - 0.5)
    else:
        amount = 1 + 1.2 * share / (1 - share)
    for _ in range(TRIES):
        found = _with_amount(case, amount)
        cost = 1 - usual.truth.step_ns / found.simulate().truth.step_ns
        if cost > max(0.7 * share, LEAST_SHARE):
            break
        more = 1.5 if fault.kind != "slow_link" else 2.0
        amount = 1 + (amount - 1) * more if fault.kind in FACTORS else amount * more
    return found


def lead_ms(run: SimulatedJob, rank: int) -> float:
    """Return the least time by which a rank's host begins a step before the GPU has done the last one."""
    program = run.programs[rank]
    starts = [start for start, _ in program.steps[1:]]
    ends = [work.end_ns or 0 for work in program.optimized]
    return min(end - start for start, end in zip(starts, ends, strict=False)) / 1e6


def _with_amount(case: JobCase, amount: float) -> JobCase:
    assert case.job.fault is not None
    return replace(case, job=replace(case.job, fault=replace(case.job.fault, amount=amount)))


def _harmless(job: DistributedJob, draw: random.Random) -> JobCase:
    """Plant host work on one rank that the GPU does not notice, because the host is ahead of it.

    It is not in the first step: there the host is not ahead yet.
    """
    kind: FaultKind = draw.choice(("loader", "gc", "python"))
    case = _case("harmless", job, draw, ())
    rank = draw.randrange(job.ranks)
    amount = 0.3 * lead_ms(case.simulate(), rank)
    return replace(case, job=replace(job, fault=JobFault(kind, (rank,), amount, tuple(range(1, job.steps)))))
