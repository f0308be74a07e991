"""The same kernels on all ranks: do they run as often, with the same shapes, and as fast?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_gpudiag.digest.digest import Digest, numbers, texts
from tb_gpudiag.jobs.ranks.clocks import Float64
from tb_gpudiag.trace.events import Bool, Int64

ROWS_COMPARED: Final = 60
"""Kernels of each rank, those with most time."""

# Ranks whose shapes all differ would have as many kernels as rows.
_MOST_CELLS: Final = 8_000_000


@dataclass(frozen=True)
class KernelsCompared:
    """other_shapes: share of a rank's kernel time in kernels that run with other shapes, or at another number
    of times, than on its peers; NaN if no shapes were recorded. slower: how many times as long the same
    kernels with the same shapes take as on the peers, median; NaN if there are none. Shape (members,) each.
    """

    other_shapes: Float64
    slower: Float64


def compare_kernels(members: Sequence[Digest], role: Int64) -> KernelsCompared:
    """Compare each rank's kernels with those of the ranks of the same role."""
    keys: dict[tuple[str, str, str], int] = {}
    cells: list[tuple[int, int, int, int]] = []
    for index, member in enumerate(members):
        kernels = member.kernels.slice(0, ROWS_COMPARED)
        columns = (texts(kernels, name) for name in ("family", "name", "operator", "shapes"))
        counts, times = numbers(kernels, "count").tolist(), numbers(kernels, "time_ns").tolist()
        for (family, *key), count, time in zip(zip(*columns, strict=True), counts, times, strict=True):
            if family not in ("collective", "copy", "set") and key[0]:
                number = keys.setdefault((key[0], key[1], key[2]), len(keys))
                cells.append((index, number, count, time))
    has_shapes = np.array([shapes not in ("", "[]") for _, _, shapes in keys], np.bool_)
    shape = (len(members), max(1, min(len(keys), _MOST_CELLS // max(1, len(members)))))
    count, time = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for index, number, times_run, took in cells:
        if number < shape[1]:
            count[index, number] += times_run
            time[index, number] += took
    has_shapes = has_shapes[: shape[1]] if len(keys) else np.zeros(1, np.bool_)
    other, slower = np.full(len(members), np.nan), np.full(len(members), np.nan)
    for one in np.unique(role).tolist():
        own = np.flatnonzero(role == one)
        if len(own) > 1:
            other[own], slower[own] = _compared(count[own], time[own], has_shapes)
    return KernelsCompared(other, slower)


def _compared(count: Int64, time: Int64, has_shapes: Bool) -> tuple[Float64, Float64]:
    usual = np.sort(count, axis=0)[(len(count) - 1) // 2]
    odd = (count != usual) & has_shapes
    with_shapes = np.where(has_shapes, time, 0).sum(axis=1)
    other = np.where(with_shapes > 0, np.where(odd, time, 0).sum(axis=1) / np.maximum(1, with_shapes), np.nan)
    mean = np.where(count > 0, time / np.maximum(1, count), np.nan)
    present = (count > 0).sum(axis=0) > 1
    slower = np.full(len(count), np.nan)
    if present.any():
        ratio = mean[:, present] / np.nanmedian(mean[:, present], axis=0)
        weight = np.where(np.isnan(ratio), 0, time[:, present])
        for index in np.flatnonzero(weight.sum(axis=1) > 0).tolist():
            slower[index] = _weighted_median(ratio[index], weight[index])
    return other, slower


def _weighted_median(values: Float64, weights: Int64) -> float:
    order = np.argsort(np.where(weights > 0, values, np.inf))
    reached = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(reached, reached[-1] / 2)]])
