"""What lists and overviews take of Reports: findings about the job, the busiest GPU, and how urgent it is."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.rules.rule import family_of
from tb_gpudiag.wording.quantity import throughput


def without_hints(findings: Iterable[pb.Finding]) -> list[pb.Finding]:
    """Return the findings in their order, without hints about the recording: `better_recording` of a Report
    says all of these in one line."""
    return [finding for finding in findings if not _is_hint(finding)]


def _is_hint(finding: pb.Finding) -> bool:
    return family_of(finding.rule) == "recording" and finding.severity == pb.Finding.INFO


def busiest(report: pb.Report) -> pb.Device | None:
    """Return the GPU with the most work in the step window; None without one."""
    devices = [device for device in report.devices if device.window_us > 0]
    return max(devices, key=lambda device: device.window_us - device.window_idle_us, default=None)


def peak_text(found: pb.Mfu) -> str:
    """The peak that an MFU is a share of, such as `989 TFLOP/s (BF16)`."""
    return f"{throughput(found.peak_teraflops)} ({found.computes_in}{', assumed' if found.assumed else ''})"


# How bad the worst finding is; what the first fix saves for sure; how fast memory grows, as the fix of a leak
# saves no time; and last what the fix saves at best, as that says little.
URGENCY = ("severity", "low_saving_share", "growth_bytes_per_step", "saving_share")


def urgency(row: pb.RunRow) -> tuple[float, ...]:
    """Return what rows are sorted by: that of the most urgent run is the largest."""
    return tuple(getattr(row, name) for name in URGENCY)
