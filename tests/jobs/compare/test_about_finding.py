"""What became of one finding: of one trace or of the ranks of a job."""

from __future__ import annotations

import pytest

from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.promise import about_finding
from tb_gpudiag.report import report_pb2 as pb
from tests.jobs.compare.sides import finding, trace
from tests.jobs.ranks.stage import job

LOADER = finding("GD101", 1600, saves_us=(150, 250))


@pytest.mark.parametrize(
    ("computing", "devices", "noted"), [(0.625, 1, True), (0.375, 1, False), (0.375, 0, True)]
)
def test_time_saved_on_the_host_is_less_without_a_profiler(
    computing: float, devices: int, noted: bool
) -> None:
    launching = [{"operator": "aten::mm", "launches": 8}] * devices
    base = trace([1000] * 8, "a", computing=0.5, findings=[LOADER], devices=devices, operators=launching)
    other = trace([800] * 8, "b", computing=computing, devices=devices, operators=launching)
    found = about_finding(compare([base], [other]), "gd101", "a")
    assert any("profiler" in note for note in found.notes) is noted


def test_all_findings_of_a_rule_and_no_others() -> None:
    two = [finding("GD202", 1600, place="f"), finding("GD202", 1600, place="g")]
    compared = compare(
        [trace([1000] * 8, "a", findings=[LOADER, *two])], [trace([800] * 8, "b", findings=two[:1])]
    )
    rows = about_finding(compared, "GD202", "a").verified
    assert [(row.place, row.became) for row in rows] == [("g", pb.Verified.GONE), ("f", pb.Verified.KEPT)]
    assert len(compared.verified) == 3


def test_a_finding_about_the_ranks_of_a_job() -> None:
    """Rank 2 took 2 ms longer than its peers in each step of 10 ms, and all ranks waited for it."""
    slow = job(4, 6, own_ms=lambda rank, step: 12.0 if rank == 2 else 10.0, cause="python")
    compared = compare(slow, job(4, 6, own_ms=lambda rank, step: 10.0))
    (row,) = about_finding(compared, "GD602", "a").verified
    assert (row.cost_us, row.low_us, row.high_us) == pytest.approx((2000, 2000, 2000))
    assert row.promise == pb.Verified.CANNOT_TELL  # a promise without a range
