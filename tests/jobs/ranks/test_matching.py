"""Collectives of different ranks are matched by number, else by order, and mismatches are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tb_gpudiag.digest.digest import Digest
from tests.digest.made import table
from tests.jobs.ranks.stage import facts_of, job


def without(digest: Digest, *numbers: int) -> Digest:
    """The digest without these collectives."""
    rows = [row for i, row in enumerate(digest.collectives.to_pylist()) if i not in numbers]
    return replace(digest, collectives=table("collectives", rows))


def test_by_sequence_number() -> None:
    facts = facts_of(job(4, 3))
    assert len(facts.matching) == 6
    assert not facts.matching.mismatches


def test_by_order_without_sequence_numbers_and_groups() -> None:
    facts = facts_of(job(4, 3, sequence=False, group=""))
    assert len(facts.matching) == 6
    assert not facts.matching.mismatches


def test_where_ranks_are_in_several_groups_collectives_without_one_match_nothing() -> None:
    """Gloo names none: of ranks 0 to 3, each reduces in its pair, and then with its pair's counterpart."""
    world = {"0": [0, 1, 2, 3]}
    pairs = {**world, "a": [0, 1], "b": [2, 3]}
    alone = facts_of(job(4, 3, sequence=False, group="", about=lambda _: {"groups": world}))
    assert len(alone.matching) == 6
    facts = facts_of(job(4, 3, sequence=False, group="", about=lambda _: {"groups": pairs}))
    assert not len(facts.matching)
    assert not facts.matching.mismatches


def test_a_rank_that_began_to_record_later_matches_from_there() -> None:
    for sequence in (True, False):
        digests = job(3, 4, sequence=sequence)
        digests[1] = without(digests[1], 0, 1, 2)
        facts = facts_of(digests)
        assert len(facts.matching) == 5
        assert not facts.matching.mismatches
        earliest = np.minimum.reduceat(facts.waits.end_ns, facts.waits.bounds[:-1])
        assert (earliest >= facts.waits.last_ns).all()


def test_a_collective_that_a_rank_lacks_in_the_middle_is_a_mismatch() -> None:
    digests = job(3, 4)
    digests[2] = without(digests[2], 3)
    facts = facts_of(digests)
    assert len(facts.matching) == 7
    (found,) = facts.matching.mismatches
    assert (found.what, found.sequence, found.members) == ("missing", 3, (2,))


def test_another_size_is_a_mismatch() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["bytes"] *= 2 if (rank, number) == (1, 2) else 1

    facts = facts_of(job(3, 4, change=change))
    (found,) = facts.matching.mismatches
    assert (found.what, found.members, found.values) == ("bytes", (1,), ("1048576", "2097152"))
    assert len(facts.matching) == 7


def test_what_a_rank_lacks_or_has_more_of_in_one_step_is_found_without_numbers() -> None:
    """Steps all look the same, so many shifts fit: the steps' names tell where it is. The rest matches."""
    digests = job(4, 10, sequence=False, group="")
    digests[2] = without(digests[2], 9)
    facts = facts_of(digests)
    (lacking,) = facts.matching.mismatches
    assert (lacking.what, lacking.members, lacking.count) == ("missing", (2,), 1)
    assert lacking.where == "the world, step ProfilerStep#4"
    assert len(facts.matching) == 18
    digests = job(4, 10, sequence=False, group="")
    digests[:2] = [without(one, 9) for one in digests[:2]]
    digests[3] = without(digests[3], 9)
    (more,) = facts_of(digests).matching.mismatches
    assert (more.what, more.members) == ("order", (2,))


def test_one_of_a_thousand_ranks_lacks_a_collective() -> None:
    digests = job(1_024, 6, sequence=False, group="")
    digests[700] = without(digests[700], 5)
    facts = facts_of(digests)
    (found,) = facts.matching.mismatches
    assert (found.what, found.members, found.step) == ("missing", (700,), "ProfilerStep#2")
    assert len(facts.matching) == 10


def test_another_kind_is_a_mismatch() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["kind"] = "broadcast" if (rank, number) == (1, 2) else row["kind"]

    (found,) = facts_of(job(3, 4, change=change)).matching.mismatches
    assert (found.what, found.members, found.values) == ("kind", (1,), ("all_reduce", "broadcast"))


