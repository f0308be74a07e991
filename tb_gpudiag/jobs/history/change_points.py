"""Change points: where a series of figures, one per recording, changes for good, at once or gradually."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Float64
from tb_gpudiag.frozen import dataclass

# A change shows in at least two recordings before it and two after it.
LEAST_SIDE: Final = 2

# One false change in a hundred series of pure noise, wherever in the series.
SIGNIFICANCE: Final = 0.01

# From this many recordings on, ranks are compared, which one outlier does not move: nine recordings can be
# split into two groups in enough ways for this significance. With fewer, values are compared, as if noise
# were normal.
_RANKS_FROM: Final = 12

# With fewer recordings, a stretch that goes up and comes down again cannot be significant.
_STRETCHES_FROM: Final = 12

_SHORTEST_STRETCH: Final = 6
_TRIALS: Final = 4_999
_TRIALS_OF_LONG: Final = 999
_LONG: Final = 200
_SEED: Final = 20232
_MOST_CELLS: Final = 1 << 20


@dataclass(frozen=True)
class ChangePoint:
    """A change between values[start:point] and values[point:end]. gradual: a line explains these values as
    well as a step at `point`, so the change may have come bit by bit."""

    start: int
    point: int
    end: int
    gradual: bool


def change_points(values: Float64, least: float, significance: float = SIGNIFICANCE) -> list[ChangePoint]:
    """Return the changes of a series, in order.

    values: shape (recordings,). The medians before and after a change differ by at least `least`, and of
    series of pure noise no more than `significance` have a change.
    """
    found = _found(values, 0, least, significance)
    edges = [0, *(each.point for each in found), len(values)]
    return [
        each if each.gradual else ChangePoint(start, each.point, end, gradual=False)
        for each, start, end in zip(found, edges, edges[2:], strict=False)
    ]


def _found(values: Float64, first: int, least: float, significance: float) -> list[ChangePoint]:
    """Return the changes of values that begin at the index `first` of the series; stretches of steps are
    still those in which they were found."""
    stretch = _stretch_with_a_change(values, significance) if len(values) >= 2 * LEAST_SIDE else None
    if stretch is None:
        return []
    start, end = stretch
    own = values[start:end]
    # Where two medians explain the values best.
    places = range(LEAST_SIDE, len(own) - LEAST_SIDE + 1)
    place = min(places, key=lambda place: _off_medians(own, place))
    if abs(float(np.median(own[place:]) - np.median(own[:place]))) < least:
        return []
    # The sum of distances from the line through the values.
    at = np.arange(len(own), dtype=np.float64)
    at -= at.mean()
    centered = own - own.mean()
    gradual = _off_median(centered - at * ((at @ centered) / (at @ at))) <= _off_medians(own, place)
    change = ChangePoint(first + start, first + start + place, first + end, gradual)
    before, after = (start, end) if gradual else (start + place, start + place)
    return [
        *_found(values[:before], first, least, significance),
        change,
        *_found(values[after:], first + after, least, significance),
    ]


def _stretch_with_a_change(values: Float64, significance: float) -> tuple[int, int] | None:
    """Return start and end of a stretch with a significant change; None without one."""
    count = len(values)
    with_stretches, of_ranks = count >= _STRETCHES_FROM, count >= _RANKS_FROM
    series = (_ranks(values) if of_ranks else values)[None, :]
    of_whole: Sequence[Callable[[Float64], Float64]] = (_largest_t, _trend)
    # Each of the tests may have its part of the false changes.
    part = significance / (len(of_whole) + with_stretches)
    if any(float(of(series)[0]) > _critical(count, of, of_ranks, part) for of in of_whole):
        return 0, count
    if with_stretches and float(_largest_contrast(series)[0]) > _critical(
        count, _largest_contrast, True, part
    ):
        return max(_stretches(count), key=lambda s: float(_contrasts(series[:, s[0] : s[1]]).max()))
    return None


def _trend(series: Float64) -> Float64:
    """Return the square of the correlation with time, shape (series,)."""
    centered = series - series.mean(axis=1, keepdims=True)
    at = np.arange(series.shape[1]) - (series.shape[1] - 1) / 2
    total = np.maximum((centered**2).sum(axis=1), np.finfo(np.float64).tiny)
    return (centered @ at) ** 2 / (total * (at @ at))


def _largest_t(series: Float64) -> Float64:
    """Return the largest square of Student's t over all places of one change, shape (series,)."""
    count = series.shape[1]
    centered = series - series.mean(axis=1, keepdims=True)
    total = (centered**2).sum(axis=1, keepdims=True)
    between = _contrasts(series)
    # Where the values on both sides are equal, only rounding errors are left.
    least = np.finfo(np.float64).eps * np.maximum(total, np.finfo(np.float64).tiny)
    return (between * (count - 2) / np.maximum(total - between, least)).max(axis=1)


def _largest_contrast(series: Float64) -> Float64:
    """Return the largest contrast within any stretch, for each series of ranks. It finds values that go up
    and come down again, where one change explains little."""
    stretches = _stretches(series.shape[1])
    return np.max([_contrasts(series[:, s:e]).max(axis=1) for s, e in stretches], axis=0)


def _contrasts(series: Float64) -> Float64:
    """Return the sum of squares that a change at each place explains. Shape (series, places)."""
    count = series.shape[1]
    centered = series - series.mean(axis=1, keepdims=True)
    left = np.cumsum(centered, axis=1)[:, LEAST_SIDE - 1 : count - LEAST_SIDE]
    sizes = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    return left**2 * count / (sizes * (count - sizes))


def _stretches(count: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of all lengths, each overlapping its neighbors by three quarters."""
    length = float(count)
    while length >= _SHORTEST_STRETCH:
        whole = int(length)
        for start in range(0, count - whole + 1, max(1, whole // 4)):
            yield start, start + whole
        length /= np.sqrt(2)


def _off_medians(values: Float64, place: int) -> float:
    """Return the sum of distances from the medians on both sides of a place."""
    return _off_median(values[:place]) + _off_median(values[place:])


def _off_median(values: Float64) -> float:
    return float(np.abs(values - np.median(values)).sum())


def _ranks(values: Float64) -> Float64:
    """Return the ranks of the values; equal values share one."""
    _, number, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[number]


@lru_cache(maxsize=512)
def _critical(count: int, statistic: Callable[[Float64], Float64], of_ranks: bool, share: float) -> float:
    """Return the value that the statistic of a noise series exceeds with probability `share`."""
    generator = np.random.default_rng(_SEED)
    trials = _TRIALS if count <= _LONG else _TRIALS_OF_LONG
    at_once = max(1, _MOST_CELLS // count)
    found = []
    for done in range(0, trials, at_once):
        series = generator.standard_normal((min(at_once, trials - done), count))
        if of_ranks:
            series = series.argsort(axis=1).argsort(axis=1).astype(np.float64)
        found.append(statistic(series))
    return float(np.quantile(np.concatenate(found), 1 - share))
