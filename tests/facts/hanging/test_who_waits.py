"""Who holds up a job that hangs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tb_gpudiag.facts.hanging.who_waits import Hang, HangReason, find_hang
from tb_gpudiag.trace.flight_recorder.read_dump import (
    FlightDump,
    Operation,
    ProcessGroup,
    Progress,
    Signature,
    read_dumps,
)
from tests.trace.flight_recorder.dumps import WORLD, entry, write

DONE = [entry("all_reduce", 1), entry("all_gather", 2)]
PAIRS = {WORLD: (0, 1, 2), "1": (0, 1), "2": (1, 2)}


def hang_of(
    folder: Path,
    ranks: Mapping[int, Sequence[dict[str, Any]]],
    groups: Mapping[str, Sequence[int]] = {WORLD: (0, 1, 2)},
) -> Hang:
    """Each rank called its operations after those that all have called."""
    for rank, entries in ranks.items():
        own = {name: members for name, members in groups.items() if rank in members}
        write(folder, rank, [*DONE, *entries], own)
    return find_hang(read_dumps([str(folder)])[0])


def waits(kind: str = "all_reduce", sequence: int = 3, **more: Any) -> dict[str, Any]:
    return entry(kind, sequence, state=more.pop("state", "started"), **more)


def test_a_rank_that_has_not_called_holds_up_the_others(tmp_path: Path) -> None:
    hang = hang_of(tmp_path, {0: [waits()], 1: [], 2: [waits()]})
    assert (hang.why, hang.culprits) == (HangReason.NOT_CALLED, (1,))
    assert {rank: found.waits_for for rank, found in hang.waiting.items()} == {0: {1}, 2: {1}}
    assert hang.last[1].sequence == 2


def test_who_waits_for_a_rank_that_waits_is_no_culprit(tmp_path: Path) -> None:
    """Rank 0 waits for rank 1, which waits for rank 2 in another group."""
    hang = hang_of(tmp_path, {0: [waits()], 1: [waits(group="2", sequence=1)], 2: []}, PAIRS)
    assert (hang.why, hang.culprits) == (HangReason.NOT_CALLED, (2,))


def test_groups_in_different_orders_are_a_cycle(tmp_path: Path) -> None:
    groups = {WORLD: (0, 1, 2), "1": (0, 1), "2": (0, 1)}
    ranks = {0: [waits(group="1", sequence=1)], 1: [waits(group="2", sequence=1)], 2: [waits()]}
    hang = hang_of(tmp_path, ranks, groups)
    assert (hang.why, hang.culprits) == (HangReason.CYCLE, (0, 1))


@pytest.mark.parametrize("other", [{"kind": "broadcast"}, {"size": 2_000}])
def test_ranks_that_call_something_else(other: dict[str, Any], tmp_path: Path) -> None:
    hang = hang_of(tmp_path, {0: [waits()], 1: [waits(**other)], 2: [waits()]})
    assert (hang.why, hang.culprits) == (HangReason.MISMATCH, (1,))
    assert hang.mismatch is not None
    assert hang.mismatch.sequence == 3


def test_a_collective_that_a_rank_left_out(tmp_path: Path) -> None:
    most = [entry("all_reduce", 3), waits("all_gather", 4)]
    hang = hang_of(tmp_path, {0: most, 1: [waits("all_gather", 3)], 2: most})
    assert (hang.why, hang.culprits) == (HangReason.MISMATCH, (1,))


def test_sizes_may_differ_where_ranks_give_different_parts(tmp_path: Path) -> None:
    hang = hang_of(tmp_path, {0: [waits("all_to_all")], 1: [waits("all_to_all", size=7)], 2: []})
    assert (hang.why, hang.culprits) == (HangReason.NOT_CALLED, (2,))


def test_all_have_called_it(tmp_path: Path) -> None:
    hang = hang_of(tmp_path, {rank: [waits()] for rank in range(3)})
    assert (hang.why, hang.culprits) == (HangReason.TRANSFER, (0, 1, 2))
    later = {0: [waits()], 1: [waits(state="scheduled")], 2: [waits()]}
    hang = hang_of(tmp_path / "later", later)
    assert (hang.why, hang.culprits) == (HangReason.NOT_BEGUN, (1,))


def test_what_is_under_way_when_the_dump_is_written_is_not_what_hangs(tmp_path: Path) -> None:
    under_way = [waits(), waits(sequence=4)]
    hang = hang_of(tmp_path, {0: under_way, 1: [entry("all_reduce", 3)], 2: under_way})
    assert (hang.why, hang.culprits) == (HangReason.NOT_CALLED, (1,))
    assert hang.waiting[0].operation.sequence == 4


def test_what_has_ended_on_a_rank_ends_on_the_others(tmp_path: Path) -> None:
    """Rank 1 was asked a moment before its operation ended, and calls no other one."""
    after = [entry("all_reduce", 3), waits(sequence=4)]
    hang = hang_of(tmp_path, {0: after, 1: [waits()], 2: after})
    assert (hang.why, hang.culprits) == (HangReason.NOT_CALLED, (1,))


def test_a_rank_without_a_dump(tmp_path: Path) -> None:
    hang = hang_of(tmp_path, {0: [waits()], 2: [waits()]})
    assert (hang.why, hang.culprits) == (HangReason.NO_DUMP, (1,))


def test_receiving_from_a_rank_that_does_not_send(tmp_path: Path) -> None:
    pair = [entry("send 0->1", 0), waits("send 0->1", 0)]
    hang = hang_of(tmp_path, {0: pair, 1: [entry("recv 1<-0", 0)], 2: []})
    assert (hang.why, hang.culprits) == (HangReason.NOT_CALLED, (1,))


def test_nobody_waits(tmp_path: Path) -> None:
    hang = hang_of(tmp_path, {rank: [] for rank in range(3)})
    assert (hang.why, hang.culprits) == (HangReason.NO_HANG, ())


def test_gloo_calls_an_operation_retired_that_timed_out(tmp_path: Path) -> None:
    timed_out = {**waits(state="scheduled", back_end="gloo"), "retired": True}
    hang = hang_of(tmp_path, {0: [timed_out], 1: [], 2: [timed_out]})
    assert (hang.why, hang.culprits) == (HangReason.NOT_CALLED, (1,))


def test_members_that_no_dump_names(tmp_path: Path) -> None:
    """Gloo says the members of the group of all ranks only."""
    ranks = {rank: [waits(group="1", sequence=1)] for rank in range(2)}
    hang = hang_of(tmp_path, {0: ranks[0], 1: [waits(group="2", sequence=1)], 2: []}, {"": (0, 1, 2)})
    assert (hang.why, hang.culprits) == (HangReason.CANNOT_TELL, ())


@pytest.mark.slow
def test_a_group_of_all_ranks_of_a_large_job() -> None:
    """Ranks are never looked for in lists, and never listed for each rank that waits: that takes hours."""
    ranks, with_dump = tuple(range(300_000)), range(200)
    signature = Signature("all_reduce", 1, "Float")
    ended = [Operation(n, n, WORLD, signature, Progress.DONE, 0, -1, -1, None) for n in range(1, 100)]
    waits_ = Operation(100, 100, WORLD, signature, Progress.BEGUN, 0, -1, -1, None)
    groups = {WORLD: ProcessGroup("default_pg", ranks)}
    hang = find_hang([FlightDump(rank, "", groups, [*ended, *[waits_] * (rank > 0)]) for rank in with_dump])
    assert (hang.why, hang.culprits, len(hang.ranks)) == (HangReason.NOT_CALLED, (0,), 300_000)
    assert len(hang.waiting[1].waits_for) == 1 + 300_000 - 200


def test_dumps_without_operations_say_nothing(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, rank, [], {WORLD: (0, 1, 2)})
    hang = find_hang(read_dumps([str(tmp_path)])[0])
    assert (hang.why, hang.empty) == (HangReason.EMPTY, frozenset({0, 1, 2}))


def test_a_rank_whose_dump_is_empty_has_not_called(tmp_path: Path) -> None:
    """Its file may even have no byte: it is there, unlike that of a rank without a dump."""
    for rank in (0, 2):
        write(tmp_path, rank, [waits(sequence=1)], {WORLD: (0, 1, 2)})
    write(tmp_path, 1, [], {WORLD: (0, 1, 2)})
    hang = find_hang(read_dumps([str(tmp_path)])[0])
    assert (hang.why, hang.culprits, hang.empty) == (HangReason.NOT_CALLED, (1,), frozenset({1}))
    (written,) = tmp_path.glob("*1*")
    written.write_bytes(b"")
    assert find_hang(read_dumps([str(tmp_path)])[0]).empty == {1}
