"""Replays of simulated jobs, against the same simulation without the fault."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tb_gpudiag.jobs.replay.job_replay import (
    TRANSFER,
    UNCHANGED,
    JobChange,
    JobReplay,
    JobSlowdown,
    slowdown_of,
)
from tests.simulator.jobs import DistributedJob, JobFault, SimulatedJob
from tests.simulator.jobs.settings import FaultKind
from tests.simulator.jobs.testing import JOBS, job_facts, simulated_job

pytestmark = pytest.mark.slow

SLOW = 2
"""The rank with the fault."""

SLOW_GPU: tuple[FaultKind, float, tuple[str, ...]] = ("slow_gpu", 1.3, ("computing",))
LOADER: tuple[FaultKind, float, tuple[str, ...]] = ("loader", 30, ("input",))
"""Faults of one rank, their amounts, and the parts of its work that a fix changes."""

DDP = JOBS["ddp on two hosts"]


def with_fault(job: DistributedJob, kind: FaultKind, amount: float) -> SimulatedJob:
    return simulated_job(replace(job, fault=JobFault(kind, (SLOW,), amount)))


@cache
def replay_of(job: DistributedJob) -> JobReplay:
    return JobReplay(job_facts(job).work)


def replayed(job: DistributedJob) -> JobSlowdown:
    return slowdown_of(job_facts(job).work, replay_of(job))


def check_fix(job: DistributedJob, fault: tuple[FaultKind, float, tuple[str, ...]]) -> None:
    """Compare a fix of the rank with the run without the fault."""
    kind, amount, parts = fault
    run = with_fault(job, kind, amount)
    replay = replay_of(run.job)
    fix = JobChange(parts=frozenset(parts), members=frozenset([SLOW]))
    unchanged, fixed = replay.step_ns([UNCHANGED, fix]).mean(axis=1)
    assert replay.error < 0.02
    assert unchanged == pytest.approx(run.truth.step_ns, rel=0.05)
    assert fixed == pytest.approx(run.without().truth.step_ns, rel=0.05)


def test_fixing_the_rank_gives_the_step_without_its_fault() -> None:
    check_fix(DDP, SLOW_GPU)


@pytest.mark.parametrize(
    "fault", [LOADER, ("logging", 15, ("sync", "python")), ("allocator", 20, ("allocator",))]
)
def test_so_do_fixes_of_other_faults(fault: tuple[FaultKind, float, tuple[str, ...]]) -> None:
    check_fix(DDP, fault)


@pytest.mark.parametrize(
    ("parallelism", "fault"),
    [
        ("fsdp", SLOW_GPU),
        ("fsdp within hosts", LOADER),
        ("pp with replicas", SLOW_GPU),
        ("tp with replicas", SLOW_GPU),
        ("ep", LOADER),
    ],
)
def test_so_they_do_with_other_parallelisms(
    parallelism: str, fault: tuple[FaultKind, float, tuple[str, ...]]
) -> None:
    check_fix(JOBS[parallelism], fault)


@pytest.mark.parametrize("parallelism", ["fsdp", "tp with replicas"])
def test_a_healthy_job_has_no_slowdown(parallelism: str) -> None:
    assert replayed(JOBS[parallelism]).s == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("fault", [("slow_gpu", 6, ("computing",)), ("loader", 8, ("input",))])
def test_hosts_bound_the_step_after_a_fix(
    fault: tuple[FaultKind, float, tuple[str, ...]],
) -> None:
    """Without the fault, GPUs wait for their hosts half of the time. A slow rank hides that."""
    check_fix(replace(DDP, steps=5, layers=6, layer_us=60, layer_mib=4), fault)


def slowdown(run: SimulatedJob) -> tuple[float, JobSlowdown]:
    """What the fault costs in truth, and as replayed."""
    return run.truth.step_ns / run.without().truth.step_ns, replayed(run.job)


def test_the_slowdown_names_the_rank_and_the_work() -> None:
    truth, found = slowdown(with_fault(DDP, "loader", 30))
    assert found.s == pytest.approx(truth, rel=0.05)
    assert found.by_member[SLOW] == pytest.approx(truth, rel=0.05)
    assert max(found.by_part, key=lambda part: found.by_part[part]) == "input"


def test_slow_computing_is_shared_among_the_ranks() -> None:
    """One of four GPUs takes 1.3 times as long: evenly spread, that is 1.075 times for all."""
    truth, found = slowdown(with_fault(DDP, "slow_gpu", 1.3))
    assert found.s == pytest.approx(truth / 1.075, rel=0.05)
    assert found.by_member[SLOW] == pytest.approx(truth, rel=0.05)
    assert found.by_part["computing"] == pytest.approx(found.s, rel=0.02)


def test_a_slow_link_between_some_ranks_is_in_the_transfers() -> None:
    _, found = slowdown(with_fault(JOBS["tp with replicas"], "slow_link", 4))
    assert found.s > 1.1
    assert found.by_part[TRANSFER] == pytest.approx(found.s, rel=0.02)
