"""What each planted fault of a job does to its ranks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.simulator.jobs import DistributedJob, JobFault, SimulatedJob
from tests.simulator.jobs.settings import CAUSES, RULES, FaultKind
from tests.simulator.jobs.testing import JOBS, simulated_job

pytestmark = pytest.mark.slow

JOB = JOBS["ddp on two hosts"]
AMOUNTS: dict[FaultKind, float] = {"slow_gpu": 1.3, "uneven_work": 1.3, "uneven_batches": 1.3, "slow_link": 4}
LATE: tuple[FaultKind, ...] = ("slow_gpu", "loader", "gc", "logging", "python", "allocator", "uneven_work")


def faulty(kind: FaultKind, job: DistributedJob = JOB, **changes: object) -> SimulatedJob:
    fault = JobFault(kind, (2,), AMOUNTS.get(kind, 15))
    return simulated_job(replace(job, fault=replace(fault, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", LATE)
def test_a_late_rank_makes_all_others_wait(kind: FaultKind) -> None:
    run = faulty(kind)
    truth, healthy = run.truth, run.without().truth
    assert (truth.rule, truth.ranks) == (RULES[kind], (2,))
    assert truth.cause == CAUSES.get(kind, kind)
    assert truth.step_ns > 1.1 * healthy.step_ns
    assert truth.by_rank[2].waiting_ns < 0.02 * truth.window_ns
    lost = truth.window_ns - healthy.window_ns
    for rank in set(range(JOB.ranks)) - {2}:
        assert truth.by_rank[rank].waiting_ns > 0.6 * lost


def test_a_slow_gpu_runs_the_same_kernels_for_longer_and_uneven_work_runs_larger_ones() -> None:
    def kernels(run: SimulatedJob) -> tuple[list[str], list[object], int]:
        recording = run.recordings[2]
        names = [w.name for w in recording.gpu if w.kind == "kernel"]
        shapes = [span.args["Input Dims"] for span in recording.host if "Input Dims" in span.args]
        ns = sum(w.end_ns - w.start_ns for w in recording.gpu if "gemm" in w.name)
        return names, shapes, ns

    names, shapes, ns = kernels(simulated_job(JOB))
    slow, uneven = kernels(faulty("slow_gpu")), kernels(faulty("uneven_work"))
    assert slow[:2] == (names, shapes)
    assert slow[2] == pytest.approx(1.3 * ns, rel=0.001)
    assert uneven[0] == names
    assert uneven[1] != shapes
    assert uneven[2] == pytest.approx(1.3 * ns, rel=0.01)


def test_uneven_batches_make_another_rank_late_in_each_step() -> None:
    run = faulty("uneven_batches", steps=())
    assert run.truth.ranks == ()
    last = {one.step: one.last_rank for one in run.truth.collectives}
    assert len(set(last.values())) > 1
    assert run.truth.step_ns > 1.1 * run.without().truth.step_ns


def test_a_slow_link_lengthens_transfers_and_makes_nobody_late() -> None:
    run = faulty("slow_link")
    slow, usual = run.truth.collectives, run.without().truth.collectives
    assert sum(c.transfer_ns for c in slow) > 3 * sum(c.transfer_ns for c in usual)
    assert max(one.waiting_ns for one in run.truth.by_rank.values()) < 0.05 * run.truth.window_ns
    some = faulty("slow_link", steps=(3,)).truth.collectives
    assert {c.step for c, u in zip(some, usual, strict=True) if c.transfer_ns > 3 * u.transfer_ns} == {3}


def test_mismatched_collectives_have_another_size_on_one_rank() -> None:
    run = faulty("mismatch", amount=0.5)
    sizes = [
        [w.args["In msg nelems"] for w in recording.gpu if "Seq" in w.args] for recording in run.recordings
    ]
    differ = [i for i, pair in enumerate(zip(sizes[0], sizes[2], strict=True)) if pair[0] != pair[1]]
    assert len(differ) == JOB.steps
    assert sizes[0] == sizes[3]
    assert run.truth.step_ns == run.without().truth.step_ns


def test_a_late_start_delays_the_first_collective_only() -> None:
    run = faulty("late_start")
    first, *others = run.truth.collectives
    assert first.last_rank == 2
    assert first.skew_ns > 14e6
    assert max(one.skew_ns for one in others if one.step) < 1e6
    assert run.truth.step_ns == pytest.approx(run.without().truth.step_ns, rel=0.01)
    assert run.programs[2].rank.recording.start_ns > 14e6


def test_communication_after_backward_is_exposed() -> None:
    run = faulty("not_overlapped")
    transferred = sum(one.transfer_ns for one in run.truth.collectives)
    assert run.truth.by_rank[0].exposed_ns > 0.95 * transferred
    assert run.without().truth.by_rank[0].exposed_ns < 0.3 * transferred
    assert run.truth.step_ns > 1.05 * run.without().truth.step_ns


@pytest.mark.parametrize("name", JOBS)
def test_a_slow_gpu_slows_every_parallelism(name: str) -> None:
    run = faulty("slow_gpu", JOBS[name], ranks=(1,))
    assert run.truth.step_ns > 1.1 * run.without().truth.step_ns
    usual = run.without().truth
    for rank in {0, JOBS[name].ranks - 1} - {1}:
        assert run.truth.by_rank[rank].waiting_ns > usual.by_rank[rank].waiting_ns


def test_an_uneven_stage_has_more_layers_and_a_hot_expert_more_tokens() -> None:
    pipeline = faulty("uneven_work", JOBS["pp"], ranks=(1,), amount=2.0)
    launched = [len(recording.gpu) for recording in pipeline.recordings]
    assert launched[1] > 1.5 * launched[2]
    assert pipeline.truth.step_ns > 1.3 * pipeline.without().truth.step_ns
    experts = faulty("uneven_work", JOBS["ep"], ranks=(1,), amount=2.0)
    received = [
        sum(w.args["Out msg nelems"] for w in recording.gpu if "all_to_allv" in w.args.values())
        for recording in experts.recordings
    ]
    assert max(received) == received[1]
    assert experts.truth.step_ns > 1.05 * experts.without().truth.step_ns


def test_a_slow_network_card_slows_what_leaves_the_host() -> None:
    job = JOBS["fsdp within hosts"]
    run = faulty("slow_link", job, ranks=(1,))
    by_name = {(c.group, c.sequence): c for c in run.without().truth.collectives}
    for slow in run.truth.collectives:
        usual = by_name[slow.group, slow.sequence]
        crosses = slow.kind == "all_reduce" and 1 in slow.arrival_ns
        assert (slow.transfer_ns > 2 * usual.transfer_ns) == crosses


def test_gathering_weights_when_they_are_needed_is_exposed() -> None:
    run = faulty("not_overlapped", JOBS["fsdp"])
    assert run.truth.by_rank[0].exposed_ns > 2 * run.without().truth.by_rank[0].exposed_ns
    assert run.truth.step_ns > 1.05 * run.without().truth.step_ns


@pytest.mark.parametrize("kind", ["loader", "gc", "slow_gpu"])
def test_a_fault_of_some_steps_changes_no_other_step(kind: FaultKind) -> None:
    run = faulty(kind, steps=(1,))
    slow, usual = run.programs[0].optimized, run.without().programs[0].optimized
    lengths = [
        [b - a for a, b in pairwise(ends)]
        for ends in ([w.end_ns or 0 for w in slow], [w.end_ns or 0 for w in usual])
    ]
    assert lengths[0][0] > 1.1 * lengths[1][0]
    assert lengths[0][1:] == pytest.approx(lengths[1][1:], rel=0.02)