def test_another_order_without_numbers_is_a_mismatch() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["bytes"] += number ^ (1 if rank == 1 and number in (4, 5) else 0)

    facts = facts_of(job(3, 4, sequence=False, change=change))
    assert [(one.what, one.members) for one in facts.matching.mismatches] == [("order", (1,))]
    assert len(facts.matching) == 7


def test_another_size_without_numbers_is_a_mismatch() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["bytes"] += number + (100 if (rank, number) == (1, 4) else 0)

    facts = facts_of(job(3, 4, sequence=False, change=change))
    assert [(one.what, one.members) for one in facts.matching.mismatches] == [("bytes", (1,))]
    assert len(facts.matching) == 7


def test_another_kind_at_the_end_does_not_move_the_rest() -> None:
    """As where a job hangs or fails there: only at other times do all parts that are left fit."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["step"] = -1
        if (rank, number) == (1, 7):
            row["kind"] = "broadcast"

    facts = facts_of(job(3, 4, sequence=False, change=change))
    assert [(one.what, one.members, one.values) for one in facts.matching.mismatches] == [
        ("kind", (1,), ("all_reduce", "broadcast"))
    ]
    assert len(facts.matching) == 7


def test_equal_sequences_of_other_steps_are_told_apart_by_their_names() -> None:
    digests = job(2, 6, sequence=False)
    later = [f"ProfilerStep#{step + 2}" for step in range(6)]
    steps = digests[1].steps.set_column(
        digests[1].steps.schema.get_field_index("name"), "name", pa.array(later, pa.string())
    )
    facts = facts_of([digests[0], replace(digests[1], steps=steps)])
    assert len(facts.matching) == 2 * 4
    assert not facts.matching.mismatches


def test_sampled_traces_without_a_common_collective() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["sequence"] += 1000 * (rank == 2)

    facts = facts_of(job(3, 4, change=change))
    assert len(facts.matching) == 0
    assert [(one.what, one.members) for one in facts.matching.mismatches] == [("apart", (2,))]


def test_groups_of_one_name_on_other_ranks_are_different_groups() -> None:
    def about(rank: int) -> Mapping[str, Any]:
        return {"groups": {"3": [0, 1] if rank < 2 else [2, 3]}}

    facts = facts_of(job(4, 3, group="3", about=about))
    assert len(facts.matching) == 12
    assert sorted(channel.members for channel in facts.channels.channels) == [(0, 1), (2, 3)]


def test_a_send_matches_its_receive() -> None:
    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["kind"] = "send" if rank == 0 else "recv"
        row["sequence"] = -1
        row["destination" if rank == 0 else "source"] = 1 - rank

    facts = facts_of(job(2, 3, change=change))
    assert len(facts.matching) == 6
    assert {channel.pair for channel in facts.channels.channels} == {(0, 1)}


def test_of_two_ranks_the_other_one_is_the_peer() -> None:
    """Gloo does not record it. Of three, it may be either."""

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["kind"] = "send" if (rank + number) % 2 else "recv"

    facts = facts_of(job(2, 3, sequence=False, change=change))
    assert {channel.pair for channel in facts.channels.channels} == {(0, 1), (1, 0)}
    assert len(facts.matching) == 6
    assert not facts.matching.mismatches
    assert not facts_of(job(3, 3, sequence=False, change=change)).channels.channels


def test_receives_that_are_posted_early_match_their_sends() -> None:
    """The first receive of each step after the first is posted in the step before it, on another host."""
    own_ms = (10.0, 31.0, 17.0)

    def change(rank: int, number: int, row: dict[str, Any]) -> None:
        row["kind"] = "send" if rank == 0 else "recv"
        row["destination" if rank == 0 else "source"] = 1 - rank
        row["step"] -= rank == 1 and number in (4, 8)

    digests = job(
        2,
        3,
        change=change,
        collectives=4,
        sequence=False,
        own_ms=lambda rank, step: own_ms[step],
        host=lambda rank: f"node{rank}",
    )
    facts = facts_of(digests)
    assert len(facts.matching) == 12
    rows = facts.operations.member == 0
    assert facts.matching.collective[rows].tolist() == facts.matching.collective[~rows].tolist()
