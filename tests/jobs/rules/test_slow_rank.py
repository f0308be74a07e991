"""GD602: a rank that takes longer for the same work is found, with its cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.jobs.rules.uneven_ranks import Uneven
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding
from tests.digest.made import table
from tests.jobs.ranks.stage import MS, check_of, facts_of, job
from tests.with_each import with_each
from tests.wording.plain import plain

check = check_of("slow_rank")


def found(digests: list[Digest]) -> Finding:
    answer = check(facts_of(digests))
    assert isinstance(answer, Finding), answer
    return answer


def with_kernels(digest: Digest, ms: float) -> Digest:
    row = {"name": "gemm", "family": "gemm", "operator": "aten::mm", "shapes": "[[8,8]]", "count": 10}
    return replace(digest, kernels=table("kernels", [{**row, "time_ns": round(ms * MS)}]))


@with_each("cause", ["input", "python", "sync", "allocator"])
def test_a_rank_whose_host_is_late_in_every_step(cause: str) -> None:
    finding = found(job(4, 5, own_ms=lambda rank, step: 12.0 if rank == 2 else 10.0, cause=cause))
    assert plain(finding.title) == "Rank 2 takes 2 ms longer than its peers in every step, and all ranks wait"
    assert finding.cost_ns == 10 * MS
    assert finding.saving is not None
    assert (finding.saving.low_ns, finding.saving.high_ns) == (10 * MS, 10 * MS)


def test_a_slow_gpu_runs_the_same_kernels_longer() -> None:
    digests = job(4, 5, own_ms=lambda rank, step: 14.0 if rank == 1 else 10.0)
    finding = found([with_kernels(d, 140 if d.about.rank == 1 else 100) for d in digests])
    assert "1.40 times as long as the same kernels" in finding.summary
    assert "GPU" in finding.fix.text


def test_two_slow_ranks_of_one_host_are_named_with_it() -> None:
    digests = job(
        8,
        5,
        own_ms=lambda r, step: 12.0 if r in (4, 5) else 10.0,
        cause="input",
        host=lambda r: f"node{r // 2}",
    )
    assert plain(found(digests).title).startswith("Ranks 4 and 5 (host “node2”) take 2 ms longer")


def test_a_rank_that_is_slow_once_is_found_with_that_step() -> None:
    finding = found(job(4, 5, own_ms=lambda r, s: 20.0 if (r, s) == (3, 2) else 10.0, cause="python"))
    assert plain(finding.title).startswith("Rank 3 takes 10 ms longer than its peers in 1 of 5 steps")


@with_each(
    ("steps", "of_steps", "on_cpu", "once"),
    [(3, 6, True, True), (4, 6, True, True), (5, 6, True, False), (1, 6, False, True), (2, 6, False, False)],
)
def test_on_a_cpu_a_rank_may_be_slow_by_chance_in_two_of_three_steps(
    steps: int, of_steps: int, on_cpu: bool, once: bool
) -> None:
    members = np.array([1])
    uneven = Uneven("sometimes", members, 40 * MS, of_steps, steps=steps, on_cpu=on_cpu)
    assert uneven.once is once


def test_the_place_of_the_slow_rank_is_named() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        if rank == 2 and number % 2 == 0:
            row["place"], row["place_ns"] = "collect (train.py)", 2 * MS

    own = job(4, 5, own_ms=lambda r, s: 12.0 if r == 2 else 10.0, cause="python", change=change)
    (place,) = found(own).places
    assert (place.function, place.file, place.time_ns) == ("collect", "train.py", 10 * MS)


def test_a_synchronization_that_the_rank_itself_reports_is_the_cause() -> None:
    digests = job(4, 5, own_ms=lambda r, s: 12.0 if r == 2 else 10.0, cause="python")
    digests[2] = replace(digests[2], findings=[pb.Finding(rule="GD301", cost_us=9_000)])
    assert "synchronization" in found(digests).summary


@with_each(("on", "named"), [((1,), True), ((), False), ((0, 1, 2), False)])
def test_anomaly_mode_on_one_rank_is_no_shared_core(on: tuple[int, ...], *, named: bool) -> None:
    """On a CPU, the same operators that take longer may lack a core. Its certainty is 3.0."""

    def own_ms(rank: int, step: int) -> float:
        return (11.0, 18.0, 12.0, 18.0, 11.0, 14.0)[step] if rank == 1 else 10.0

    digests = job(3, 6, own_ms=own_ms, about=lambda rank: {"devices": 0})
    mode = pb.Finding(rule="GD107", title="Anomaly mode is on", cost_us=400, severity=pb.Finding.WARNING)
    mode.fix.text = "Turn it off."
    digests = [replace(one, findings=[mode] if rank in on else []) for rank, one in enumerate(digests)]
    answer = check(facts_of(digests))
    assert isinstance(answer, Finding) == named
    if isinstance(answer, Finding):
        assert "GD107" in answer.summary
        assert answer.fix.text == "Turn it off."
        assert answer.severity is None


def test_a_smaller_excess_is_clear() -> None:
    # 2% of a step of 11.6 ms.
    assert isinstance(check(facts_of(job(4, 5, own_ms=lambda r, s: 10.2 if r == 2 else 10.0))), Clear)


def test_chance_is_clear() -> None:
    noisy = job(8, 6, own_ms=lambda rank, step: 10 + (rank * 5 + step * 3) % 7 / 5)
    assert not isinstance(check(facts_of(noisy)), Finding)


def test_one_step_cannot_show_a_slow_rank() -> None:
    answer = check(facts_of(job(4, 1, own_ms=lambda r, s: 15.0 if r == 2 else 10.0)))
    assert isinstance(answer, CannotTell)
    assert "only 1 step" in answer.reason


def test_two_ranks_are_enough() -> None:
    assert plain(
        found(job(2, 5, own_ms=lambda r, s: 12.0 if r == 1 else 10.0, cause="input")).title
    ).startswith("Rank 1")


def test_steps_that_a_rank_did_not_record_are_not_compared() -> None:
    digests = job(2, 6)
    kept = [row for row in digests[1].collectives.to_pylist() if row["step"] < 4]
    digests[1] = replace(digests[1], collectives=table("collectives", kept))
    assert isinstance(check(facts_of(digests)), Clear)


@with_each(
    ("low_ms", "others_ms", "work", "chance"),
    [(0, 50, "", True), (0, 30, "", False), (5, 50, "", False), (0, 50, "more", False)],
)
def test_on_a_cpu_a_rank_that_is_late_by_less_than_others_differ_waits_for_a_core(
    low_ms: int, others_ms: int, work: Literal["", "more"], chance: bool
) -> None:
    uneven = Uneven(
        "persistent",
        np.array([1]),
        40 * MS,
        8,
        low_ns=low_ms * MS,
        steps=8,
        work=work,
        on_cpu=True,
        others_ns=others_ms * MS,
    )
    assert uneven.may_be_chance is chance
    assert not replace(uneven, on_cpu=False).may_be_chance


@pytest.mark.parametrize(("usual_ms", "named"), [(25.0, True), (12.0, False)])
def test_a_rank_that_is_slow_in_each_step_is_found_beside_one_step_that_is_far_slower(
    usual_ms: float, *, named: bool
) -> None:
    digests = job(
        4,
        6,
        own_ms=lambda rank, step: 10.0 if rank != 2 else 4_000.0 if step == 3 else usual_ms,
        cause="python",
    )
    assert ("in every step" in plain(found(digests).title)) is named
