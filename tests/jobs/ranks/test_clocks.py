"""Clocks of hosts: offsets and drifts from the ends of collectives, with their residual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.jobs.ranks.stage import MS, US, facts_of, job


def two_hosts(rank: int) -> str:
    return f"node{rank // 2}"


def jitter(rank: int, number: int, row: dict[str, Any]) -> None:
    row["end_ns"] += (rank * 7 + number * 13) % 5 * US


def test_one_host_has_one_clock() -> None:
    clocks = facts_of(job(4, change=jitter)).clocks
    assert clocks.basis == "ONE_HOST"
    assert not clocks.offset_ns.any()
    assert 0 < clocks.residual_ns <= 4 * US


def test_hosts_without_names_that_agree_have_one_clock() -> None:
    clocks = facts_of(job(4, host=lambda rank: "", change=jitter)).clocks
    assert clocks.basis == "ONE_HOST"


@pytest.mark.parametrize("hours", [0, 3])
def test_offsets_are_found_within_the_residual(hours: int) -> None:
    off = hours * 3_600_000 + 12.5
    digests = job(4, 8, host=two_hosts, offset_ms=lambda rank: off * (rank // 2), change=jitter)
    facts = facts_of(digests)
    clocks = facts.clocks
    assert clocks.basis == "COLLECTIVES"
    wrong = clocks.offset_ns + np.array([0, 0, off * MS, off * MS])
    assert np.abs(wrong).max() <= clocks.residual_ns <= 5 * US
    assert facts.waits.skew_ns.max() <= 1 * US


def test_a_drift_is_found() -> None:
    digests = job(4, 40, host=two_hosts, drift=lambda rank: 40e-6 * (rank // 2), change=jitter)
    clocks = facts_of(digests).clocks
    assert clocks.drift[2] == pytest.approx(-40e-6, rel=0.15)
    assert clocks.residual_ns <= 6 * US


def test_hosts_that_share_no_collective_cannot_be_compared() -> None:
    digests = job(
        4,
        host=two_hosts,
        group="3",
        about=lambda rank: {"groups": {"3": [0, 1] if rank < 2 else [2, 3]}},
    )
    facts = facts_of(digests)
    assert facts.clocks.basis == "NONE"
    assert not facts.clocks.known.any()
    assert len(facts.waits) == len(facts.matching) == 16  # those on one host can be compared


def message(sender: int, rank: int, row: dict[str, Any]) -> None:
    """Make a row a message between ranks 0 and 1."""
    row |= {"kind": "send" if rank == sender else "recv", "source": sender, "destination": 1 - sender}


def test_messages_in_both_directions_show_the_offset() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        jitter(rank, number, row)
        message(number % 2, rank, row)

    digests = job(2, 8, host=lambda rank: f"node{rank}", offset_ms=lambda rank: 7.5 * rank, change=change)
    clocks = facts_of(digests).clocks
    assert clocks.basis == "COLLECTIVES"
    assert abs(int(clocks.offset_ns[1]) + 7.5 * MS) <= clocks.residual_ns <= 5 * US


def test_a_message_that_is_received_late_does_not_move_the_clock() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        message(number % 2, rank, row)
        # A send ends when the data is in a buffer; the receiver takes it when it comes to it.
        if row["kind"] == "recv" and number not in (6, 7):
            row["end_ns"] += 400 * US

    digests = job(2, 8, host=lambda rank: f"node{rank}", offset_ms=lambda rank: 7.5 * rank, change=change)
    clocks = facts_of(digests).clocks
    assert clocks.offset_ns.tolist() == [0, -7.5 * MS]
    assert clocks.residual_ns == 400 * US


def test_messages_in_one_direction_show_no_offset() -> None:
    digests = job(2, host=lambda rank: f"node{rank}", change=lambda rank, _, row: message(0, rank, row))
    assert facts_of(digests).clocks.basis == "NONE"
