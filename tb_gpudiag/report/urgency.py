"""The order of tables of runs: the most urgent run first."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb

# How bad the worst finding is; what the first fix saves for sure; how fast memory grows, as the fix of a leak
# saves no time; and last what the fix saves at best, as that says little.
URGENCY = ("severity", "low_saving_share", "growth_bytes_per_step", "saving_share")


def urgency(row: pb.RunRow) -> tuple[float, ...]:
    """Return what rows are sorted by: that of the most urgent run is the largest."""
    return tuple(getattr(row, name) for name in URGENCY)
