"""How long a step takes: the one definition, for whatever says it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import Float64, Int64


class StepTime(NamedTuple):
    """Median, quartiles and mean of whole steps, in their unit; zeros without steps."""

    median: float
    low: float
    high: float
    mean: float


def step_time(lengths: Int64 | Float64 | list[float]) -> StepTime:
    """Return how long a step takes, from the lengths of the steps in the step window.

    It is the median: an evaluation in one step of twenty does not change how long a step takes. The mean is
    for parts that must add up to it, such as what a fix of that evaluation gives back, and is called so.
    """
    if not len(lengths):
        return StepTime(0.0, 0.0, 0.0, 0.0)
    low, median, high = np.quantile(lengths, [0.25, 0.5, 0.75]).tolist()
    return StepTime(median, low, high, float(np.mean(lengths)))
