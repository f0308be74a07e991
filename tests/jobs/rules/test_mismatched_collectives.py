"""GD605: collectives that ranks call differently, and recordings that do not fit together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, Severity
from tests.jobs.ranks.stage import MS, check_of, facts_of, job
from tests.jobs.ranks.test_matching import without
from tests.wording.plain import plain

check = check_of("mismatched_collectives")


def test_another_size() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["bytes"] *= 2 if rank == 1 and number % 2 else 1

    answer = check(facts_of(job(4, 4, change=change)))
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Rank 1 sends 2 MiB where others send 1 MiB, 4 times"


def test_another_kind() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["kind"] = "broadcast" if (rank, number) == (1, 3) else row["kind"]

    answer = check(facts_of(job(4, 4, change=change)))
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Rank 1 calls broadcast where others call all-reduce, 1 time"


def test_one_missing_collective_is_a_hint() -> None:
    digests = job(4, 4)
    digests[2] = without(digests[2], 3)
    answer = check(facts_of(digests))
    assert isinstance(answer, Finding)
    assert answer.severity is Severity.INFO


def test_recordings_of_different_steps() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["sequence"] += 500 * (rank == 3)

    answer = check(facts_of(job(4, 4, change=change)))
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Rank 3 has no collective in common with the others"


def test_collectives_that_agree_but_ran_at_different_times() -> None:
    digests = job(3, 4, sequence=False)
    late = digests[2].about
    digests[2] = replace(digests[2], about=replace(late, origin_ns=late.origin_ns + 20 * MS))
    answer = check(facts_of(digests))
    assert isinstance(answer, Finding)
    assert "at the same time" in plain(answer.title)


def test_the_ends_of_the_recordings_do_not_count() -> None:
    digests = job(4, 4)
    digests[2] = without(digests[2], 0, 1, 7)
    assert isinstance(check(facts_of(digests)), Clear)


def test_without_a_collective_nothing_can_be_told() -> None:
    assert isinstance(check(facts_of(job(3, 0))), CannotTell)
