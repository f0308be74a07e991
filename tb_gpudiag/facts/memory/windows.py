"""Windows of time that have floors where no steps were recorded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tb_gpudiag.facts.memory.curve import Curve
from tb_gpudiag.facts.memory.floor import NO_PERIODS, Periods

MOST_WINDOWS = 32
FEWEST_WINDOWS = 4

FALLS = 2
"""A floor is meaningful only where the curve comes down to it: in each window it falls through the middle
between the window's extremes at least this often. The first window is exempt, because it is a warm-up like a
first step."""


def windows(curve: Curve, begin_ns: int) -> Periods:
    """Divide the time since `begin_ns` into as many equal windows as possible (a power of two) of which each
    but the first has FALLS falls; return none if even FEWEST_WINDOWS do not."""
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
    """Count how often the curve falls through the middle between its extremes in the range first:last."""
    values = curve.allocated[first:last]
    if len(values) < 2 * FALLS:
        return 0
    low, high = int(values.min()), int(values.max())
    above = 2 * values > low + high
    return int((above[:-1] & ~above[1:]).sum()) if high > low else 0
