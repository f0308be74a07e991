"""What one GPU did: its busy time, its idle ledger, its kernels."""

from __future__ import annotations

from functools import cached_property

from tb_gpudiag.facts.core.device_properties import DeviceProperties
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import GpuTime, TimeAccount
from tb_gpudiag.facts.kernels.kernels import Kernels


class DeviceFacts:
    """One GPU that did some work in the trace, over the step window."""

    def __init__(self, time: GpuTime, properties: DeviceProperties, work: Work, window: Window) -> None:
        """work: of all devices. window: the step window, the same for all devices."""
        self.time = time
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
        return Kernels(self.busy.work, self.window, self._work, self._multiprocessors)

    @cached_property
    def lost(self) -> Intervals:
        """Idle time in the step window in which work may have run that the trace has only the launch of."""
        some = self.ledger.lost
        found = union(self.ledger.start_ns[some], self.ledger.end_ns[some])
        return clip(found, self.window.start_ns, self.window.end_ns)

    @cached_property
    def window_account(self) -> TimeAccount:
        """The step window as one slice: the verdict and every share are computed from it."""
        return self.time.of_window(self.window)
