"""Faults of simulated jobs are found first, with their ranks and causes; healthy jobs have no finding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.report.job_report import run_job_rules
from tb_gpudiag.jobs.rules.uneven_ranks import find_uneven
from tests.builder import EPOCH_NS
from tests.simulator.jobs import JobFault
from tests.simulator.jobs.testing import JOBS, job_facts, simulated_job

pytestmark = pytest.mark.slow

DDP = JOBS["ddp on two hosts"]


def with_fault(fault: JobFault) -> JobFacts:
    return job_facts(replace(DDP, fault=fault))


@pytest.mark.parametrize(
    ("fault", "rule", "part"),
    [
        (JobFault("slow_gpu", (2,), 1.3), "GD602", "computing"),
        (JobFault("loader", (2,), 30), "GD602", "input"),
        (JobFault("gc", (3,), 40, (2,)), "GD602", "python"),
        (JobFault("logging", (2,), 15), "GD602", "sync"),
        (JobFault("allocator", (2,), 20), "GD602", "allocator"),
        (JobFault("uneven_work", (2,), 1.4), "GD603", "computing"),
        (JobFault("uneven_batches", (), 1.5), "GD603", "computing"),
        (JobFault("slow_link", (1,), 6, (2, 3)), "GD604", ""),
        (JobFault("mismatch", (1,), 2), "GD605", ""),
        (JobFault("late_start", (3,), 8), "GD606", ""),
        (JobFault("not_overlapped"), "GD607", ""),
    ],
    ids=lambda value: value.kind if isinstance(value, JobFault) else None,
)
def test_a_planted_fault_is_found(fault: JobFault, rule: str, part: str) -> None:
    facts = with_fault(fault)
    found = run_job_rules(facts).findings
    assert [one.rule.id for one in found if one.rule.id != "GD609"] == [
        rule
    ]  # slow links are long transfers, too
    if part:
        uneven = find_uneven(facts)
        assert uneven.part == part
        assert not fault.ranks or facts.ranks(uneven.members) == list(fault.ranks)


def test_a_stage_that_logs_holds_up_a_pipeline_over_two_hosts() -> None:
    """The last stage has no peer in a replay: that it saves nothing there says nothing."""
    pipeline = replace(JOBS["pp"], layers=2, microbatches=6, fault=JobFault("logging", (3,), 5))
    facts = job_facts(pipeline)
    assert (facts.matching.collective != NONE).all()
    assert [one.rule.id for one in run_job_rules(facts).findings if one.rule.id != "GD610"] == ["GD602"]


@pytest.mark.parametrize("name", JOBS)
def test_healthy_jobs_have_no_finding(name: str) -> None:
    outcome = run_job_rules(job_facts(JOBS[name]))
    assert not [(found.rule.id, found.finding.title) for found in outcome.findings]


def test_offsets_of_clocks_are_recovered_within_the_residual() -> None:
    facts = job_facts(DDP)
    clocks, truth = facts.clocks, simulated_job(DDP).truth.clocks
    assert clocks.basis == "COLLECTIVES"
    # Offsets hold in the middle of the recording: clocks drift.
    middle = min(member.about.origin_ns for member in facts.set.members) + clocks.middle_ns - EPOCH_NS
    hosts = [truth[member.about.host] for member in facts.set.members]
    true = np.array([hosts[0].offset_at(middle) - host.offset_at(middle) for host in hosts])
    assert np.abs(clocks.offset_ns - true).max() <= clocks.residual_ns
