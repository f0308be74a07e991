from __future__ import annotations

import numpy as np
import pytest

from tb_gpudiag.facts.memory.pace import Pace, pace_of


def pace(*alive: tuple[int, int], floors: int, size: int = 1) -> Pace:
    """alive: of each allocation, the first floor at which it is alive, and the first one at which not."""
    since, until = np.array(alive).T
    at = np.arange(floors)
    counts = ((since[:, None] <= at) & (at < until[:, None])).sum(axis=0)
    return pace_of(counts, counts * size, 0 * counts, since, until, 0 * counts)


def kept(*steps: int, floors: int) -> Pace:
    return pace(*((step, floors) for step in steps), floors=floors)


def test_pauses_are_counted_at_the_end_and_before() -> None:
    found = kept(1, 2, 5, 6, floors=10)
    assert (found.quiet, found.longest_quiet) == (3, 2)
    assert kept(*range(10), floors=10).quiet == 0


def test_a_ring_drops_its_oldest_when_it_is_full() -> None:
    ring = [(step, min(20, step + 12)) for step in range(20)]
    assert pace(*ring, floors=20).oldest_gone == 8
    cleared = [(step, 6 if step < 4 else 20) for step in range(20)]
    assert pace(*cleared, floors=20).oldest_gone == 4


def test_what_is_copied_anew_until_it_is_full_drops_its_oldest() -> None:
    copies = [(at, min(20, at + 2)) for at in range(0, 20, 2) for _ in range(min(12, 4 + at))]
    assert pace(*copies, floors=20).oldest_gone


@pytest.mark.parametrize(
    "alive",
    [
        [(step, step + 1) for step in range(19)] + [(0, 20)],  # a step's own tensors, and one that is kept
        [(step, 20 if step % 2 else step + 2) for step in range(20)],  # each second one is kept
        [(step, 20 if step > 9 else 2 * step + 2) for step in range(20)],  # a queue that is read too slowly
        [(step, 20) for step in range(20)],
        # All that is kept is copied anew in every fourth step, with four more.
        [(at, min(20, at + 4)) for at in range(0, 20, 4) for _ in range(4 + at)],
    ],
)
def test_no_other_site_drops_its_oldest(alive: list[tuple[int, int]]) -> None:
    assert pace(*alive, floors=20).oldest_gone == 0


@pytest.mark.parametrize(
    ("size", "even"),
    [
        ([0, 300, 300, 400, 400, 500, 600, 600, 700], True),
        ([0, 300, 300, 400, 400, 500, 600, 600, 600], False),  # too few
        ([0, 100, 100, 200, 200, 400, 400, 800, 1600], False),
        ([0, 300, 400, 500, 600, 700, 600, 700, 800], False),
    ],
)
def test_jumps_of_one_size_are_even(size: list[int], *, even: bool) -> None:
    ones = np.ones(len(size), np.int64)
    found = pace_of(ones, np.array(size), 0 * ones, np.array([0]), np.array([len(size)]), 0 * ones)
    assert found.in_even_jumps is even


@pytest.mark.parametrize(
    ("lasts", "sizes", "even"),
    [
        (4, [80, 160, 240], True),
        (4, [80, 160, 320], False),  # doubled each time
        (4, [80, 160], False),
        (1, [80, 160, 240], False),  # batches of other sizes
    ],
)
def test_a_few_larger_ones_that_last_are_even_jumps_where_the_floor_has_them(
    lasts: int, sizes: list[int], even: bool
) -> None:
    at = range(2, 2 + lasts * len(sizes), lasts)
    counts = np.r_[0, 0, np.ones(lasts * len(sizes), np.int64)]
    size = np.r_[0, 0, np.repeat(sizes, lasts)]
    since, until = np.array(at), np.array(at) + lasts
    for floor, expected in ((1000 + size, even), (0 * size, False)):
        found = pace_of(counts, size, 0 * size, since, until, floor)
        assert found.in_even_jumps is expected
