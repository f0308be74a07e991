"""Kernels that run at the same time: how much of the GPU they leave unused together, and which are hidden."""

from __future__ import annotations

from typing import Any

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.intervals import Intervals, distinct, subtract, union
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.vocabulary.kernel_families import Family

Float64 = np.ndarray[Any, np.dtype[np.float64]]

# A stream with less computing than this share of the largest one's fits under the rest of it, so it hides
# nothing.
LARGE_STREAM = 0.5


def unused_ns(kernels: Kernels, small: Bool) -> Int64:
    """Return the whole-GPU time that small kernels leave unused, shape (k,); 0 for other kernels.

    A kernel uses a multiprocessor for each of its blocks, up to all of them. Kernels that run at the same
    time add up, and where they fill the GPU, nothing is unused. What several small kernels leave unused
    together is divided equally among them. Communication kernels, copies and memsets use none.
    """
    computing = _computing(kernels)
    used = np.where(computing, np.nan_to_num(np.minimum(kernels.blocks_per_sm, 1), nan=1.0), 0.0)
    times, segments = _segments(kernels)
    filled = _running(used, len(times), segments)
    number = _running(small.astype(np.float64), len(times), segments)
    each = np.where(number > 0.5, np.maximum(1 - filled, 0) / np.maximum(number, 1), 0) * np.diff(
        times, append=0
    )
    before = np.r_[0.0, np.cumsum(each)]
    first, last = segments
    return np.where(small, np.rint(before[last] - before[first]), 0).astype(np.int64)


def alone(kernels: Kernels) -> Intervals:
    """Return when exactly one kernel computes. Communication kernels, copies and memsets do not count."""
    computing = _computing(kernels)
    times, segments = _segments(kernels)
    number = _running(computing.astype(np.float64), len(times), segments)
    one = np.flatnonzero(np.rint(number) == 1)
    return union(times[one], times[np.minimum(one + 1, len(times) - 1)])


def exposed(kernels: Kernels, chosen: Bool) -> Intervals:
    """Return when at least one of the chosen runs and is not hidden.

    The streams with the most computing determine how long a step takes. What runs under their other kernels
    costs nothing.
    """
    computing = _computing(kernels)
    _, of_stream = np.unique(kernels.stream, return_inverse=True)
    time_ns = np.bincount(of_stream, weights=np.where(computing, kernels.duration_ns, 0))
    large = time_ns >= LARGE_STREAM * time_ns.max(initial=0)
    return subtract(kernels.union(chosen), kernels.union(large[of_stream] & computing & ~chosen))


def _computing(kernels: Kernels) -> Bool:
    """Mask of the kernels that are not communication."""
    found: Bool = kernels.is_kernel & (kernels.family != Family.COLLECTIVE)
    return found


def _segments(kernels: Kernels) -> tuple[Int64, tuple[Int64, Int64]]:
    """Return the times at which a kernel starts or ends, and the places of each kernel's start and end."""
    times = distinct(np.concatenate([kernels.start_ns, kernels.end_ns]))
    return times, (np.searchsorted(times, kernels.start_ns), np.searchsorted(times, kernels.end_ns))


def _running(weight: Float64, number: int, segments: tuple[Int64, Int64]) -> Float64:
    """Sum of the weights of the kernels that run from each of the times to the next one."""
    first, last = segments
    change = np.bincount(first, weights=weight, minlength=number)
    change -= np.bincount(last, weights=weight, minlength=number)
    return np.asarray(np.cumsum(change), np.float64)
