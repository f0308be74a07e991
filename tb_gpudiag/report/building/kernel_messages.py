"""GPU time by kernel family."""

from __future__ import annotations

from collections.abc import Iterable

from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import time_ranges, us


def family_messages(devices: Iterable[DeviceFacts], window: Window) -> list[pb.KernelFamily]:
    """Kernel families of each device over the step window, most time first."""
    return [
        pb.KernelFamily(
            device=device.id,
            family=family.family.label,
            us=us(family.time_ns),
            share=family.covered_ns / window.duration_ns,
            kernels=family.kernels,
            tensor_core_us=us(family.tensor_core_ns),
            ranges=time_ranges(family.ranges),
        )
        for device in devices
        for family in device.kernels.by_family()
    ]
