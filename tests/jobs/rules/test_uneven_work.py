"""GD603: ranks with more work are found, also if it is another one in each step."""

from __future__ import annotations

from dataclasses import replace

from tb_gpudiag.digest.digest import Digest
from tb_gpudiag.rules.answer import Clear, Finding
from tests.digest.made import table
from tests.jobs.ranks.stage import MS, check_of, facts_of, job
from tests.wording.plain import plain

check = check_of("uneven_work")


def with_kernels(digest: Digest, tokens: int) -> Digest:
    row = {"name": "gemm", "family": "gemm", "operator": "aten::mm", "count": 10, "time_ns": 20 * MS}
    return replace(digest, kernels=table("kernels", [{**row, "shapes": f"[[{tokens},8]]"}]))


def test_a_rank_with_longer_sequences() -> None:
    digests = job(4, 5, own_ms=lambda rank, step: 14.0 if rank == 1 else 10.0)
    facts = facts_of([with_kernels(d, 12 if d.about.rank == 1 else 8) for d in digests])
    answer = check(facts)
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Rank 1 has more work: 4 ms per step lost"
    assert answer.cost_ns == 20 * MS
    assert isinstance(check_of("slow_rank")(facts), Clear)


def test_grids_show_more_work_without_shapes() -> None:
    def change(rank: int, number: int, row: dict[str, object]) -> None:
        row["work_sizes"] = 8 if rank == 1 else 7

    answer = check(facts_of(job(4, 5, own_ms=lambda r, s: 14.0 if r == 1 else 10.0, change=change)))
    assert isinstance(answer, Finding)
    assert plain(answer.title).startswith("Rank 1 has more work")


def test_a_rank_with_large_batches_in_some_steps() -> None:
    """In two of six steps rank 1 has larger batches, which are 4% more work over all steps."""

    def change(rank: int, number: int, row: dict[str, object]) -> None:
        row["work_sizes"] = 8 if rank == 1 and number in (2, 8) else 7

    digests = job(
        4,
        6,
        own_ms=lambda r, s: 20.0 if r == 1 and s in (1, 4) else 10.0,
        change=change,
        later_ms=lambda r, s: 0.1,
    )
    answer = check(facts_of([with_kernels(d, 104 if d.about.rank == 1 else 100) for d in digests]))
    assert isinstance(answer, Finding)
    assert plain(answer.title).startswith("Rank 1 has more work")
    assert "in 2 of 6 steps" in plain(answer.summary)


def test_another_rank_in_each_step() -> None:
    answer = check(facts_of(job(4, 6, own_ms=lambda rank, step: 15.0 if rank == step % 3 else 10.0)))
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "A different rank computes longest each time: 5 ms per step lost"
    assert "ranks 0–2" in answer.summary


def test_even_batches_save_at_most_what_the_slowest_rank_costs() -> None:
    """Rank 1 is the slowest in most of the time that is lost, and rank 2 in the rest."""
    answer = check(
        facts_of(
            [
                with_kernels(digest, 16 if digest.about.rank == 1 else 8)
                for digest in job(
                    4,
                    8,
                    own_ms=lambda rank, step: {(1, 2): 40.0, (1, 5): 40.0, (2, 3): 30.0}.get(
                        (rank, step), 10.0
                    ),
                )
            ]
        )
    )
    assert isinstance(answer, Finding)
    assert answer.saving is not None
    assert (answer.cost_ns, answer.saving.high_ns) == (60 * MS, 60 * MS)


def test_two_ranks_that_take_turns() -> None:
    answer = check(facts_of(job(2, 8, own_ms=lambda rank, step: 14.0 if rank == step % 2 else 10.0)))
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Batches are uneven: 2 ms per step lost"
    assert answer.saving is not None
    assert (answer.saving.basis, round(answer.saving.high_ns / 8 / MS)) == ("replayed", 2)


def short_and_long_by_turns(*, sizes_differ: bool = True, kind: str = "all_reduce") -> list[Digest]:
    """Two ranks on a CPU with two batches in each step: a long and a short one, and the other way round."""

    def change(rank: int, number: int, row: dict[str, object]) -> None:
        row["kind"] = kind
        row["work_sizes"] = rank if sizes_differ else 7

    return job(
        2,
        6,
        own_ms=lambda rank, step: 10.0 if rank else 30.0,
        later_ms=lambda rank, step: 30.0 if rank else 10.0,
        change=change,
        about=lambda rank: {"devices": 0},
    )


def test_short_and_long_batches_by_turns_within_a_step() -> None:
    answer = check(facts_of(short_and_long_by_turns()))
    assert isinstance(answer, Finding)
    assert plain(answer.title) == "Batches are uneven: 20 ms per step lost"
    assert "barriers" not in answer.summary
    assert isinstance(check(facts_of(short_and_long_by_turns(sizes_differ=False))), Clear)


def test_barriers_that_make_ranks_wait_are_named() -> None:
    answer = check(facts_of(short_and_long_by_turns(kind="barrier")))
    assert isinstance(answer, Finding)
    assert "Most of the waiting is in barriers" in answer.summary


def test_chance_makes_ranks_take_turns_too() -> None:
    answer = check(facts_of(job(2, 8, own_ms=lambda rank, step: 10.4 if rank == step % 2 else 10.0)))
    assert isinstance(answer, Clear)


def test_late_loaders_of_different_ranks_are_not_uneven_work() -> None:
    own = job(4, 6, own_ms=lambda rank, step: 15.0 if rank == step % 3 else 10.0, cause="input")
    assert isinstance(check(facts_of(own)), Clear)


def test_even_ranks_are_clear() -> None:
    assert isinstance(check(facts_of(job(4, 5))), Clear)


def test_a_slow_gpu_is_not_uneven_work() -> None:
    digests = job(4, 5, own_ms=lambda rank, step: 14.0 if rank == 1 else 10.0)
    same = [with_kernels(d, 8) for d in digests]
    longer = table(
        "kernels",
        [{**same[1].kernels.to_pylist()[0], "time_ns": 28 * MS}],
    )
    same[1] = replace(same[1], kernels=longer)
    assert isinstance(check(facts_of(same)), Clear)
