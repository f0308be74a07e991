"""The timeline of the ranks: its sums are the figures of the ranks, and it is bounded."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from tb_gpudiag.digest.build_digest import digest_file
from tb_gpudiag.digest.digest import WORK, Digest
from tb_gpudiag.jobs.report.job_report import build_jobs
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.wire import to_json
from tb_gpudiag.trace.files.find import find_traces
from tests.conftest import SHARED_TRACES
from tests.jobs.ranks.stage import job
from tests.simulator.jobs.testing import JOBS, rank_digests

pytestmark = pytest.mark.slow  # each test reads a whole job

DLRM = SHARED_TRACES / "v100_dlrm_8ranks"
GLOO = SHARED_TRACES / "cpu_torch213" / "gloo2"

# Collectives' own parts and the steps' round differently in traces with timestamps of whole microseconds.
ROUNDING_US = 2.0


@cache
def report_of(folder: str) -> pb.JobReport:
    (report,) = build_jobs(digest_file(file)[1] for file in find_traces(folder).files).reports
    return report


def report_on(digests: list[Digest]) -> pb.JobReport:
    (report,) = build_jobs(digests).reports
    return report


def assert_sums(report: pb.JobReport) -> None:
    """Each lane has the figures of its rank, and its stretches follow one another."""
    found = report.timeline
    assert [lane.at for lane in found.lanes] == list(range(len(report.ranks)))
    for lane in found.lanes:
        rank, own = report.ranks[lane.at], lane.collectives
        sums: defaultdict[str, float] = defaultdict(float)
        assert len(lane.part) == len(lane.part_us) == sum(lane.parts)
        assert len(lane.parts) == len(lane.end_us)
        for part, time_us in zip(lane.part, lane.part_us, strict=True):
            sums[found.parts[part]] += time_us
        expected = {"computing": rank.computing_us, "copying": rank.copying_us}
        expected |= {"communicating": rank.communicating_us}
        expected |= {pb.CauseTime.Cause.Name(one.cause): one.us for one in rank.idle_by_cause}
        for name in {*expected, *sums}:
            # The step window can begin before the first recorded step, with idle time that is in no step.
            before_us = max(0, rank.window_us - rank.step_us * len(report.steps)) if name not in WORK else 0
            more = sums[name] - expected.get(name, 0)
            assert -ROUNDING_US <= more <= before_us + ROUNDING_US, name
        # Operations of two groups wait at the same time, which counts once in the rank's figures.
        waits_at_once = "+" in report.parallelism
        for lane_us, rank_us in (
            (sum(own.waiting_us), rank.waiting_us),
            (sum(own.transfer_us), rank.transfer_us),
        ):
            assert lane_us >= rank_us - 0.01
            assert waits_at_once or lane_us == pytest.approx(rank_us, abs=0.01)
        bounds = [lane.start_us, *lane.end_us]
        assert bounds == sorted(bounds)
        assert list(own.start_us) == sorted(own.start_us)
        assert bounds[-1] - bounds[0] == pytest.approx(rank.window_us, rel=1e-3)
        assert sum(lane.part_us) <= rank.window_us + ROUNDING_US


@pytest.mark.parametrize("name", ["ddp on two hosts", "fsdp", "pp", "tp with replicas", "ep"])
def test_lanes_add_up_to_the_ranks(name: str) -> None:
    report = report_on(list(rank_digests(JOBS[name])))
    assert_sums(report)
    waited_for = sum(sum(lane.collectives.waited_for_us) for lane in report.timeline.lanes)
    assert waited_for == pytest.approx(report.collectives.waiting_us, abs=1)


@pytest.mark.skipif(not DLRM.is_dir(), reason="needs the public DLRM traces")
def test_eight_ranks_of_dlrm_add_up() -> None:
    report = report_of(str(DLRM))
    assert_sums(report)
    assert len(report.timeline.lanes) == 8


@pytest.mark.skipif(not GLOO.is_dir(), reason="needs the recorded Gloo job")
def test_ranks_on_the_cpu_add_up() -> None:
    assert_sums(report_of(str(GLOO)))


def test_a_collective_that_runs_alone_is_a_stretch_of_its_own() -> None:
    report = report_on(job(2, 2, own_ms=lambda rank, step: 10.0 + 4 * rank))
    assert not report.timeline.merged
    first, second = report.timeline.lanes
    # Both arrive, wait and transfer until 15 ms. The next one is called 1 ms later, and takes 1 ms.
    assert list(first.end_us)[:3] == [10_000, 15_000, 16_000]
    assert list(second.end_us)[:3] == [14_000, 15_000, 16_000]
    names = [report.timeline.parts[part] for part in first.part]
    assert names[:3] == ["computing", "communicating", "computing"]
    assert list(first.collectives.waiting_us) == [4_000, 0, 4_000, 0]
    assert list(second.collectives.waited_for_us) == [4_000, 0, 4_000, 0]
    assert [report.timeline.kinds[kind - 1] for kind in first.collectives.kind] == ["all_reduce"] * 4


def test_ranks_without_a_common_clock_begin_at_their_own_start() -> None:
    def unmatched(rank: int, number: int, row: dict[str, object]) -> None:
        row["sequence"] = number + 500 * rank

    report = report_on(
        job(2, 3, change=unmatched, host=lambda rank: f"node{rank}", start_ms=lambda r: 90 * r)
    )
    assert report.clocks.basis == pb.Clocks.NONE
    assert [(lane.aligned, lane.start_us) for lane in report.timeline.lanes] == [(False, 0)] * 2


def test_many_ranks_with_many_collectives_are_bounded() -> None:
    report = report_on(job(80, 20, own_ms=lambda rank, step: 12.0 if rank == 79 else 10.0, collectives=5))
    found = report.timeline
    assert (len(found.lanes), found.left_out, found.merged) == (64, 16, True)
    assert found.lanes[-1].at == 79
    assert len(to_json(found)) < 100_000
    for lane in found.lanes:
        rank = report.ranks[lane.at]
        assert sum(lane.collectives.waiting_us) == pytest.approx(rank.waiting_us, abs=0.01)
        assert sum(lane.collectives.count) == 100
        # What is long is not merged.
        assert len(lane.end_us) > 10
        assert len(lane.collectives.kind) > 8
