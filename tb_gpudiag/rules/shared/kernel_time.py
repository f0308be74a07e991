"""What the rules about kernels share: kernels as time in the step window, and as places in the user's
code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, subtract
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.steps import Window
from tb_gpudiag.facts.facts import DeviceFacts
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.rules.rule import Claimed, Place, Range
from tb_gpudiag.rules.shared.lost_time import longest, places
from tb_gpudiag.trace.events import Bool, Int64
from tb_gpudiag.wording.format import share, time_ns


@dataclass(frozen=True)
class KernelTime:
    """The busiest device's GPU work in the step window."""

    device: DeviceFacts
    kernels: Kernels
    window: Window
    work: Work
    host: Host

    @property
    def window_ns(self) -> int:
        return self.window.duration_ns

    @property
    def busy_ns(self) -> int:
        """In which anything ran."""
        return self.total_ns(np.ones(len(self.kernels.event), np.bool_))

    def total_ns(self, chosen: Bool) -> int:
        """In which at least one of the chosen ran."""
        return self.kernels.union(chosen).total

    def free(self, chosen: Bool, claimed: Claimed) -> Intervals:
        """When at least one of the chosen ran, less what other findings are made of already."""
        return subtract(self.kernels.union(chosen), claimed.get(self.device.id, EMPTY))

    def share(self, nanoseconds: float) -> float:
        """Of the step window; 0 of an empty one."""
        return nanoseconds / self.window_ns if self.window_ns else 0.0

    def of_window(self, nanoseconds: float) -> str:
        return share(nanoseconds, self.window_ns)

    def figure(self, chosen: Bool) -> str:
        """`12.3 ms, 4.5 % of the step window`."""
        nanoseconds = self.total_ns(chosen)
        return f"{time_ns(nanoseconds)}, {self.of_window(nanoseconds)} of the step window"

    def places(self, chosen: Bool, weight_ns: Int64 | None = None) -> list[Place]:
        """Where the chosen were launched, the weightiest first; weight_ns: shape of chosen, their durations
        unless given."""
        weight = self.kernels.duration_ns if weight_ns is None else weight_ns
        launches = self.kernels.launches(self.work)
        return places(self.host, launches[chosen], weight[chosen], by_operator=True)

    def ranges(self, chosen: Bool) -> list[Range]:
        return longest(self.kernels.union(chosen), self.device.id)


def kernel_time(device: DeviceFacts | None, window: Window, work: Work, host: Host) -> KernelTime | None:
    """The device's kernels over the step window; None without a device."""
    return None if device is None else KernelTime(device, device.kernels, window, work, host)
