from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tb_gpudiag.facts.stepping.pattern import Pattern, Shape, find_pattern
from tests.with_each import with_each


def _pattern(lengths: Sequence[float], first: int = 0) -> Pattern | None:
    return find_pattern(np.array(lengths, np.int64) * 1_000_000, first)


def test_even_steps_have_no_pattern() -> None:
    assert _pattern([100, 103, 99, 101, 100, 105, 98]) is None


def test_finds_single_slow_steps_but_not_the_first_one() -> None:
    found = _pattern([300, 100, 100, 180, 100, 100, 101, 99])
    assert found is not None
    assert found.shape is Shape.SINGLE
    assert found.slow.tolist() == [3]
    assert found.others.tolist() == [1, 2, 4, 5, 6, 7]


def test_finds_a_change_of_level_of_the_majority() -> None:
    """Most steps are slow, so none is far above the median."""
    found = _pattern([118, 115, 1015, 1068, 1076])
    assert found is not None
    assert found.shape is Shape.SLOWER
    assert found.slow.tolist() == [2, 3, 4]
    assert found.others.tolist() == [0, 1]


def test_finds_when_steps_got_faster() -> None:
    found = _pattern([200] * 6 + [100] * 4)
    assert found is not None
    assert found.shape is Shape.FASTER
    assert found.others.tolist() == [6, 7, 8, 9]


@with_each(("period", "steps"), [(2, 9), (3, 12), (4, 13), (8, 40)])
def test_finds_every_kth_step(period: int, steps: int) -> None:
    found = _pattern([190.0 if i % period == 1 else 100.0 + i % 3 for i in range(steps)])
    assert found is not None
    assert (found.shape, found.period) == (Shape.PERIODIC, period)
    assert (found.slow % period == 1).all()


def test_two_slow_steps_are_not_a_period() -> None:
    found = _pattern([100, 100, 180, 100, 100, 100, 100, 180, 100, 100])
    assert found is not None
    assert found.shape is Shape.SINGLE


def test_finds_a_trend_and_does_not_call_it_a_change_of_level() -> None:
    rising = [100 + 4 * i + (i * 7) % 5 for i in range(20)]
    for lengths, shape in ((rising, Shape.RISING), (rising[::-1], Shape.FALLING)):
        found = _pattern([float(ms) for ms in lengths])
        assert found is not None
        assert found.shape is shape


def test_a_change_of_level_is_not_a_trend() -> None:
    found = _pattern([100 + i % 3 for i in range(10)] + [150 + i % 3 for i in range(10)])
    assert found is not None
    assert found.shape is Shape.SLOWER
    assert found.slow.tolist() == list(range(10, 20))


@pytest.mark.slow
def test_noise_has_no_pattern_but_slow_steps() -> None:
    """Lengths of independent steps, up to 15% apart: neither a trend, nor a level, nor a period."""
    random = np.random.default_rng(5)
    for steps in (5, 8, 13, 40, 200):
        for _ in range(200):
            assert find_pattern(random.integers(93_000_000, 107_000_000, steps), 0) is None


@pytest.mark.slow
def test_heavy_tailed_steps_are_mostly_single_ones() -> None:
    random = np.random.default_rng(6)
    shapes = [
        found.shape
        for _ in range(300)
        if (found := find_pattern((1e8 * random.lognormal(0, 0.3, 20)).astype(np.int64), 0)) is not None
    ]
    assert shapes.count(Shape.SINGLE) > 0.95 * len(shapes)


def test_steps_without_gpu_work_are_not_compared() -> None:
    assert _pattern([0, 0, 0, 0, 0, 100]) is None
    assert _pattern([]) is None
    assert _pattern([100]) is None
