"""Digests that are put together by a tree are those that were put in."""

from __future__ import annotations

from tb_gpudiag.jobs.ranks.members import join, joined, slim
from tb_gpudiag.jobs.report.job_report import build_jobs
from tests.jobs.ranks.stage import job


def test_a_tree_of_digests_gives_the_same_report() -> None:
    ranks = job(7, 5, own_ms=lambda rank, step: 20.0 if rank == 2 else 10.0)
    parts = [joined(slim(digest)) for digest in ranks]
    while len(parts) > 1:
        parts = [join(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    found = list(parts[0])
    assert [digest.about for digest in found] == [digest.about for digest in ranks]
    assert build_jobs(found).reports == build_jobs(ranks).reports != []


def test_ranks_that_do_the_same_share_its_names() -> None:
    ends = {
        column.chunk(0).buffers()[1].address
        for digest in job(3, 5, own_ms=lambda rank, step: 10.0)
        for column in [slim(digest).collectives["name"]]
    }
    assert len(ends) == 1
