"""Collectives of all ranks by what they are for."""

from __future__ import annotations

from typing import Any

from tb_gpudiag.jobs.report.job_report import build_job_report
from tb_gpudiag.wording.vocabulary import EXPOSURE_REASONS
from tests.jobs.ranks.stage import MS, facts_of, job


def test_buckets_are_told_apart_by_their_order() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row.update(caller="gradients", number=number % 2 + 1, why="other_rank" if rank else "too_long")
        if number % 2:
            row["why"] = "last_bucket"
            row["exposed_ns"] += MS

    found = facts_of(job(4, 5, own_ms=lambda r, s: 12.0 if r == 3 else 10.0, change=change)).units
    assert [(one.parallelism, one.number, one.of, one.why) for one in found] == [
        ("DDP", 1, 2, "other_rank"),  # 3 ranks wait 2 ms each, and all transfer for 1 ms
        ("DDP", 2, 2, "last_bucket"),
    ]
    assert [one.collectives for one in found] == [5, 5]
    assert (found[0].skew_ns, found[0].transfer_ns) == (5 * 2 * MS, 5 * MS)
    assert (found[0].last, found[0].last_in) == (3, 5)


def test_what_one_rank_takes_for_waiting_is_transfer_if_all_arrive_together() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row.update(why="other_rank" if rank else "not_prefetched")

    assert {one.why for one in facts_of(job(4, 5, change=change)).units} == {"not_prefetched"}


def test_units_with_a_name_are_one_row_each_wherever_they_are_in_the_step() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row.update(kind="all_gather", caller="fsdp", unit=f"layers.{number % 2}", number=number)

    found = facts_of(job(2, 3, change=change)).units
    assert sorted((one.parallelism, one.unit, one.number) for one in found) == [
        ("FSDP", "layers.0", -1),
        ("FSDP", "layers.1", -1),
    ]


def test_a_reason_that_no_version_knows_is_not_shown() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row.update(why="<b>")

    report = build_job_report(facts_of(job(2, 3, change=change)))
    (units,) = (table for table in report.tables if table.id == "units")
    (why,) = (column for column in units.columns if column.id == "why")
    assert set(why.texts) == {EXPOSURE_REASONS["unknown"].word}
    assert not report.HasField("pipeline")
