"""Floors and the trend through them."""

from __future__ import annotations

from itertools import combinations, pairwise
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.facts.memory.floor import FALLS, MOST_FLOORS, Periods, floors, theil_sen, trend, windows
from tests.with_each import with_each


def curve_of(time_ns: list[int], allocated: list[int], start_bytes: int = 0) -> Curve:
    time = np.array(time_ns, np.int64)
    none = np.full(len(time), -1, np.int64)
    return Curve(time, np.array(allocated, np.int64), none, False, start_bytes, np.arange(len(time)))


def steps_of(start_ns: Int64, end_ns: Int64) -> Periods:
    return Periods([f"step {i}" for i in range(len(start_ns))], start_ns, end_ns, "step")


@st.composite
def curves_and_steps(draw: st.DrawFn) -> tuple[Curve, Periods]:
    time = sorted(draw(st.lists(st.integers(0, 100), min_size=1, max_size=40)))
    values = draw(st.lists(st.integers(0, 50), min_size=len(time), max_size=len(time)))
    edges = sorted(draw(st.sets(st.integers(0, 110), min_size=2, max_size=12)))
    spans = [pair for pair in pairwise(edges) if draw(st.booleans())] or [(edges[0], edges[-1])]
    start, end = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    return curve_of(time, values, draw(st.integers(0, 50))), steps_of(start, end)


@given(curves_and_steps())
def test_a_floor_is_the_lowest_value_of_its_period_the_value_at_its_start_included(
    given_: tuple[Curve, Periods],
) -> None:
    curve, periods = given_
    found = floors(curve, periods)
    for i in range(len(periods)):
        first, last = int(periods.start_ns[i]), int(periods.end_ns[i])
        points = list(zip(curve.time_ns.tolist(), curve.allocated.tolist(), strict=True))
        carried = [value for time, value in points if time < first]
        values = [(carried or [curve.start_bytes])[-1]]
        values += [value for time, value in points if first <= time < last]
        assert found.bytes[i] == min(values)
        assert first <= found.at_ns[i] < last
        # The curve has that value right after the event at `position`.
        assert curve.before(found.position[i : i + 1] + 1)[0] == found.bytes[i]


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=25))
def test_theil_sens_slope_is_the_median_of_all_pairs(values: list[int]) -> None:
    x, y = np.arange(len(values), dtype=np.float64), np.array(values, np.float64)
    slopes = sorted((values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2))
    found, low, high = theil_sen(x, y)
    assert found == pytest.approx(median(slopes))
    assert slopes[0] <= low <= found <= high <= slopes[-1]
    if len(values) < 4:
        assert (low, high) == (slopes[0], slopes[-1])


def test_the_interval_equals_sens_own_example() -> None:
    # P. K. Sen, Estimates of the regression coefficient based on Kendall's tau (1968), section 6.
    x = np.array([1, 2, 3, 4, 10, 12, 18], np.float64)
    y = np.array([9, 15, 19, 20, 45, 55, 78], np.float64)
    slope, low, high = theil_sen(x, y)
    assert slope == 4
    # The paper's interval is at 93%; for seven points the one at 95% ends at the same two slopes.
    assert (round(low, 2), round(high, 2)) == (3.71, 4.38)


def test_noise_does_not_hide_a_slope_and_the_interval_contains_it() -> None:
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        y = 1000.0 * np.arange(30) + random.normal(0, 3000, 30)
        slope, low, high = theil_sen(np.arange(30.0), y)
        assert abs(slope - 1000) < 400
        inside += low <= 1000 <= high
    assert inside >= 180  # 190 are expected


def test_a_floor_that_rises_in_each_step() -> None:
    # Each step of 100 ns: up by 60 in the middle, down to 10 more than before.
    time = [t for step in range(8) for t in (100 * step + 20, 100 * step + 80)]
    value = [v for step in range(8) for v in (10 * step + 60, 10 * step + 10)]
    start = np.arange(8, dtype=np.int64) * 100
    found = trend(floors(curve_of(time, value), steps_of(start, start + 100)))
    assert found is not None
    assert (found.per_unit, found.low, found.high, found.steps, found.unit) == (10, 10, 10, 7, "step")
    assert (found.earlier, found.later) == (10, 10)
    assert (found.start_bytes, found.end_bytes) == (10, 70)


def test_what_the_first_step_retains_is_not_a_trend() -> None:
    time, value = [10, 50], [500, 700]  # the first step allocates 700 and retains them
    start = np.arange(6, dtype=np.int64) * 100
    found = floors(curve_of(time, value), steps_of(start, start + 100))
    assert found.bytes.tolist() == [0, 700, 700, 700, 700, 700]
    assert found.excused.tolist() == [True, False, False, False, False, False]
    line = trend(found)
    assert line is not None
    assert (line.per_unit, line.low, line.high) == (0, 0, 0)


def test_a_cache_that_fills_rises_in_the_first_half_only() -> None:
    value = [min(step, 5) * 100 for step in range(12)]
    start = np.arange(12, dtype=np.int64) * 100
    line = trend(floors(curve_of((start + 1).tolist(), value), steps_of(start, start + 100)))
    assert line is not None
    assert line.earlier > 0
    assert line.later == 0


@with_each(("steps", "drawn"), [(2, None), (3, 2), (4, 3)])
def test_three_steps_are_the_fewest(steps: int, drawn: int | None) -> None:
    start = np.arange(steps, dtype=np.int64) * 100
    line = trend(floors(curve_of((start + 1).tolist(), list(range(steps))), steps_of(start, start + 100)))
    assert (line and line.steps) == drawn


@pytest.mark.slow
def test_a_trend_over_very_many_steps_uses_some_of_them() -> None:
    count = 3 * MOST_FLOORS
    start = np.arange(count, dtype=np.int64) * 10
    line = trend(floors(curve_of(start.tolist(), (7 * start).tolist()), steps_of(start, start + 10)))
    assert line is not None
    assert (line.steps, line.per_unit) == (MOST_FLOORS, 70)


def test_without_steps_every_window_of_time_contains_several_falls() -> None:
    time = np.arange(4000, dtype=np.int64) * 1_000_000
    saw = (np.arange(4000) % 40 < 30) * 10_000 + np.arange(4000)  # 100 periods; rises by 1,000 per second
    curve = curve_of(time.tolist(), saw.tolist())
    found = windows(curve, 0)
    assert found.unit == "second"
    for first, last in zip(found.start_ns[1:], found.end_ns[1:], strict=True):
        inside = saw[(time >= first) & (time < last)]
        middle = (inside.min() + inside.max()) / 2
        assert int(((inside[:-1] > middle) & (inside[1:] <= middle)).sum()) >= FALLS
    line = trend(floors(curve, found))
    assert line is not None
    assert line.per_unit == pytest.approx(1000, rel=0.02)


def test_memory_that_only_rises_has_no_floor() -> None:
    curve = curve_of(list(range(1000)), list(range(1000)))
    assert len(windows(curve, 0)) == 0
    assert trend(floors(curve, windows(curve, 0))) is None
