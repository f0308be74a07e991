"""Shares that decide a verdict, on one trace or on a job."""

from __future__ import annotations

from tb_gpudiag.vocabulary import levels

# A GPU that computes this much of the time is limited by computing: everything else together is worth a
# quarter of the step at most.
COMPUTE_SHARE = levels.MOST

# So is one that computes three times as long as the largest other part takes: without that part, it would
# compute for three quarters of the time at least.
COMPUTE_LEAD = 3.0

# The limiter must stand out. If the second part is nearly as large, fixing one only uncovers the other.
CLEAR_LEAD = 1.5

# A smaller part is not worth calling a limiter: removing it would hardly be noticed.
LEAST_SHARE = levels.SIZEABLE


def computing_limits(computing_ns: float, most_ns: float, whole_ns: float) -> bool:
    """Whether computing limits a job. most_ns: its largest other part."""
    return computing_ns >= COMPUTE_SHARE * whole_ns or (
        computing_ns >= COMPUTE_LEAD * most_ns and 2 * computing_ns >= whole_ns
    )
