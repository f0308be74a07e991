"""Levels of detail: no event is lost, no boxes overlap, slices are bounded, and exact when zoomed in."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.report.slices.timeline_levels import FINEST_NS, Boxes, Levels, build_levels, slice_levels

EVERYTHING = 10**9


def boxes(spans: list[tuple[int, int, int, int]]) -> Boxes:
    """One box per (row, start, duration, name), sorted by start."""
    spans = sorted(spans, key=lambda span: span[1])
    rows, starts, durations, names = (np.array(column) for column in zip(*spans, strict=True))
    count = len(spans)
    return Boxes(
        rows.astype(np.int32),
        starts.astype(np.int64),
        durations.astype(np.int64),
        names.astype(np.int32),
        (names % 7).astype(np.uint8),
        np.arange(count, dtype=np.int32),
        np.ones(count, np.int32),
    )


def dense(count: int, rows: int, seed: int = 1) -> Boxes:
    """Rows of many short spans and some long ones, without overlap."""
    random = np.random.default_rng(seed)
    spans = []
    for row in range(rows):
        durations = np.where(random.random(count) < 0.01, 200_000, random.integers(100, 5_000, count))
        pauses = random.integers(0, 2_000, count)
        starts = np.cumsum(durations + pauses) - durations
        names = random.integers(0, 20, count)
        spans += [(row, int(s), int(d), int(n)) for s, d, n in zip(starts, durations, names, strict=True)]
    return boxes(spans)


def span_of(levels: Levels) -> tuple[int, int]:
    whole = slice_levels(levels, 0, 1 << 60, 1 << 60, EVERYTHING)
    return int(whole.start_ns.min()), int((whole.start_ns + whole.duration_ns).max())


spans = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1_000_000), st.integers(0, 50_000), st.integers(0, 4)),
    min_size=1,
    max_size=60,
)


@given(spans, st.integers(1, 5_000))
def test_every_slice_of_the_whole_recording_contains_every_event_and_all_time(
    some: list[tuple[int, int, int, int]], width: int
) -> None:
    given_boxes = boxes(some)
    levels = build_levels(given_boxes, rows=4)
    exact = slice_levels(levels, 0, 1_100_000, 1_100_000, EVERYTHING)
    assert len(exact) == len(some)
    shown = slice_levels(levels, 0, 1_100_000, width, EVERYTHING)
    for row in range(4):
        own, true = shown.row == row, exact.row == row
        assert shown.count[own].sum() == np.count_nonzero(given_boxes.row == row)
        assert shown.duration_ns[own].sum() == exact.duration_ns[true].sum()
        ends = shown.start_ns[own] + shown.duration_ns[own]
        assert (ends[:-1] <= shown.start_ns[own][1:]).all()


@given(spans, st.randoms(use_true_random=False))
def test_boxes_may_come_in_any_order(some: list[tuple[int, int, int, int]], random: Random) -> None:
    """In the tree, a mark begins after the call that sets it: after spans that follow it in the trace."""
    order = list(range(len(some)))
    random.shuffle(order)
    levels = build_levels(boxes(some).take(np.array(order)), rows=4)
    assert (levels.duration_ns >= 0).all()
    assert (levels.key[1:] >= levels.key[:-1]).all()
    whole = slice_levels(levels, 0, 1_100_000, 1_100_000, EVERYTHING)
    assert len(whole) == len(some)


@given(spans, st.integers(0, 1_000_000), st.integers(1, 200_000))
def test_zoomed_in_a_slice_agrees_with_a_filter_over_all_events(
    some: list[tuple[int, int, int, int]], start: int, length: int
) -> None:
    levels = build_levels(boxes(some), rows=4)
    exact = slice_levels(levels, 0, 1_100_000, 1_100_000, EVERYTHING)
    shown = slice_levels(levels, start, start + length, length, EVERYTHING)
    ends = exact.start_ns + exact.duration_ns
    expected = (exact.start_ns < start + length) & ((ends > start) | (exact.start_ns >= start))
    assert (shown.count == 1).all()
    found = list(zip(shown.row, shown.start_ns, shown.duration_ns, shown.name, strict=True))
    some_exact = exact.take(expected)
    wanted = zip(some_exact.row, some_exact.start_ns, some_exact.duration_ns, some_exact.name, strict=True)
    assert sorted(found) == sorted(wanted)


@given(spans, st.integers(1, 2_000))
def test_a_name_that_takes_more_than_half_of_a_merged_box_names_it(
    some: list[tuple[int, int, int, int]], width: int
) -> None:
    levels = build_levels(boxes(some), rows=4)
    exact = slice_levels(levels, 0, 1_100_000, 1_100_000, EVERYTHING)
    shown = slice_levels(levels, 0, 1_100_000, width, EVERYTHING)
    # Boxes of a row are in order, and each contains the next `count` events.
    last = np.cumsum(shown.count)
    for name, first, end in zip(shown.name, last - shown.count, last, strict=True):
        inside = exact.take(np.arange(first, end))
        for other in np.unique(inside.name):
            if 2 * inside.duration_ns[inside.name == other].sum() > inside.duration_ns.sum():
                assert name == other


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 100, 1500])
def test_the_number_of_boxes_depends_on_pixels_not_on_events(width: int) -> None:
    rows = 3
    for count in (2_000, 40_000):
        levels = build_levels(dense(count, rows), rows)
        low, high = span_of(levels)
        for share in (1, 10, 100):
            shown = slice_levels(levels, low, low + (high - low) // share, width, EVERYTHING)
            # Up to two cells per pixel. In each begin a merged box and boxes that are too long to be
            # merged.
            assert len(shown) <= rows * (max(width, 32) * 5 + 5)


@pytest.mark.slow
def test_no_event_is_stored_more_than_twice() -> None:
    some = dense(20_000, 2)
    assert len(build_levels(some, 2).key) < 2 * len(some)


@pytest.mark.slow
def test_with_too_many_boxes_the_fullest_rows_lose_detail_first() -> None:
    full = dense(5_000, 20)
    sparse = boxes([(20, i * 250_000, 100_000, 1) for i in range(20)])
    levels = build_levels(Boxes.join([full, sparse]), rows=21)
    low, high = span_of(levels)
    shown = slice_levels(levels, low, high, 4096, 2_000)
    assert len(shown) <= 2_000
    assert np.count_nonzero(shown.row == 20) == 20
    assert shown.count.sum() == len(full) + len(sparse)


def test_the_majority_name_wins_over_several_levels() -> None:
    # Name 6 leads in the first cell of the finest level; over all, name 5 takes 160 of 260 ns.
    cell = FINEST_NS
    some = boxes(
        [(0, 0, 80, 5), (0, 90, 100, 6), (0, cell, 40, 5), (0, cell + 50, 40, 5), (0, 100 * cell, 9, 1)]
    )
    shown = slice_levels(build_levels(some, rows=1), 0, 100 * cell, 10, EVERYTHING)
    assert shown.name.tolist() == [5]
    assert shown.count.tolist() == [4]
    assert shown.duration_ns.tolist() == [260]


def test_a_long_event_between_short_ones_is_not_merged_at_any_zoom() -> None:
    some = boxes(
        [(0, i * 100, 50, 1) for i in range(1000)] + [(0, 100_000, 10**7, 2), (0, 10**7 + 200_000, 50, 1)]
    )
    levels = build_levels(some, rows=1)
    for width in (10_000, 100, 20):
        shown = slice_levels(levels, 0, 11 * 10**6, width, EVERYTHING)
        assert (10**7, 1) in list(zip(shown.duration_ns.tolist(), shown.count.tolist(), strict=True))


def test_of_overlapping_events_in_a_row_the_earlier_is_cut_short() -> None:
    levels = build_levels(boxes([(0, 0, 100, 1), (0, 60, 100, 2)]), rows=1)
    shown = slice_levels(levels, 0, 200, 200, EVERYTHING)
    assert shown.duration_ns.tolist() == [60, 100]


def test_recordings_of_years_do_not_overflow() -> None:
    far = 1 << 61
    levels = build_levels(
        boxes([(row, start, 10, 1) for row in range(3) for start in (0, 1_000, far)]), rows=3
    )
    shown = slice_levels(levels, 0, far + 100, 1_000, EVERYTHING)
    assert shown.count.sum() == 9
    assert slice_levels(levels, far - 2**20, far + 2**20, 1_000, EVERYTHING).count.sum() == 3


def test_no_events_have_no_boxes() -> None:
    levels = build_levels(Boxes.join([]), rows=0)
    assert len(slice_levels(levels, 0, 100, 10, EVERYTHING)) == 0
