"""Ranges: a few places on the timeline to show for a row of a table, the heaviest first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64

MOST_RANGES = 5
"""Enough for one row of a table."""


class Ranges(NamedTuple):
    """At most MOST_RANGES stretches [start, end). Shape (r,) each. device: the GPU, or NONE for the host."""

    start_ns: Int64
    end_ns: Int64
    device: Int64


def longest(start_ns: Int64, end_ns: Int64, device: int = NONE) -> Ranges:
    """Return the longest of these, longest first; of equal ones the first."""
    some = heaviest(end_ns - start_ns)
    return Ranges(start_ns[some], end_ns[some], np.full(len(some), device, np.int64))


def heaviest(weight: Int64) -> Int64:
    """Return the indices of the MOST_RANGES greatest weights, greatest first; of equal ones the first."""
    some = np.arange(len(weight))
    if len(weight) > MOST_RANGES:
        least = np.partition(weight, len(weight) - MOST_RANGES)[len(weight) - MOST_RANGES]
        above, equal = np.flatnonzero(weight > least), np.flatnonzero(weight == least)
        some = np.r_[above, equal[: MOST_RANGES - len(above)]]
    return some[np.argsort(-weight[some], kind="stable")]
