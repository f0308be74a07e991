"""The row of a record in an event file, in the table of runs."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.busiest import busiest


def record_row(report: pb.Report) -> pb.RunRow:
    """Return the row of a recording in the table of runs."""
    low, middle, high = _quartiles(report)
    first = report.findings[0] if report.findings else pb.Finding()
    return pb.RunRow(
        run=report.trace.run,
        kind="record",
        worker=report.trace.worker,
        ranks=1,
        recordings=1,
        step_us=middle,
        low_step_us=low,
        high_step_us=high,
        busy_share=report.verdict.busy_share,
        account=_account(report),
        limiter=report.verdict.limiter,
        sentence=report.verdict.sentence,
        first_rule=first.rule,
        first_title=first.title,
        saving_share=first.saving.high_share,
        memory_share=max(
            (m.peak_reserved_bytes / m.capacity_bytes for m in report.memory if m.capacity_bytes > 0),
            default=0.0,
        ),
        severity=first.severity,
    )


def _account(report: pb.Report) -> list[pb.CauseTime]:
    """Return the parts of the busiest GPU's step window; none without a GPU."""
    device = busiest(report)
    if device is None:
        return []
    work = {
        "computing": device.window_computing_us,
        "copying": device.window_copying_us,
        "communicating": device.window_communicating_us,
    }
    parts = [pb.CauseTime(cause=part, us=us) for part, us in work.items() if us]
    return [*parts, *device.window_idle_by_cause]


def _quartiles(report: pb.Report) -> tuple[float, float, float]:
    if not report.steps:
        return 0.0, 0.0, 0.0
    low, middle, high = np.quantile([step.duration_us for step in report.steps], [0.25, 0.5, 0.75]).tolist()
    return low, middle, high
