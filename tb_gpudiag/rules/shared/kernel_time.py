"""Kernels as time in the step window and as places in the user's code, for the rules about kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, Window, subtract
from tb_gpudiag.facts.device_facts import DeviceFacts
from tb_gpudiag.facts.kernels.concurrency import exposed
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.peaks import Peaks
from tb_gpudiag.rules.rule import Claimed, Evidence, Place, Range
from tb_gpudiag.rules.shared.evidence import window_time
from tb_gpudiag.rules.shared.lost_time import longest, places
from tb_gpudiag.wording.format import share
from tb_gpudiag.wording.quantity import throughput


@dataclass(frozen=True)
class KernelTime:
    """The busiest device's GPU work in the step window."""

    device: DeviceFacts
    kernels: Kernels
    window: Window
    host: Host

    @property
    def window_ns(self) -> int:
        return self.window.duration_ns

    @property
    def busy_ns(self) -> int:
        """Time in which anything ran."""
        return self.total_ns(np.ones(len(self.kernels.event), np.bool_))

    def total_ns(self, chosen: Bool) -> int:
        """Time in which at least one of the chosen kernels ran."""
        return self.kernels.union(chosen).total

    def free(self, chosen: Bool, claimed: Claimed) -> Intervals:
        """Time in which at least one of the chosen kernels ran and another stream's kernels did not hide it,
        less what earlier findings claimed."""
        return subtract(exposed(self.kernels, chosen), claimed.get(self.device.id, EMPTY))

    def mostly(self, chosen: Bool, kind: Bool) -> bool:
        """Whether at least half of the chosen kernels' time is of this kind."""
        time_ns = self.kernels.duration_ns
        own_ns = int(time_ns[chosen & kind].sum())
        return own_ns > 0 and 2 * own_ns >= int(time_ns[chosen].sum())

    def share(self, nanoseconds: float) -> float:
        """Share of the step window, 0 to 1; 0 if the window is empty."""
        return nanoseconds / self.window_ns if self.window_ns else 0.0

    def of_window(self, nanoseconds: float) -> str:
        """Share of the step window as text, such as `4.5%`."""
        return share(nanoseconds, self.window_ns)

    def evidence(self, label: str, nanoseconds: int) -> Evidence:
        """A duration with its share of the step window."""
        return window_time(label, nanoseconds, self.window_ns)

    def places(self, chosen: Bool, weight_ns: Int64 | None = None) -> list[Place]:
        """Where the chosen kernels were launched, heaviest place first.

        weight_ns: what counts for each of all kernels; their durations by default.
        """
        weight = self.kernels.duration_ns if weight_ns is None else weight_ns
        return places(self.host, self.kernels.origin[chosen], weight[chosen], by_operator=True)

    def ranges(self, chosen: Bool) -> list[Range]:
        """The longest stretches of the chosen kernels on the timeline."""
        return longest(self.kernels.union(chosen), self.device.id)


def kernel_time(device: DeviceFacts | None, window: Window, host: Host) -> KernelTime | None:
    """The device's kernels over the step window; None without a device."""
    return None if device is None else KernelTime(device, device.kernels, window, host)


def stated_peaks(peaks: Peaks) -> list[Evidence]:
    """The dense matmul rates that the GPU's maker states."""
    rates = [
        ("Stated FP32 peak", peaks.fp32),
        ("Stated TF32 peak", peaks.tf32),
        ("Stated 16-bit peak", peaks.half),
    ]
    return [
        *([Evidence("Peaks assumed of", peaks.assumed)] if peaks.assumed else []),
        *(Evidence(label, throughput(rate)) for label, rate in rates if rate),
    ]
