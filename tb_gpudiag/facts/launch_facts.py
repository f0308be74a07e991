"""What the host launched in the step window, and what that cost."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tb_gpudiag.arrays import Bool
from tb_gpudiag.facts.core.launches import launched_in
from tb_gpudiag.facts.core.queue_depth import Queue, stream_queues
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
from tb_gpudiag.facts.launching.launch_modes import LaunchModes, launch_modes
from tb_gpudiag.facts.launching.optimizer_loops import OptimizerLoop, optimizer_loop

if TYPE_CHECKING:
    from tb_gpudiag.facts.facts import Facts


class LaunchFacts:
    """Launches of all devices, and other calls of the driver."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    @cached_property
    def calls(self) -> DriverCalls:
        """Calls of the whole recording."""
        return DriverCalls(self._facts.events)

    @cached_property
    def allocator_calls(self) -> AllocatorCalls:
        """Calls that get device memory from the driver and return it."""
        return allocator_calls(self._facts.host, self._facts.host_window)

    @cached_property
    def queues(self) -> list[Queue]:
        """The launch queue of every stream that has one, by device and stream, in the whole recording."""
        return stream_queues(self._facts.work, self._facts.recording)

    @cached_property
    def in_window(self) -> Bool:
        """Mask of the work whose launch belongs to the step window, shape (g,)."""
        facts = self._facts
        return launched_in(facts.work, facts.host_window, by_steps=len(facts.steps) > 0)

    @cached_property
    def modes(self) -> LaunchModes:
        """Compiled code and CUDA graphs."""
        facts = self._facts
        blocking = facts.host_time.blocking
        return launch_modes(facts.host, facts.work, self.in_window, blocking, facts.steps, facts.host_window)

    @cached_property
    def costs(self) -> LaunchCosts:
        """Launch costs."""
        facts = self._facts
        ledgers = [device.ledger for device in facts.devices]
        windows = facts.window, facts.host_window
        spans = facts.main_thread_spans
        return launch_costs(facts.work, self.in_window, facts.host_time, spans, ledgers, *windows)

    @cached_property
    def hotspots(self) -> dict[HotspotKind, list[Hotspot]]:
        return {kind: hotspots(self.costs, self._facts.host, kind) for kind in HOTSPOT_KINDS}

    @cached_property
    def ddp_copies(self) -> DdpCopies:
        return ddp_copies(self._facts.host)

    @cached_property
    def optimizer_loop(self) -> OptimizerLoop:
        """The optimizer's operators."""
        return optimizer_loop(self._facts.host, self._facts.window)
