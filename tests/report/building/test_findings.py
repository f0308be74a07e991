"""Findings on the wire."""

from __future__ import annotations

from tb_gpudiag.jobs.rules.every_rule import find_any_rule
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.finding_messages import (
    CODE_LIMIT,
    PLACES_LIMIT,
    RANGES_LIMIT,
    Whole,
    finding_message,
)
from tb_gpudiag.rules.answer import Evidence, Finding, Fix, Place, Range, Saving, Severity
from tb_gpudiag.rules.outcome import RuleFinding
from tb_gpudiag.wording.quantity import Quantity, duration, number, ratio, share_of, size
from tests.report.reports import usual_report
from tests.with_each import with_each


def message(
    step_ns: float = 0, code: str = "", unprofiled_share: float = 1.0, **finding: object
) -> pb.Finding:
    rule = find_any_rule("GD101")
    assert rule is not None
    found = Finding("title", "summary", Fix("fix", code), **finding)  # type: ignore[arg-type]
    return finding_message(
        RuleFinding(rule, found, Severity.WARNING), Whole(1_000_000, step_ns, unprofiled_share)
    )


@with_each(
    ("value", "wanted"),
    [
        (duration(12_300_000, "per step"), (12_300_000, "ns")),
        (size(3 * 2**20), (3 * 2**20, "bytes")),
        (share_of(1, 4), (0.25, "share")),
        (number(3, "call"), (3, "count")),
        (ratio(float("inf")), (0, "")),
        ("cudaMalloc", (0, "")),
    ],
)
def test_evidence_has_its_number_and_unit(value: Quantity | str, wanted: tuple[float, str]) -> None:
    (evidence,) = message(evidence=[Evidence("label", value, ("a detail",))]).evidence
    assert (evidence.number, evidence.unit) == wanted
    assert evidence.value == f"{value}, a detail"


def test_evidence_of_a_real_finding_agrees_with_its_text() -> None:
    findings = usual_report().findings
    times = [e for finding in findings for e in finding.evidence if e.unit == "ns"]
    for evidence in times:
        assert evidence.value.startswith(str(duration(evidence.number)))


def test_savings_are_also_shares_and_times_per_step() -> None:
    saving = message(step_ns=450_000, saving=Saving(100_000, 300_000)).saving
    assert (saving.low_us, saving.high_us, saving.basis) == (100, 300, "at most")
    assert (saving.low_share, saving.high_share) == (0.1, 0.3)
    assert (saving.low_per_step_us, saving.high_per_step_us) == (45, 135)
    assert message(saving=Saving(100_000, 300_000)).saving.high_per_step_us == 0
    assert not message().HasField("saving")


def test_savings_are_shares_of_the_step_without_the_profiler() -> None:
    saved = Saving(100_000, 300_000, likely_ns=200_000)
    saving = message(step_ns=450_000, saving=saved, unprofiled_share=0.5).saving
    assert (saving.low_share, saving.likely_share, saving.high_share) == (0.1, 0.2, 0.3)
    assert (saving.low_us, saving.likely_us, saving.high_us) == (50, 100, 150)
    assert saving.likely_per_step_us == 45


def test_lists_and_code_are_bounded() -> None:
    found = message(
        places=[Place(line=i) for i in range(PLACES_LIMIT + 5)],
        ranges=[Range(0, i, device=0) for i in range(RANGES_LIMIT + 5)],
        code="x" * 10 * CODE_LIMIT,
    )
    assert len(found.places) == PLACES_LIMIT
    assert len(found.ranges) == RANGES_LIMIT
    assert found.ranges[0].end_us == (RANGES_LIMIT + 4) / 1_000  # the longest come first
    assert len(found.fix.code) <= CODE_LIMIT


def test_code_keeps_its_lines_and_its_indentation() -> None:
    assert message(code="for x in y:\n    f(x)\x1b").fix.code == "for x in y:\n    f(x)\ufffd"


def test_doubt_is_on_the_wire() -> None:
    assert message(sure=True).certain
    assert not message(sure=False).certain
