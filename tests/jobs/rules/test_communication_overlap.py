"""GD607: exposed transfers count only as far as there is computing to hide them under."""

from __future__ import annotations

from typing import Any

from tb_gpudiag.jobs.rules.communication_overlap import overlap_of
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding
from tests.jobs.ranks.stage import MS, check_of, facts_of, job

check = check_of("communication_overlap")


def test_exposed_transfers_are_found() -> None:
    answer = check(facts_of(job(4, 5, transfer_ms=1.5)))
    assert isinstance(answer, Finding)
    assert answer.cost_ns == 15 * MS  # two of 1.5 ms in each of five steps


def test_waiting_is_not_transfer() -> None:
    facts = facts_of(job(4, 5, own_ms=lambda r, s: 15.0 if r == 1 else 10.0, transfer_ms=0.05))
    assert overlap_of(facts).exposed_ns == 0.5 * MS
    assert isinstance(check(facts), Clear)


def test_transfers_that_overlap_are_clear() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["exposed_ns"] = 0

    assert isinstance(check(facts_of(job(4, 5, transfer_ms=1.5, change=change))), Clear)


def test_what_has_no_computing_to_hide_under_does_not_count() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["computing_ns"] = 0

    assert isinstance(check(facts_of(job(4, 5, transfer_ms=1.5, change=change))), Clear)


def test_a_job_without_a_gpu_cannot_be_told() -> None:
    assert isinstance(check(facts_of(job(4, 5, about=lambda rank: {"devices": 0}))), CannotTell)


def test_collectives_of_a_server_join_parts_of_layers_and_cannot_overlap() -> None:
    answer = check(facts_of(job(4, 5, transfer_ms=1.5, about=lambda rank: {"server": "vLLM"})))
    assert isinstance(answer, Clear)


def test_the_unit_and_the_reason_are_named_with_their_fix() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row.update(kind="all_gather", caller="fsdp", unit=f"layers.{number % 2}", why="not_prefetched")

    answer = check(facts_of(job(4, 5, transfer_ms=1.5, change=change)))
    assert isinstance(answer, Finding)
    assert "Most exposed: the all-gather of “layers.0” (FSDP)" in answer.summary
    assert "set_modules_to_forward_prefetch" in answer.fix.code


def test_a_reason_of_a_hostile_digest_is_not_said() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row.update(why="<script>")

    answer = check(facts_of(job(4, 5, transfer_ms=1.5, change=change)))
    assert isinstance(answer, Finding)
    assert "Most exposed" not in answer.summary
