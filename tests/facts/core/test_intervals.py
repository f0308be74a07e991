"""Interval arithmetic, compared with sets of whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.facts.core.intervals import (
    Intervals,
    clip,
    complement,
    coverage,
    expand,
    groups,
    intersect,
    lengths_of_each,
    overlapping,
    places_of_each,
    subtract,
    union,
)

LIMIT = 40
pairs = st.lists(st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT)), max_size=12)


def made(spans: list[tuple[int, int]]) -> Intervals:
    return union(np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64))


def points(spans: Intervals | list[tuple[int, int]]) -> set[int]:
    if isinstance(spans, Intervals):
        spans = list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))
    return {x for a, b in spans for x in range(a, b)}


def is_a_set(spans: Intervals) -> bool:
    return bool((spans.end > spans.start).all() and (spans.start[1:] > spans.end[:-1]).all())


@given(pairs)
def test_union_covers_the_same_points(spans: list[tuple[int, int]]) -> None:
    found = made(spans)
    assert is_a_set(found)
    assert points(found) == points(spans)
    assert found.total == len(points(spans))


@given(pairs, st.integers(0, LIMIT), st.integers(0, LIMIT))
def test_complement_and_clip_split_a_stretch(spans: list[tuple[int, int]], low: int, high: int) -> None:
    some = made(spans)
    inside, outside = points(clip(some, low, high)), points(complement(some, low, high))
    assert inside | outside == set(range(low, high))
    assert not inside & outside
    assert inside == points(spans) & set(range(low, high))


@given(pairs, pairs)
def test_subtract_and_intersect(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    assert points(subtract(made(a), made(b))) == points(a) - points(b)
    assert points(intersect(made(a), made(b))) == points(a) & points(b)


@given(pairs, pairs)
def test_coverage_of_each_query(spans: list[tuple[int, int]], queries: list[tuple[int, int]]) -> None:
    ordered = [(min(q), max(q)) for q in queries]
    start, end = (np.array([q[i] for q in ordered], np.int64) for i in (0, 1))
    expected = [len(points(spans) & set(range(a, b))) for a, b in ordered]
    assert coverage(made(spans), start, end).tolist() == expected


@given(pairs, st.integers(0, 2**62), st.integers(1, 4))
def test_lengths_of_each_group(spans: list[tuple[int, int]], since: int, count: int) -> None:
    group = np.arange(len(spans)) % count
    start, end = (np.array([span[i] for span in spans], np.int64) + since for i in (0, 1))
    expected = [len(points(spans[one::count])) for one in range(count)]
    assert lengths_of_each(start, end, group).tolist() == [length for length in expected if length]


@given(pairs, st.integers(0, LIMIT), st.integers(1, LIMIT))
def test_overlapping_finds_all_members(spans: list[tuple[int, int]], start: int, length: int) -> None:
    some = made(spans)
    left, right = overlapping(some, np.array([start]), np.array([start + length]))
    met = [i for i in range(len(some.start)) if some.start[i] < start + length and some.end[i] > start]
    assert list(range(int(left[0]), int(right[0]))) == met


def test_expand_writes_ranges_out() -> None:
    owner, index = expand(np.array([2, 5, 7]), np.array([4, 5, 8]))
    assert owner.tolist() == [0, 0, 2]
    assert index.tolist() == [2, 3, 7]


@given(st.lists(st.integers(-2, 5)))
def test_places_of_each_value(values: list[int]) -> None:
    found = {value: places.tolist() for value, places in places_of_each(np.array(values, np.int32))}
    assert list(found) == sorted(set(values))
    assert all(found[value] == [i for i, one in enumerate(values) if one == value] for value in found)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 10**6))))
def test_rows_that_are_equal_have_one_group_and_its_first_row(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 2).T
    number, first = groups(*columns)
    assert [rows[row] for row in first] == sorted(set(rows))
    assert [rows[first[one]] for one in number] == rows
    assert [rows.index(rows[row]) for row in first] == first.tolist()
