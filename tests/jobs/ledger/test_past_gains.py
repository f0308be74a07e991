"""What a ledger says about a rule: how often its ranges were right, and where its savings lay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tb_gpudiag.jobs.ledger.ledger_file import LedgerEntries, LedgerEntry
from tb_gpudiag.jobs.ledger.past_gains import LEAST_SAVINGS, ledger_message, past_gains, with_past
from tb_gpudiag.report import report_pb2 as pb
from tests.jobs.ledger.test_ledger_file import ENTRY
from tests.with_each import with_each


def entries(shares: list[float], **changed: object) -> list[LedgerEntry]:
    """Make fixes that gave these shares of the most promised."""
    return [
        replace(ENTRY, base=str(number), real_us=300 * share, **changed)  # type: ignore[arg-type]
        for number, share in enumerate(shares)
    ]


def test_ranges_are_counted_by_rule() -> None:
    found = [
        *entries([0.5, 0.6]),
        *entries([0.1], promise="BELOW"),
        *entries([1.5], promise="ABOVE"),
        *entries([0], promise="CANNOT_TELL"),
        *entries([0.5], rule="GD201"),
    ]
    message = ledger_message(LedgerEntries(found, unreadable=3))
    first, second = message.rules
    assert (first.rule, first.name, second.rule) == ("GD101", "input_pipeline", "GD201")
    assert (first.inside, first.below, first.above, first.untold) == (2, 1, 1, 1)
    assert first.sentence.startswith("The promised range was right for 2 of 4 fixes. Of 1 more fix nobody")
    assert "3 lines of the ledger cannot be read" in message.notes[0]


def test_too_few_savings_show_no_range() -> None:
    found = past_gains("GD101", entries([0.5] * (LEAST_SAVINGS - 1)))
    assert (found.low_share, found.high_share) == (0, 0)
    assert "19 savings of one fix at a time show where 90% of them lie; there are 18" in found.sentence


@with_each(("savings", "low", "high"), [(19, 1, 19), (38, 1, 38), (39, 2, 38), (100, 5, 96)])
def test_nine_in_ten_savings_lie_in_the_range(savings: int, low: int, high: int) -> None:
    found = past_gains("GD101", entries([number / 100 for number in range(savings, 0, -1)]))
    assert (found.low_share, found.high_share) == pytest.approx((low / 100, high / 100))
    assert f"90% of {savings} savings lie between {low:.1f}% and {high:.1f}%" in found.sentence


def test_savings_that_others_may_have_given_show_no_range() -> None:
    found = past_gains("GD101", [*entries([0.5] * 19, others_us=100), *entries([0.5] * 5)])
    assert found.inside == 24
    assert found.high_share == 0
    assert "there are 5" in found.sentence


def test_past_savings_in_the_time_of_this_finding() -> None:
    verification = pb.Verification(rule="GD101", findings=[pb.Verified(rule="GD101", high_us=1000)])
    with_past(verification, LedgerEntries(entries([0.4, *[0.5] * 18])))
    assert (verification.past_low_us, verification.past_high_us) == pytest.approx((400, 500))
    without = pb.Verification(rule="GD301")
    with_past(without, LedgerEntries(entries([0.5])))
    assert not without.HasField("past")
