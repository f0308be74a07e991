"""Difference between two sets of steps: medians, with an interval from resampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float64]

# 2.5% quantiles of 2,000 resamples rest on 50 of them: another seed moves them by less than they are wide.
RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
_SEED: Final = 20231
_MOST_CELLS: Final = 1 << 20  # 8 MB of resampled steps at once


@dataclass(frozen=True)
class Difference:
    """Medians of both sides, and the interval that contains candidate - base with 95% confidence."""

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


def difference_of_medians(base: Samples, candidate: Samples) -> Difference:
    """Compare medians; the interval is a percentile bootstrap. The same for the same steps.

    Resampled medians are steps that were measured, so with few steps the interval is no narrower than they
    are apart. Without steps on a side, its median is 0.
    """
    before, after = (float(np.median(side)) if len(side) else 0.0 for side in (base, candidate))
    if not len(base) or not len(candidate):
        return Difference(before, after, 0.0, 0.0)
    generator = np.random.default_rng(_SEED)
    moved = _resampled(candidate, generator) - _resampled(base, generator)
    low, high = np.quantile(moved, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Difference(before, after, float(low), float(high))


def _resampled(steps: Samples, generator: np.random.Generator) -> Samples:
    """Medians of resamples, shape (RESAMPLES,)."""
    at_once = max(1, _MOST_CELLS // len(steps))
    found = []
    for done in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - done)
        found.append(np.median(steps[generator.integers(0, len(steps), (rows, len(steps)))], axis=1))
    return np.concatenate(found)
