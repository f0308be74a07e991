"""Replays of jobs from digests, made by hand: what a step takes without what made a rank late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tb_gpudiag.arrays import NONE
from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.errors import TraceError
from tb_gpudiag.jobs.replay.job_replay import (
    TRANSFER,
    UNCHANGED,
    WITHOUT_STRAGGLING,
    JobChange,
    JobReplay,
    JobSlowdown,
    slowdown_of,
)
from tb_gpudiag.jobs.replay.job_work import JobWork
from tests.digest.made import parts
from tests.jobs.ranks import stage
from tests.jobs.ranks.stage import MS, facts_of

job = partial(stage.job, transfer_ms=1.0)

SYNCED = 3.0
"""What a step of the job takes besides its own time: 1 ms of work, and two transfers of 1 ms."""


def work_of(digests: Sequence[Digest]) -> JobWork:
    return facts_of(digests).work


def slowdown(work: JobWork) -> JobSlowdown:
    return slowdown_of(work, JobReplay(work))


def step_ms(work: JobWork, *changes: JobChange) -> list[float]:
    return [float(step) / MS for step in JobReplay(work).step_ns(changes).mean(axis=1)]


def fixed(member: int, *parts: str) -> JobChange:
    return JobChange(parts=frozenset(parts) if parts else None, members=frozenset([member]))


def test_fixing_the_loader_of_one_rank_speeds_up_all() -> None:
    work = work_of(job(8, own_ms=lambda rank, step: 13.8 if rank == 7 else 10.0, cause="input"))
    found = step_ms(work, UNCHANGED, fixed(7, "input"), fixed(7), WITHOUT_STRAGGLING, fixed(6))
    assert found == pytest.approx([13.8 + SYNCED, *[10 + SYNCED] * 3, 13.8 + SYNCED])
    assert step_ms(work, fixed(7, "computing", "sync")) == pytest.approx([13.8 + SYNCED])


def test_computing_is_shared_and_not_avoided() -> None:
    work = work_of(job(4, own_ms=lambda rank, step: 18.0 if rank == 1 else 10.0))
    found = step_ms(work, UNCHANGED, WITHOUT_STRAGGLING, fixed(1), fixed(2))
    assert found == pytest.approx([18 + SYNCED, 12 + SYNCED, 10 + SYNCED, 18 + SYNCED])


def test_fixing_one_of_two_slow_ranks_leaves_the_other() -> None:
    slow = {1: 16.0, 2: 20.0}
    work = work_of(job(4, own_ms=lambda rank, step: slow.get(rank, 10.0), cause="python"))
    both = JobChange(parts=None, members=frozenset([1, 2]))
    found = step_ms(work, fixed(1), fixed(2), both)
    assert found == pytest.approx([20 + SYNCED, 16 + SYNCED, 10 + SYNCED])


def test_ranks_that_change_together_are_not_each_others_peers() -> None:
    work = work_of(job(4, own_ms=lambda rank, step: 18.0 if rank < 2 else 10.0))
    both = JobChange(parts=frozenset(["computing"]), members=frozenset([0, 1]))
    assert step_ms(work, both) == pytest.approx([10 + SYNCED])


def test_equal_messages_are_as_long_as_the_mean() -> None:
    def larger(rank: int, number: int, row: dict[str, Any]) -> None:
        row["kind"], row["bytes"] = "all_to_all", 4_000 if rank == 1 else 1_000

    assert step_ms(work_of(job(3, change=larger)), JobChange(even=True)) == pytest.approx([10 + SYNCED - 1])


def test_a_rank_that_is_late_in_some_steps_costs_those() -> None:
    work = work_of(job(4, own_ms=lambda rank, step: 16.0 if rank == step % 2 else 10.0, cause="input"))
    replay = JobReplay(work)
    steps = replay.step_ns([UNCHANGED, fixed(0, "input")]) / MS
    assert steps[0] == pytest.approx([16 + SYNCED] * 3)
    assert steps[1] == pytest.approx([16 + SYNCED, 10 + SYNCED, 16 + SYNCED])
    assert replay.recorded_step_ns / MS == pytest.approx(steps[0])
    assert replay.error == pytest.approx(0, abs=1e-9)


def test_steps_end_with_their_own_last_collective_where_they_have_one_and_three_by_turns() -> None:
    def by_turns(rank: int, number: int, row: dict[str, Any]) -> None:
        row["step"] = (0, 1, 1, 1, 2, 3, 3, 3)[number]

    replay = JobReplay(work_of(job(3, change=by_turns)))
    assert replay.recorded_step_ns / MS == pytest.approx([15, 11, 15])
    assert replay.error == pytest.approx(0, abs=1e-9)


def test_a_transfer_that_takes_longer_than_usual_is_set_to_the_median() -> None:
    def longer(rank: int, number: int, row: dict[str, Any]) -> None:
        if number >= 5:
            row["start_ns"], row["end_ns"] = row["start_ns"] + 4 * MS, row["end_ns"] + 4 * MS
            row["since_ns"] += 4 * MS * (number > 5)
        if number == 4:
            row["end_ns"] += 4 * MS
            row["exposed_ns"] += 4 * MS
        if number == 5:
            row["communicating_ns"] += 4 * MS

    work = work_of(job(4, change=longer))
    replay = JobReplay(work)
    found = replay.step_ns([UNCHANGED, JobChange(transfers=True)]) / MS
    assert found[0] == pytest.approx([13, 17, 13])
    assert found[1] == pytest.approx([13, 13, 13])
    by_part = slowdown(work).by_part
    assert by_part[TRANSFER] == pytest.approx(43 / 39)
    assert by_part["computing"] == pytest.approx(1)


def test_the_slowdown_of_a_job() -> None:
    work = work_of(job(4, own_ms=lambda rank, step: 16.0 if rank == 2 else 10.0, cause="input"))
    found = slowdown(work)
    assert found.s == pytest.approx(19 / 13)
    assert found.low <= found.s <= found.high
    assert found.step_ns == pytest.approx(19 * MS)
    assert found.ideal_step_ns == pytest.approx(13 * MS)
    assert found.by_member == {2: pytest.approx(19 / 13)}
    assert found.by_part["input"] == pytest.approx(19 / 13)
    assert found.by_part["computing"] == pytest.approx(1)
    assert found.error == pytest.approx(0, abs=1e-9)


def test_an_even_job_has_no_slowdown() -> None:
    found = slowdown(work_of(job(4)))
    assert (found.s, found.low, found.high) == pytest.approx((1, 1, 1))
    assert found.by_member == {}


def test_clocks_of_hosts_do_not_matter() -> None:
    def own(rank: int, step: int) -> float:
        return 16.0 if rank == 2 else 10.0

    apart = job(
        4, own_ms=own, host=lambda rank: f"node{rank // 2}", offset_ms=lambda rank: 700.0 * (rank // 2)
    )
    assert slowdown(work_of(apart)).s == pytest.approx(slowdown(work_of(job(4, own_ms=own))).s, rel=1e-3)


def test_a_job_that_the_model_does_not_fit_has_a_large_error() -> None:
    """Nothing says why the ranks stand still between two collectives."""

    def hides_its_waits(rank: int, number: int, row: dict[str, Any]) -> None:
        row["exposed_ns"] = 0

    work = work_of(
        job(4, own_ms=lambda rank, step: 30.0 if rank == step % 4 else 10.0, change=hides_its_waits)
    )
    assert JobReplay(work).error > 0.05


def test_collectives_without_a_match_are_not_replayed() -> None:
    work = work_of(job(4))
    alone = replace(work, collective=np.full(len(work), NONE))
    assert JobReplay(alone).error == pytest.approx(0, abs=1e-9)


def test_ranks_without_collectives_cannot_be_replayed() -> None:
    work = work_of(job(2))
    none = {name: getattr(work, name)[:0] for name in JobWork.__dataclass_fields__ if _is_by_row(work, name)}
    with pytest.raises(TraceError, match="no collectives"):
        JobReplay(replace(work, **none))


def _is_by_row(work: JobWork, name: str) -> bool:
    value = getattr(work, name)
    return isinstance(value, np.ndarray) and len(value) == len(work)


def test_collectives_in_a_circle_cannot_be_replayed() -> None:
    work = work_of(job(2, steps=2))
    collective = work.collective.copy()
    collective[:2] = collective[1::-1]
    with pytest.raises(TraceError, match="circle"):
        JobReplay(replace(work, collective=collective))


def test_without_steps_the_window_is_replayed() -> None:
    digests = [
        replace(one, steps=one.steps.set_column(0, "name", pa.array([""] * len(one.steps))))
        for one in job(4, own_ms=lambda rank, step: 16.0 if rank == 2 else 10.0, cause="input")
    ]
    found = slowdown(work_of(digests))
    assert found.s == pytest.approx(19 / 13)
    assert found.step_ns == pytest.approx(4 * 19 * MS)


def test_a_step_takes_no_less_than_its_host() -> None:
    """Hosts work for 15 ms per step. They are ahead of the GPU for as long as it waits for rank 7."""

    def busy_host(rank: int, number: int, row: dict[str, Any]) -> None:
        row["host_ns"] = parts(python=(14 if number % 2 else 1) * MS)

    slow = job(8, 12, own_ms=lambda rank, step: 15.8 if rank == 7 else 10.0, cause="input", change=busy_host)
    steps = JobReplay(work_of(slow)).step_ns([UNCHANGED, fixed(7, "input"), fixed(7)]) / MS
    assert steps[:, 0] == pytest.approx([15.8 + SYNCED, 10 + SYNCED, 10 + SYNCED])
    assert steps[:, -1] == pytest.approx([15.8 + SYNCED, 15, 15])


def test_a_rank_that_began_to_record_late_is_late_only_once() -> None:
    work = work_of(job(4, start_ms=lambda rank: 40.0 if rank == 3 else 0.0))
    assert step_ms(work, UNCHANGED) == pytest.approx([10 + SYNCED])
