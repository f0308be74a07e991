"""How many of the first steps are still warming up."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.trace.events import Int64

# First steps take 10 to 100 times as long where compilation, autotuning and the first allocations are in them
# (a rule of thumb of the field). Twice the median of the others is far outside the spread of steady steps,
# and far below that.
SLOW_RATIO = 2.0


def leading_slow_steps(length_ns: Int64) -> tuple[int, int]:
    """How many of the first steps are slow, and the median of the rest; at most half can be slow."""
    for slow in range(len(length_ns) // 2 + 1):
        steady_ns = int(np.median(length_ns[slow:]))
        if length_ns[slow] <= SLOW_RATIO * steady_ns:
            return (slow, steady_ns) if steady_ns > 0 else (0, 0)
    return 0, int(np.median(length_ns))
