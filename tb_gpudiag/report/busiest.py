"""The GPU that figures of a whole trace are about."""

from __future__ import annotations

from tb_gpudiag.report import report_pb2 as pb


def busiest(report: pb.Report) -> pb.Device | None:
    """Return the GPU with the most work in the step window; None without one."""
    devices = [device for device in report.devices if device.window_us > 0]
    return max(devices, key=lambda device: device.window_us - device.window_idle_us, default=None)
