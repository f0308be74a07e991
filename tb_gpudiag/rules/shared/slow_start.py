"""Detect slow first steps, which are still warming up."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.trace.events import Int64

# First steps that compile, autotune and allocate take 10 to 100 times as long (a rule of thumb). Twice the
# median of the other steps is far below that and far outside the spread of steady steps.
SLOW_RATIO = 2.0


def leading_slow_steps(length_ns: Int64) -> tuple[int, int]:
    """Return the number of slow first steps, at most half of all, and the median of the others in ns."""
    for slow in range(len(length_ns) // 2 + 1):
        steady_ns = int(np.median(length_ns[slow:]))
        if length_ns[slow] <= SLOW_RATIO * steady_ns:
            return (slow, steady_ns) if steady_ns > 0 else (0, 0)
    return 0, int(np.median(length_ns))
