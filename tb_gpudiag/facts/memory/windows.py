"""Stretches of time to take floors of where no steps were recorded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.facts.memory.floor import NO_PERIODS, Periods

MOST_WINDOWS = 32
FEWEST_WINDOWS = 4

FALLS = 2
"""A floor means something only where the curve comes down to it: in each window it falls through the middle
between the window's extremes at least so often. Not in the first one, which is a warm-up as a first step
is."""


def windows(curve: Curve, begin_ns: int) -> Periods:
    """From then on, the largest number of equal windows of time, a power of two, of which each but the first
    holds FALLS falls; none where not even FEWEST_WINDOWS do."""
    count = MOST_WINDOWS
    first, last = max(begin_ns, int(curve.time_ns[0])), int(curve.time_ns[-1])
    while count >= FEWEST_WINDOWS and last > first:
        edge = first + np.arange(count + 1, dtype=np.int64) * (last - first) // count
        at = np.searchsorted(curve.time_ns, edge)
        if all(_falls(curve, int(a), int(b)) >= FALLS for a, b in pairwise(at[1:])):
            names = [f"window {i + 1}" for i in range(count)]
            return Periods(names, edge[:-1], edge[1:], "second")
        count //= 2
    return NO_PERIODS


def _falls(curve: Curve, first: int, last: int) -> int:
    """How often the curve falls through the middle between its extremes in the range first:last."""
    values = curve.allocated[first:last]
    if len(values) < 2 * FALLS:
        return 0
    low, high = int(values.min()), int(values.max())
    above = 2 * values > low + high
    return int((above[:-1] & ~above[1:]).sum()) if high > low else 0
