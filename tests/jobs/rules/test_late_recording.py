"""GD606: a late start of a recording is not a straggler."""

from __future__ import annotations

from tb_gpudiag.rules.answer import Clear, Finding
from tests.jobs.ranks.stage import check_of, facts_of, job
from tests.wording.plain import plain

check = check_of("late_recording")


def test_a_recording_that_starts_late() -> None:
    facts = facts_of(job(4, 5, start_ms=lambda rank: 8.0 if rank == 3 else 0.0))
    answer = check(facts)
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Rank 3 started to record 8 ms later than the first rank"
    assert answer.cost_ns == 0
    assert isinstance(check_of("slow_rank")(facts), Clear)


def test_a_rank_that_is_slow_in_the_first_step_did_not_start_late() -> None:
    own = job(4, 5, own_ms=lambda rank, step: 18.0 if (rank, step) == (3, 0) else 10.0)
    assert isinstance(check(facts_of(own)), Clear)


def test_a_start_that_is_hardly_late_is_clear() -> None:
    assert isinstance(check(facts_of(job(4, 5, start_ms=lambda rank: 0.3 * (rank == 3)))), Clear)


def test_ranks_that_start_together_are_clear() -> None:
    assert isinstance(check(facts_of(job(4, 5))), Clear)
