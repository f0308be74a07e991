"""Planted changes are found where they are, at once or gradual; noise gives none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpudiag.jobs.history.change_points import ChangePoint, change_points
from tests.with_each import with_each

LEAST = 0.05
SLOW = pytest.mark.slow


def steps(values: npt.NDArray[np.float64], least: float) -> list[int]:
    """Return the first index after each change, all of which are at once."""
    found = change_points(values, least)
    assert not any(each.gradual for each in found)
    return [each.point for each in found]


def noise(count: int, seed: int, size: float = 0.02) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, size, count)


@pytest.mark.parametrize(
    "count", [4, 6, 8, 9, 12, pytest.param(40, marks=SLOW), pytest.param(100, marks=SLOW)]
)
def test_noise_gives_none(count: int) -> None:
    found = sum(bool(change_points(noise(count, seed, 0.2), LEAST)) for seed in range(100))
    assert found <= 3  # 1% of 100, and what chance makes of it


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, 12, 40])
def test_noise_with_outliers_gives_none(count: int) -> None:
    """Some recordings are of slow moments, such as a checkpoint."""
    found = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        found += bool(change_points(generator.standard_t(2, count), LEAST))
    assert found <= 3


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(3, 3), (4, 2), (5, 5), (20, 20), (36, 4), (6, 60)])
def test_a_change_is_found_where_it_is(before: int, after: int) -> None:
    values = noise(before + after, 1, 0.005)
    values[before:] += 0.3
    assert steps(values, LEAST) == [before]


def test_a_change_in_the_midst_of_outliers() -> None:
    values = noise(40, 2)
    values[20:] += 0.3
    values[[5, 11, 30]] += 2.0
    assert steps(values, LEAST) == [20]


def test_up_and_down_again() -> None:
    values = noise(60, 3)
    values[20:40] += 0.4
    assert change_points(values, LEAST) == [
        ChangePoint(0, 20, 40, gradual=False),
        ChangePoint(20, 40, 60, gradual=False),
    ]


def test_a_change_that_is_too_small() -> None:
    values = np.r_[np.full(20, 1.0), np.full(20, 1.04)]
    assert change_points(values, LEAST) == []
    assert steps(values, 0.03) == [20]


@with_each("count", [6, 8, 12, 40])
def test_a_ramp_is_one_gradual_change(count: int) -> None:
    (found,) = change_points(np.linspace(0, 1, count) + noise(count, 4, 0.005), LEAST)
    assert (found.start, found.end, found.gradual) == (0, count, True)


def test_a_change_in_much_noise_is_found_but_not_its_kind() -> None:
    """Times of a busy machine: twice as slow from the sixth recording on."""
    (found,) = change_points(np.log([437, 495, 698, 709, 835, 1200, 1260, 971, 1340, 1180]), LEAST)
    assert found == ChangePoint(0, 5, 10, gradual=True)


@pytest.mark.slow
@pytest.mark.parametrize("count", [9, 10, 11, 12])
def test_ten_recordings_show_a_change_of_a_tenth(count: int) -> None:
    found = 0
    for seed in range(50):
        values = noise(count, seed)
        values[count // 2 :] += 0.1
        found += bool(change_points(values, LEAST))
    assert found >= 40


@with_each("values", [[], [1.0], [1, 2], [1, 1, 2], [1.0] * 40])
def test_too_few_or_equal_values(values: list[float]) -> None:
    assert change_points(np.array(values, np.float64), LEAST) == []


@given(
    values=st.lists(st.floats(-1e6, 1e6), max_size=30),
    least=st.floats(0, 10),
)
def test_changes_are_in_order_and_large_enough(values: list[float], least: float) -> None:
    series = np.array(values, np.float64)
    found = change_points(series, least)
    assert all(each.start + 2 <= each.point <= each.end - 2 for each in found)
    assert all(one.point < other.point for one, other in pairwise(found))
    assert change_points(series, least) == found


@given(values=st.lists(st.floats(-100, 100), max_size=20), factor=st.sampled_from([0.5, 2.0, -4.0]))
def test_the_unit_does_not_matter(values: list[float], factor: float) -> None:
    series = np.array(values, np.float64)
    assert change_points(series, 1.0) == change_points(series * factor, abs(factor))
