from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tb_gpudiag.rules.transfers.exposed_copies import RULE
from tb_gpudiag.rules.transfers.pageable_copies import RULE as PAGEABLE
from tb_gpudiag.wording.quantity import bandwidth, duration, number, share_of, size
from tests.builder import TraceBuilder
from tests.rules.stage import STEP_AT, STEP_US, facts_of, figures, finding, is_clear, one_step, saving

MIB = 1 << 20


def _copying(us: float, *, overlaps: bool = False, pinned: bool = True, bytes: int = MIB) -> TraceBuilder:
    """Build a step of 1,000 µs that copies a batch, and computes afterwards or at the same time."""
    trace, main = one_step()
    main.frame("train.py(9): fetch", at=STEP_AT, us=50)
    main.op("aten::copy_", at=STEP_AT, us=30)
    main.copy(
        "HtoD", at=STEP_AT + 5, us=5, runs_at=STEP_AT + 20, runs_us=us, bytes=bytes, pinned=pinned, stream=20
    )
    begins = STEP_AT + 20 + (0 if overlaps else us)
    main.launch("gemm", at=STEP_AT + 60, us=5, runs_at=begins, runs_us=STEP_AT + STEP_US - begins)
    return trace


def test_fires_on_exposed_pinned_copies(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_copying(60), tmp_path)))
    assert found.cost_ns == 60_000
    assert "Stream" in found.fix.code
    assert (found.places[0].file, found.places[0].operator) == ("train.py", "aten::copy_")
    evidence = figures(found)
    assert evidence["Exposed"] == (duration(60_000), share_of(60_000, 1_000_000, "of the step window"))
    assert evidence["Copies"] == (number(1, "copy", "copies"), size(MIB))
    assert evidence["Copies to the GPU"] == (share_of(1, 1, "of their total time"),)
    assert evidence["Effective bandwidth"][0] == bandwidth(MIB / 60_000)


def test_copies_of_unknown_size_have_no_bandwidth(tmp_path: Path) -> None:
    found = finding(RULE.check(facts_of(_copying(60, bytes=-1), tmp_path)))
    assert "Effective bandwidth" not in figures(found)


def test_just_under_the_threshold_is_clear(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_copying(49), tmp_path)))


def test_a_copy_that_overlaps_with_computing_costs_nothing(tmp_path: Path) -> None:
    assert is_clear(RULE.check(facts_of(_copying(600, overlaps=True), tmp_path)))


def test_does_not_count_claimed_time_again(tmp_path: Path) -> None:
    facts = facts_of(_copying(400, pinned=False), tmp_path)
    assert is_clear(RULE.check(facts, finding(PAGEABLE.check(facts)).claims))


@pytest.mark.parametrize("to", ["HtoD", "DtoH"])
def test_hiding_copies_saves_no_more_than_the_work_that_hides_them(
    tmp_path: Path, to: Literal["HtoD", "DtoH"]
) -> None:
    """900 µs of copies beside 80 µs of computing: whatever overlaps, the link is busy for 900 µs."""
    trace, main = one_step()
    for i in range(9):
        at = STEP_AT + 5 + 110 * i
        main.copy(to, at=at, us=5, runs_at=at + 5, runs_us=100, bytes=MIB, pinned=True, stream=20)
    main.launch("gemm", at=STEP_AT + 980, us=5, runs_at=STEP_AT + 1000, runs_us=80)
    main.sync(at=STEP_AT + 990, us=95)
    facts = facts_of(trace, tmp_path)
    found = finding(RULE.check(facts))
    assert found.cost_ns == 900_000
    most_ns = facts.window.duration_ns - 900_000
    assert saving(found, facts).high_ns <= most_ns
    assert found.removable is not None
    assert facts.unslowed.likely_ns - facts.replay.shortest_ns(found.removable.most) <= most_ns


def test_copies_of_both_directions_run_at_the_same_time(tmp_path: Path) -> None:
    trace, main = one_step()
    both: list[Literal["HtoD", "DtoH"]] = ["HtoD", "DtoH"]
    for i, to in enumerate(both):
        at = STEP_AT + 20 * i
        runs_at = STEP_AT + 10 + 400 * i
        main.copy(to, at=at, us=5, runs_at=runs_at, runs_us=400, bytes=MIB, pinned=True, stream=20)
    main.launch("gemm", at=STEP_AT + 60, us=5, runs_at=STEP_AT + 810, runs_us=180)
    main.sync(at=STEP_AT + 70, us=925)
    facts = facts_of(trace, tmp_path)
    assert saving(finding(RULE.check(facts)), facts).high_ns == pytest.approx(600_000, abs=15_000)
