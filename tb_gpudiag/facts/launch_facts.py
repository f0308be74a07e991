"""What the host launched in the step window, and what that cost."""

from __future__ import annotations

from functools import cached_property

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.causes import CauseSpans
from tb_gpudiag.facts.core.handover import HostTime
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.launches import Work, launched_in
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.core.queue_depth import Queue, stream_queues
from tb_gpudiag.facts.core.steady import Steady
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.launching.ddp_copies import DdpCopies, ddp_copies
from tb_gpudiag.facts.launching.driver_calls import AllocatorCalls, DriverCalls, allocator_calls
from tb_gpudiag.facts.launching.launch_costs import (
    HOTSPOT_KINDS,
    Hotspot,
    HotspotKind,
    LaunchCosts,
    hotspots,
    launch_costs,
)
from tb_gpudiag.facts.launching.launch_modes import LaunchModes, in_compiled_code, launch_modes
from tb_gpudiag.facts.launching.optimizer_loops import OptimizerLoop, optimizer_loop


class LaunchFacts:
    """Launches of all devices, and other calls of the driver."""

    def __init__(
        self,
        work: Work,
        host_time: HostTime,
        recording: Window,
        steady: Steady,
        host_window: Window,
        spans: CauseSpans,
        ledgers: list[Ledger],
    ) -> None:
        """host_window: when the host ran the steps. spans: what the main thread did then. ledgers: of all
        devices."""
        self._work, self._host, self._host_time = work, host_time.host, host_time
        self._recording, self._steady, self._host_window = recording, steady, host_window
        self._spans, self._ledgers = spans, ledgers

    @cached_property
    def calls(self) -> DriverCalls:
        """Calls of the whole recording."""
        return DriverCalls(self._work.events)

    @cached_property
    def allocator_calls(self) -> AllocatorCalls:
        """Calls that get device memory from the driver and return it."""
        return allocator_calls(self._host, self._host_window)

    @cached_property
    def queues(self) -> list[Queue]:
        """The launch queue of every stream that has one, by device and stream, in the whole recording."""
        return stream_queues(self._work, self._recording)

    @cached_property
    def in_window(self) -> Bool:
        """Mask of the work whose launch belongs to the step window, shape (g,)."""
        return launched_in(self._work, self._host_window, by_steps=len(self._steady.steps) > 0)

    @cached_property
    def modes(self) -> LaunchModes:
        """Compiled code and CUDA graphs."""
        blocking, steps = self._host_time.blocking, self._steady.steps
        return launch_modes(self._host, self._work, self.in_window, blocking, steps, self._host_window)

    def compiled(self, kernels: Kernels) -> Bool:
        """Mask of a GPU's work that compiled code launched, shape (k,)."""
        return in_compiled_code(self._host, self.modes.compiled, kernels.origin)

    @cached_property
    def costs(self) -> LaunchCosts:
        windows, spans = (self._steady.window, self._host_window), self._spans
        return launch_costs(self._work, self.in_window, self._host_time, spans, self._ledgers, *windows)

    @cached_property
    def hotspots(self) -> dict[HotspotKind, list[Hotspot]]:
        return {kind: hotspots(self.costs, self._host, kind) for kind in HOTSPOT_KINDS}

    @cached_property
    def ddp_copies(self) -> DdpCopies:
        return ddp_copies(self._host)

    @cached_property
    def optimizer_loop(self) -> OptimizerLoop:
        """The optimizer's operators."""
        return optimizer_loop(self._host, self._steady.window)
