"""A small fixed part of the benchmark of simulated jobs; all of it with `make bench`."""

from __future__ import annotations

import pytest

from tests.benchmarks.truth.job_score import FIRST, PRECISION, RECALL, job_table, ranks_in, score_jobs
from tests.benchmarks.truth.jobs import TIME_ERROR, measure
from tests.simulator.jobs.cases import JobCase, cases
from tests.simulator.jobs.testing import JOBS, job_facts, simulated_job


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp on two hosts", "fsdp within hosts", "pp", "ep"])
def test_facts_of_a_healthy_job_are_the_truth(name: str) -> None:
    job = JOBS[name]
    case, run = JobCase(name, job, 0, tuple(range(job.ranks))), simulated_job(job)
    measured = measure(case, run, job_facts(job))
    assert measured.matched == measured.of
    assert measured.clocks_right
    assert max(measured.waiting_error, measured.transfer_error) < TIME_ERROR


def test_ranks_are_read_from_titles() -> None:
    assert ranks_in("Rank 3 takes 2 ms longer") == {3}
    assert ranks_in("Transfers of ranks 0, 2 and 5–7 (host node1) take 3 times") == {0, 2, 5, 6, 7}
    assert ranks_in("Different ranks are slow") == set()


@pytest.mark.benchmark
@pytest.mark.timeout(1_800)
def test_job_truth(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        score = score_jobs(cases(seed=0))
        print("\n".join(job_table(score)), flush=True)
    assert score.healthy_alarms == 0
    for one in score.rules.values():
        assert one.precision >= PRECISION
        assert one.recall >= RECALL
        assert one.first >= FIRST * (one.right + one.missed)
