"""What takes longer in some steps than in the others."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import Int64
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.stepping.variance import MeasuredSteps
from tb_gpudiag.wording.vocabulary import CAUSES

COMPUTING = "computing"
_WORK = (COMPUTING, "communicating, exposed", "copying, exposed")


def what_grew(steps: MeasuredSteps, slow: Int64, others: Int64) -> list[tuple[str, int, Cause | None]]:
    """Parts of the steps that grew, most first: (name, extra ns in all slow steps, its cause if it is idle
    time). slow, others: numbers of steps."""
    times = steps.times
    work = zip(_WORK, (times.computing_ns, times.communicating_ns, times.copying_ns), strict=True)
    parts: list[tuple[str, Int64, Cause | None]] = [(label, ns, None) for label, ns in work]
    parts += [(CAUSES[cause.label].noun, times.idle_ns[:, cause], cause) for cause in Cause]
    more = [
        (label, int(ns[slow].sum() - len(slow) * np.median(ns[others])), cause) for label, ns, cause in parts
    ]
    return sorted((part for part in more if part[1] > 0), key=lambda part: -part[1])
