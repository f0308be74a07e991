"""Difference between two sets of steps: medians and means, with intervals from resampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float64]
Middle = Callable[[Samples], Samples]

# 2.5% quantiles of 2,000 resamples rest on 50 of them: another seed moves them by less than they are wide.
RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
# A few slow steps move the mean. Of eight steps, four have to be slow for this confidence, of forty, five.
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


def difference_of_medians(base: Samples, candidate: Samples) -> Difference:
    """Compare medians, with 95% confidence. Resampled medians are steps that were measured, so with few steps
    the interval is no narrower than they are apart."""
    return _difference(base, candidate, lambda steps: np.median(steps, axis=-1), CONFIDENCE)


def difference_of_means(base: Samples, candidate: Samples) -> Difference:
    """Compare means, with 99% confidence."""
    return _difference(base, candidate, lambda steps: np.mean(steps, axis=-1), CONFIDENCE_OF_MEANS)


def _difference(base: Samples, candidate: Samples, middle: Middle, confidence: float) -> Difference:
    """Compare the middles of the steps; the interval is a percentile bootstrap. The same for the same steps.
    Without steps on a side, its middle is 0."""
    before, after = (float(middle(side)) if len(side) else 0.0 for side in (base, candidate))
    if not len(base) or not len(candidate):
        return Difference(before, after, 0.0, 0.0)
    generator = np.random.default_rng(_SEED)
    moved = _resampled(candidate, generator, middle) - _resampled(base, generator, middle)
    low, high = np.quantile(moved, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(before, after, float(low), float(high))


def _resampled(steps: Samples, generator: np.random.Generator, middle: Middle) -> Samples:
    """Middles of resamples, shape (RESAMPLES,)."""
    at_once = max(1, _MOST_CELLS // len(steps))
    found = []
    for done in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - done)
        found.append(middle(steps[generator.integers(0, len(steps), (rows, len(steps)))]))
    return np.concatenate(found)
