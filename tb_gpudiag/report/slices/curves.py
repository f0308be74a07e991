"""Step curves, stored with the extremes of blocks of points, so that any range at any zoom can be cut out
cheaply. A slice costs the same however many points the curve has.

A value is valid until the next time. Of several points at the same time the last one's value is valid; the
others count among the extremes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.intervals import expand

# Points per block, and blocks per block of the level above. Larger blocks make slices slower and take less
# memory.
BLOCK = 32

# A range with at most this many points per pixel is shown point by point.
POINTS_PER_PIXEL = 2


Values = npt.NDArray[Any]
"""Whole numbers or floats."""


class Pyramid(NamedTuple):
    """One curve. time_ns (ascending) and value have shape (c,). low and high are the extremes of each block
    of BLOCK points, then of each block of BLOCK such blocks, and so on until one block is left."""

    time_ns: Int64
    value: Values
    low: Values
    high: Values


class CurveSlice(NamedTuple):
    """A range of a curve, shape (p,) each. The last value is valid until the range's end. `exact`: every
    point of the range is there, and low equals high."""

    time_ns: Int64
    low: Values
    high: Values
    exact: bool


def build_pyramid(time_ns: Int64, value: Values) -> Pyramid:
    """Build a curve with its blocks. time_ns, value: shape (c,), ascending in time."""
    low, high = [], []
    least = most = value
    while len(least) > 1:
        first = np.arange(0, len(least), BLOCK)
        least, most = np.minimum.reduceat(least, first), np.maximum.reduceat(most, first)
        low.append(least)
        high.append(most)
    none = np.zeros(0, np.int64)
    return Pyramid(time_ns, value, np.concatenate([none, *low]), np.concatenate([none, *high]))


def slice_curve(curve: Pyramid, start_ns: int, end_ns: int, width: int) -> CurveSlice:
    """Return what [start, end) shows on `width` pixels: every point, or if there are too many the exact
    extremes of each pixel. Before its first point a curve shows nothing."""
    time = curve.time_ns
    if not len(time) or end_ns <= max(start_ns, int(time[0])):
        none = np.zeros(0, np.int64)
        return CurveSlice(none, none, none, True)
    begin = max(start_ns, int(time[0]))
    first, stop = (int(i) for i in np.searchsorted(time, [begin, end_ns]))
    # The point that is valid at the range's start, unless another point is exactly there.
    first -= int(first == len(time) or time[first] > begin)
    if stop - first <= POINTS_PER_PIXEL * width:
        value = curve.value[first:stop]
        return CurveSlice(np.maximum(time[first:stop], begin), value, value, True)
    pixels = min(width, end_ns - begin)
    whole, rest = divmod(end_ns - begin, pixels)
    place = np.arange(pixels + 1, dtype=np.int64)
    edge = begin + place * whole + place * rest // pixels
    at = np.searchsorted(time, edge)
    # If no point is exactly at the edge, the point before it is valid there.
    is_earlier = time[np.minimum(at, len(time) - 1)] != edge
    left, right = (at - is_earlier)[:-1], at[1:]
    low, high = _extremes(curve, left, right)
    changes = np.r_[True, (low[1:] != low[:-1]) | (high[1:] != high[:-1])]
    return CurveSlice(edge[:-1][changes], low[changes], high[changes], False)


def _extremes(curve: Pyramid, left: Int64, right: Int64) -> tuple[Values, Values]:
    """Lowest and highest value of each range left:right of points. No range is empty."""
    low, high = curve.value[left].copy(), curve.value[left].copy()
    level_low, level_high, above = curve.value, curve.value, 0
    while True:
        # The level above handles whole blocks; this level handles the points before and after them.
        inner, outer = -(-left // BLOCK), right // BLOCK
        whole = outer > inner
        for a, b in (
            (left, np.where(whole, inner * BLOCK, right)),
            (np.where(whole, outer * BLOCK, right), right),
        ):
            owner, index = expand(a, b)
            start = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else owner
            some = owner[start]
            low[some] = np.minimum(low[some], np.minimum.reduceat(level_low[index], start))
            high[some] = np.maximum(high[some], np.maximum.reduceat(level_high[index], start))
        if not whole.any():
            return low, high
        left, right = np.where(whole, inner, 0), np.where(whole, outer, 0)
        size = -(-len(level_low) // BLOCK)
        level_low, level_high = curve.low[above : above + size], curve.high[above : above + size]
        above += size


def pack(name: str, curves: Sequence[Pyramid]) -> dict[str, npt.NDArray[Any]]:
    """Pack curves into a few arrays that can be kept on disk."""
    parts = {
        part: np.concatenate([np.zeros(0, np.int64), *(getattr(curve, part) for curve in curves)])
        for part in Pyramid._fields
    }
    counts = np.array([[len(curve.time_ns), len(curve.low)] for curve in curves], np.int64).reshape(-1, 2)
    first = np.vstack([np.zeros((1, 2), np.int64), np.cumsum(counts, axis=0)])
    return {f"{name}_first": first, **{f"{name}_{part}": array for part, array in parts.items()}}


def unpack(arrays: Mapping[str, npt.NDArray[Any]], name: str, index: int) -> Pyramid:
    """Return one of the curves that `pack` packed, without copying."""
    # Plain views: NumPy's own class for mapped files makes each small operation slower.
    (point, block), (next_point, next_block) = arrays[f"{name}_first"][index : index + 2].tolist()
    time, value, low, high = (np.asarray(arrays[f"{name}_{part}"]) for part in Pyramid._fields)
    return Pyramid(
        time[point:next_point], value[point:next_point], low[block:next_block], high[block:next_block]
    )
