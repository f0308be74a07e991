"""GD608: small collectives count if they follow one another directly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.rules.small_collectives import rows_of
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding
from tests.jobs.ranks.stage import MS, US, check_of, facts_of, job
from tests.wording.plain import plain

check = check_of("small_collectives")


def small_ones(
    computing_ns: int = 0,
    bytes_: int = 1 << 10,
    in_a_row: int = 20,
    waiting_ns: int = 0,
    larger: int = 1,
) -> list[Digest]:
    """Each step of 5 ends with collectives of 50 us, 10 us apart. The second rank arrives later than the
    first. larger: how many times as large every second one is."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        step, place = divmod(number, in_a_row)
        start = step * 15 * MS + 10 * MS + place * 60 * US
        late = waiting_ns * (rank == 1)
        row.update(
            bytes=bytes_ * (larger if place % 2 else 1),
            start_ns=start + late,
            host_start_ns=start + late,
            end_ns=start + 50 * US,
            since_ns=start - (60 * US if place else 10 * MS),
            computing_ns=computing_ns if place else 10 * MS,
        )

    return job(2, 5, collectives=in_a_row, change=change)


def test_small_collectives_in_a_row_are_found() -> None:
    answer = check(facts_of(small_ones()))
    assert isinstance(answer, Finding)
    assert plain(answer.title).startswith("20 all-reduces in a row take ")
    rows_ns = 5 * (19 * 60 + 50) * US
    assert answer.cost_ns == round(rows_ns * 19 / 20)
    assert answer.saving is not None
    assert answer.saving.high_ns == answer.cost_ns


def test_the_calls_between_them_go_too() -> None:
    answer = check(facts_of(small_ones(computing_ns=5 * US)))
    assert isinstance(answer, Finding)
    assert answer.saving is not None
    # 19 stretches of 5 us between the collectives of each of five rows.
    assert answer.saving.high_ns - answer.cost_ns == round(5 * 19 * 5 * US * 19 / 20)
    assert answer.saving.beyond == "the calls between the collectives go, too"


def test_waiting_before_the_row_does_not_count() -> None:
    rows = rows_of(facts_of(small_ones(waiting_ns=10 * US)))
    # One rank waits 10 us for the first one, and the other's row begins 10 us later.
    assert rows.time_ns == 5 * (19 * 60 + 40) * US


def test_computing_between_them_ends_the_row() -> None:
    assert isinstance(check(facts_of(small_ones(computing_ns=30 * US))), Clear)


def test_larger_ones_between_small_ones_cost_their_latency_too() -> None:
    """As weights and biases, reduced one after another."""
    assert rows_of(facts_of(small_ones(larger=1 << 10))) == replace(
        rows_of(facts_of(small_ones())), bytes=((1 << 10) + (1 << 20)) // 2
    )


def test_large_or_few_ones_are_clear() -> None:
    assert isinstance(check(facts_of(small_ones(bytes_=1 << 20))), Clear)
    assert isinstance(check(facts_of(small_ones(in_a_row=7))), Clear)


def test_of_some_ranks_of_a_group_nothing_can_be_told() -> None:
    assert isinstance(check(facts_of(job(3, 5, collectives=20)[:2])), CannotTell)


def units(bytes_: int, caller: str = "fsdp") -> list[Digest]:
    """In each step, 30 messages of FSDP, with computing between them."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row.update(kind="all_gather", bytes=bytes_, caller=caller)

    return job(2, 5, collectives=30, change=change)


def test_small_units_of_fsdp_are_found_although_they_compute_in_between() -> None:
    answer = check(facts_of(units(8 << 10)))
    assert isinstance(answer, Finding)
    assert plain(answer.title).startswith(
        "FSDP gathers and reduces small units by themselves, 30 times a step"
    )
    assert answer.cost_ns == 5 * 29 * MS
    assert "fully_shard(block)" in answer.fix.code


def test_small_buckets_of_gradients_are_found_although_layers_compute_in_between() -> None:
    answer = check(facts_of(units(8 << 10, caller="gradients")))
    assert isinstance(answer, Finding)
    assert plain(answer.title).startswith("Gradients are reduced in small messages, 30 times a step")
    assert answer.cost_ns == 5 * 29 * MS
    assert "bucket_cap_mb" in answer.fix.text


def test_large_units_and_others_than_fsdp_are_not_named() -> None:
    assert isinstance(check(facts_of(units(1 << 20))), Clear)
    assert isinstance(check(facts_of(units(8 << 10, caller=""))), Clear)
