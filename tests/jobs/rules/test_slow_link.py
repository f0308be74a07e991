"""GD604: links are compared with others like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.ranks.bandwidth import bus_factor
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding
from tests.jobs.ranks.stage import MS, check_of, facts_of, job
from tests.wording.plain import plain

check = check_of("slow_link")


def pairs(slower: float, *, of: int = 3) -> list[Digest]:
    """Eight ranks whose collectives are between neighbors; the transfer of rank `of` and its neighbor takes
    longer."""

    def about(rank: int) -> Mapping[str, Any]:
        first = rank // 2 * 2
        return {"groups": {"1": [first, first + 1]}}

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        if rank // 2 == of // 2:
            row["end_ns"] += round((slower - 1) * MS)

    return job(8, 5, group="1", about=about, change=change, transfer_ms=1.0)


def test_a_slow_link_between_two_ranks() -> None:
    answer = check(facts_of(pairs(2.0)))
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Transfers with ranks 2 and 3 take 2 times as long as others like them"
    assert answer.cost_ns == 10 * MS


def test_a_rank_without_a_trace_may_be_what_the_others_wait_for() -> None:
    def slow_once(rank: int, number: int, row: dict[str, Any]) -> None:
        row["end_ns"] += 9 * MS * (number == 4)

    recorded = job(4, 5, change=slow_once, about=lambda rank: {"groups": {"0": [*range(5)]}})
    answer = check(facts_of(recorded))
    assert isinstance(answer, CannotTell)
    assert "ranks without a trace" in plain(answer.reason)


def test_a_little_slower_is_clear() -> None:
    assert isinstance(check(facts_of(pairs(1.4))), Clear)


def test_one_group_has_nothing_to_compare_with() -> None:
    answer = check(facts_of(job(4, 5, transfer_ms=8.0)))
    assert isinstance(answer, Clear)
    assert "one group" in answer.reason


def test_collectives_far_below_nvlink() -> None:
    def large(rank: int, number: int, row: dict[str, Any]) -> None:
        row["bytes"] = 16 << 20

    answer = check(facts_of(job(4, 5, transfer_ms=4.0, change=large)))
    assert isinstance(answer, Finding)
    assert "of NVLink's peak" in plain(answer.title)
    without = job(4, 5, transfer_ms=4.0, change=large, about=lambda rank: {"device_name": "NVIDIA A10"})
    assert isinstance(check(facts_of(without)), Clear)


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 8) == 2 * 7 / 8
    assert bus_factor("all_gather", 8) == bus_factor("all_to_all", 8) == 7 / 8
    assert bus_factor("broadcast", 8) == bus_factor("send", 2) == 1.0
