"""Was the fix made? Was another one made? And how to record so that it can be told."""

from __future__ import annotations

from typing import Any

import pytest

from tb_gpudiag.errors import UsageError
from tb_gpudiag.jobs.compare.comparison import compare
from tb_gpudiag.jobs.compare.comparison_view import verification_document
from tb_gpudiag.jobs.compare.verification import verify
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.views.text import document_text
from tests.jobs.compare.sides import finding, trace
from tests.jobs.ranks.stage import job
from tests.with_each import with_each

LOADER = finding("GD101", 1600, saves_us=(150, 250))
LAUNCHES = finding("GD201", 3200, saves_us=(150, 500))


def verified(
    base: list[pb.Finding], candidate: list[pb.Finding], rule: str = "", **more: Any
) -> pb.Verification:
    sides = [trace([1000] * 8, "a", findings=base)], [trace([800] * 8, "b", findings=candidate, **more)]
    return verify(compare(*sides), rule, "a")


def test_a_fix_that_was_made() -> None:
    found = verified([LOADER], [])
    assert (found.made, found.rule, found.verdict) == (pb.Verification.MADE, "GD101", pb.Comparison.FASTER)
    assert found.sentence.startswith("The fix was made. GD101 name_GD101 is gone: it cost 200")
    assert found.step.startswith("Faster by 20.0%")
    assert not found.how_to_tell


@pytest.mark.parametrize(
    ("computing", "devices", "noted"), [(0.625, 1, True), (0.375, 1, False), (0.375, 0, True)]
)
def test_time_saved_on_the_host_is_less_without_a_profiler(
    computing: float, devices: int, noted: bool
) -> None:
    launching = [{"operator": "aten::mm", "launches": 8}] * devices
    base = trace([1000] * 8, "a", computing=0.5, findings=[LOADER], devices=devices, operators=launching)
    other = trace([800] * 8, "b", computing=computing, devices=devices, operators=launching)
    assert any("profiler" in note for note in verify(compare([base], [other])).notes) is noted


def test_a_fix_that_was_not_made() -> None:
    found = verified([LOADER], [LOADER], "GD101")
    assert found.made == pb.Verification.NOT_MADE
    assert "is still there" in found.sentence


@with_each("rule", ["GD101", "input_pipeline", "gd101"])
def test_another_fix_was_made(rule: str) -> None:
    found = verified([LOADER, LAUNCHES], [LOADER], rule)
    assert found.made == pb.Verification.ANOTHER
    assert [row.rule for row in found.findings] == ["GD101", "GD201"]
    for part in ("Another fix was made", "GD101 name_GD101 is still there", "GD201 name_GD201 is gone"):
        assert part in found.sentence
    assert found.findings[1].promise == pb.Verified.INSIDE


def test_a_hint_that_is_gone_is_no_other_fix() -> None:
    hint = pb.Finding(rule="GD504", severity=pb.Finding.INFO)
    assert verified([LOADER, hint], [LOADER], "GD101").made == pb.Verification.NOT_MADE


def test_a_finding_that_comes_and_goes_is_no_other_fix() -> None:
    leak = pb.Finding(rule="GD401", severity=pb.Finding.ERROR, cost_bytes_per_step=1e6)
    for other, made in ((LAUNCHES, pb.Verification.NOT_MADE), (leak, pb.Verification.ANOTHER)):
        sides = [trace([1000] * 8, "a", findings=[LOADER, other]), trace([1001] * 8, "b", findings=[LOADER])]
        assert verify(compare(sides[:1], sides[1:]), "GD101").made == made


def test_a_part_of_a_fix_was_made() -> None:
    two = [finding("GD202", 1600, place="f"), finding("GD202", 1600, place="g")]
    assert verified(two, two[:1]).made == pb.Verification.PARTLY
    assert verified([LOADER], [finding("GD101", 700)]).made == pb.Verification.PARTLY


def test_the_finding_that_costs_most_is_verified() -> None:
    assert verified([LOADER, LAUNCHES], [LOADER]).rule == "GD201"


@pytest.mark.parametrize(
    "candidate", [{"device_name": "NVIDIA H100"}, {"unchecked": {"GD101": "Nothing was recorded."}}]
)
def test_what_cannot_be_told_comes_with_the_way_to_record_it(candidate: dict[str, Any]) -> None:
    found = verified([LOADER], [], **candidate)
    assert found.made == pb.Verification.CANNOT_TELL
    assert found.sentence.startswith("Cannot tell whether GD101 name_GD101 is gone.")
    assert found.how_to_tell


def test_a_recording_without_steps_shows_that_a_finding_is_gone_and_not_what_that_gave() -> None:
    found = verified([LOADER], [], steps_basis="none")
    assert found.made == pb.Verification.MADE
    assert "Cannot tell what it gave: the candidate has no steps" in found.sentence
    assert "prof.step()" in found.how_to_tell[0]


def test_two_fixes_at_once_ask_for_one_at_a_time() -> None:
    found = verified([LOADER, LAUNCHES], [], "GD101")
    assert found.made == pb.Verification.MADE
    assert found.findings[0].promise == pb.Verified.CANNOT_TELL
    assert found.how_to_tell == ["Make one fix at a time, and record after each: then each saving is known."]


def test_a_finding_about_the_ranks_of_a_job() -> None:
    """Rank 2 took 2 ms longer than its peers in each step of 10 ms, and all ranks waited for it."""
    slow = job(4, 6, own_ms=lambda rank, step: 12.0 if rank == 2 else 10.0, cause="python")
    found = verify(compare(slow, job(4, 6, own_ms=lambda rank, step: 10.0)), "GD602")
    assert found.made == pb.Verification.MADE
    (row,) = [row for row in found.findings if row.rule == "GD602"]
    assert (row.cost_us, row.low_us, row.high_us) == pytest.approx((2000, 2000, 2000))
    assert row.promise == pb.Verified.INSIDE


def test_new_findings_are_named() -> None:
    found = verified([LOADER], [LAUNCHES, finding("GD501", 0)])
    assert [new[:5] for new in found.new_findings] == ["GD201", "GD501"]


def test_a_recording_without_findings() -> None:
    found = verified([], [])
    assert (found.made, found.rule) == (pb.Verification.CANNOT_TELL, "")
    assert "no finding about the job" in found.sentence


def test_a_finding_that_was_never_there_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"no finding GD301.*GD101"):
        verified([LOADER], [], "GD301")
    with pytest.raises(UsageError, match="no such rule"):
        verified([LOADER], [], "GD000")


def test_readers_see_it_in_one_page() -> None:
    shown = document_text(verification_document(verified([LOADER, LAUNCHES], [LOADER], "GD101")))
    for part in ("Another fix was made", "Findings before the fix", "Estimated and measured saving", "right"):
        assert part in shown
