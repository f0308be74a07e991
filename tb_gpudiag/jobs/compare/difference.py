"""Difference between two sets of steps: medians and means, with intervals from resampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Float64
from tb_gpudiag.frozen import dataclass

_Middle = Callable[[Float64], Float64]

# 2.5% quantiles of 2,000 resamples rest on 50 of them: with another seed, they move by less than the
# interval's width.
RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
# A few slow steps move the mean. For this confidence, four of eight steps have to be slow, or five of forty.
CONFIDENCE_OF_MEANS: Final = 0.99
_SEED: Final = 20231
_MOST_CELLS: Final = 1 << 20  # 8 MB of resampled steps at once


@dataclass(frozen=True)
class Difference:
    """Medians or means of both sides, and the confidence interval of candidate - base."""

    base: float
    candidate: float
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.candidate - self.base

    @property
    def significant(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.low > 0 or self.high < 0

    @property
    def share(self) -> float:
        """The difference as a share of the base; 0 without one."""
        return self.value / self.base if self.base > 0 else 0.0


def difference_of_medians(base: Float64, candidate: Float64) -> Difference:
    """Compare medians, with 95% confidence. Resampled medians are measured steps, so with few steps the
    interval is at least as wide as the steps are apart."""
    return _difference(base, candidate, lambda steps: np.median(steps, axis=-1), CONFIDENCE)


def difference_of_means(base: Float64, candidate: Float64) -> Difference:
    """Compare means, with 99% confidence."""
    return _difference(base, candidate, lambda steps: np.mean(steps, axis=-1), CONFIDENCE_OF_MEANS)


def _difference(base: Float64, candidate: Float64, middle: _Middle, confidence: float) -> Difference:
    """Compare the middles of the steps. The interval is a percentile bootstrap, the same for the same steps.
    The middle of no steps is 0."""
    before, after = (float(middle(side)) if len(side) else 0.0 for side in (base, candidate))
    if not len(base) or not len(candidate):
        return Difference(before, after, 0.0, 0.0)
    generator = np.random.default_rng(_SEED)
    moved = _resampled(candidate, generator, middle) - _resampled(base, generator, middle)
    low, high = np.quantile(moved, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(before, after, float(low), float(high))


def _resampled(steps: Float64, generator: np.random.Generator, middle: _Middle) -> Float64:
    """Return the middles of resamples, shape (RESAMPLES,)."""
    at_once = max(1, _MOST_CELLS // len(steps))
    found = []
    for done in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - done)
        found.append(middle(steps[generator.integers(0, len(steps), (rows, len(steps)))]))
    return np.concatenate(found)
