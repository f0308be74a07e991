"""What one GPU did: its busy time, its idle ledger, its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.busy import Busy
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.device_properties import DeviceProperties
from tb_gpudiag.facts.core.handover import HostTime
from tb_gpudiag.facts.core.idle import build_ledger
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Account, Ledger, window_account
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.trace.events import Events


@dataclass(frozen=True)
class GpuTime:
    """Busy and idle time of one device over the recorded window."""

    device: int
    busy: Busy
    ledger: Ledger


class DeviceFacts:
    """One GPU that did some work in the trace, over the step window."""

    def __init__(self, time: GpuTime, properties: DeviceProperties, work: Work, window: Window) -> None:
        """work: of all devices. window: the step window, the same for all devices."""
        self.id = time.device
        self.name = properties.name
        self._multiprocessors = properties.multiprocessors
        self._work = work
        self.busy = time.busy
        self.ledger = time.ledger
        self.window = window

    @property
    def span(self) -> Window:
        """The GPU span: first GPU event's start to the last one's end."""
        return self.busy.span

    @cached_property
    def kernels(self) -> Kernels:
        """The GPU's work in the step window, by kernel family."""
        return Kernels(self.busy.events, self.busy.work, self.window, self._work, self._multiprocessors)

    @cached_property
    def unrecorded_in_graphs(self) -> Intervals:
        """Time in the step window in which a CUDA graph may have run whose kernels the trace lacks."""
        some = self.ledger.in_graph
        found = union(self.ledger.start_ns[some], self.ledger.end_ns[some])
        return clip(found, self.window.start_ns, self.window.end_ns)

    @cached_property
    def window_account(self) -> Account:
        """The step window as one slice: the verdict and every share are computed from it."""
        return window_account(self.busy, self.ledger, self.window)


def find_gpu_times(
    events: Events,
    work: Work,
    communication: Bool,
    window: Window,
    host_time: HostTime,
    in_graphs: Intervals,
) -> list[GpuTime]:
    """Find the devices with work of some duration, the busiest first.

    communication: mask of communication kernels, shape (n,). window: idle time is found in it and in the GPU
    span. in_graphs: when kernels of CUDA graphs may have run that the trace lacks."""
    found = []
    for device in np.unique(events.device[work.event]).tolist():
        own = work.event[events.device[work.event] == device]
        busy = Busy(events, own, communication)
        if busy.all.total:
            ledger = build_ledger(events, work, busy, window, host_time, in_graphs)
            found.append(GpuTime(device, busy, ledger))
    return sorted(found, key=lambda time: -time.busy.all.total)


def allocator_idle_ns(devices: Sequence[DeviceFacts]) -> dict[int, int]:
    """Return each device's idle time in the step window under calls to the driver for memory: id -> ns."""
    return {d.id: d.ledger.by_cause(d.window).get(Cause.ALLOCATOR, 0) for d in devices}
