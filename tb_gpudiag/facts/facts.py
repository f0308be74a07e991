"""Facts: everything that rules and views may know about a trace, each computed once, on demand. No
thresholds, no prose."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tb_gpudiag.facts.core.account import Account, step_account, window_account
from tb_gpudiag.facts.core.busy import Busy, communication_kernels
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.handover import CauseSpans, HostTime
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.idle import Ledger, build_ledger
from tb_gpudiag.facts.core.launches import Work, join_launches
from tb_gpudiag.facts.core.queue_depth import Queue, stream_queues
from tb_gpudiag.facts.core.steps import Steps, Window, find_steps, step_window
from tb_gpudiag.facts.core.transfers import Transfers, find_transfers
from tb_gpudiag.facts.kernels.attention import UnfusedAttention, unfused_attention
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.facts.kernels.multiprocessors import Multiprocessor, multiprocessor
from tb_gpudiag.facts.kernels.peaks import peaks_of
from tb_gpudiag.facts.kernels.roofline import Roofline, roofline
from tb_gpudiag.facts.launching.driver_calls import DriverCalls
from tb_gpudiag.facts.launching.hotspots import Hotspot, Kind, hotspots
from tb_gpudiag.facts.launching.launch_costs import LaunchCosts, launch_costs
from tb_gpudiag.facts.launching.same_shapes import same_shapes
from tb_gpudiag.facts.memory.context import MemoryContext
from tb_gpudiag.facts.memory.device_memory import DeviceMemory, device_memory
from tb_gpudiag.facts.memory.floor import Periods
from tb_gpudiag.facts.replay.replay import Replay
from tb_gpudiag.facts.stepping.inferred import InferredSteps, infer_steps
from tb_gpudiag.facts.stepping.variance import StepTimes, completions, on_host
from tb_gpudiag.facts.waiting.host_tasks import HostTasks, find_host_tasks
from tb_gpudiag.trace.events import NONE, Bool, Category, Trace


@dataclass
class DeviceFacts:
    """One GPU that did some work in the trace."""

    id: int
    name: str  # "" where the trace does not say
    busy: Busy
    ledger: Ledger
    window: Window  # the step window, the same for all devices

    @property
    def span(self) -> Window:
        """The GPU span: first GPU event's start to the last one's end."""
        return self.busy.span

    @cached_property
    def kernels(self) -> Kernels:
        """Its GPU work in the step window, by kernel family."""
        return Kernels(self.busy.events, self.busy.work, self.window)

    @cached_property
    def window_account(self) -> Account:
        """The step window as one slice: what the verdict and every share are computed from."""
        return window_account(self.busy, self.ledger, self.window)


@dataclass(frozen=True)
class Recorded:
    """What the trace holds, and so what can be known."""

    steps: bool
    stacks: bool
    shapes: bool
    memory: bool
    flops: bool
    overhead: bool  # the GPU tracer's own work, such as allocating its buffers


class Facts:
    """Facts of one trace. `facts.devices` is ordered by busy time: `facts.device` is the one that verdicts
    speak of."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events = trace.events
        self._hotspots: dict[Kind, list[Hotspot]] = {}

    @cached_property
    def recording(self) -> Window:
        """First event's start to the last one's end, those that are neither host nor GPU activity left
        out. Of a memory snapshot, whose marks may be fewer, the memory events count as well."""
        known = self.events.category != Category.OTHER
        start_ns, end_ns = self.events.start_ns[known], self.events.end_ns[known]
        if not known.any() or self.trace.kind != "trace":
            time_ns = self.trace.memory.time_ns
            start_ns, end_ns = np.r_[start_ns, time_ns], np.r_[end_ns, time_ns]
        if not len(start_ns):
            return Window(0, 0)
        return Window(int(start_ns.min()), int(end_ns.max()))

    @cached_property
    def steps(self) -> Steps:
        return find_steps(self.events)

    @cached_property
    def work(self) -> Work:
        return join_launches(self.events)

    @cached_property
    def window(self) -> Window:
        """The step window: see steps.step_window."""
        return step_window(
            self.steps, self.recording, self.work.launch_start_ns, self.events.end_ns[self.work.event]
        )

    @cached_property
    def transfers(self) -> Transfers:
        return find_transfers(self.events, self.work)

    @cached_property
    def host(self) -> Host:
        return Host(self.events)

    @cached_property
    def main_thread(self) -> int:
        """Index of the thread that runs the steps; without steps, the one that launches most, or does most;
        NONE if none."""
        events = self.events
        host = self.host.tree.spans
        of_steps = host[(events.category[host] == Category.USER_ANNOTATION)]
        of_steps = of_steps[np.isin(events.start_ns[of_steps], self.steps.start_ns)]
        launches = self.work.launch[self.work.launch != NONE]
        for chosen in (of_steps, launches, host):
            if len(chosen):
                return int(np.bincount(events.thread[chosen]).argmax())
        return NONE

    @cached_property
    def communication(self) -> Bool:
        """Shape (n,): communication kernels."""
        return communication_kernels(self.events)

    @cached_property
    def host_time(self) -> HostTime:
        return HostTime(self.host, self.work, self.main_thread)

    @cached_property
    def host_tasks(self) -> HostTasks:
        return find_host_tasks(self.host)

    @cached_property
    def calls(self) -> DriverCalls:
        return DriverCalls(self.host, self.work, self.host_time.blocking)

    @cached_property
    def same_shapes(self) -> bool | None:
        """Whether every step launches the same on the same shapes; None where the trace does not tell."""
        return same_shapes(self.host, self.work, self.steps)

    @cached_property
    def queues(self) -> list[Queue]:
        """The launch queue of every stream that has one, by device and stream."""
        return stream_queues(self.events, self.work, self.recording)

    @cached_property
    def devices(self) -> list[DeviceFacts]:
        """Every device with work of some duration, the busiest first."""
        events, work = self.events, self.work
        found = []
        for device in np.unique(events.device[work.event]):
            own = work.event[events.device[work.event] == device]
            busy = Busy(events, own, self.communication)
            if not busy.all.total:
                continue
            ledger = build_ledger(events, work, busy, self.window, self.host_time)
            found.append(DeviceFacts(int(device), self._device_name(int(device)), busy, ledger, self.window))
        return sorted(found, key=lambda d: -d.busy.all.total)

    @property
    def device(self) -> DeviceFacts | None:
        """The busiest device; None when no GPU work was recorded."""
        return self.devices[0] if self.devices else None

    def account(self, device: DeviceFacts) -> Account:
        """The device's time step by step."""
        return step_account(device.busy, device.ledger, self.steps, self.window)

    @cached_property
    def inferred_steps(self) -> InferredSteps | None:
        """The repetition of the busiest device's launches where no steps were recorded; None where there are
        steps, or no clear repetition."""
        device = self.device
        if device is None or len(self.steps):
            return None
        return infer_steps(
            self.events, self.work, self.transfers, self.host, device.busy, device.ledger, self.window
        )

    @cached_property
    def step_times(self) -> StepTimes | None:
        """The recorded steps, else the inferred ones, to be compared with one another; None without
        either."""
        device, steps, inferred = self.device, self.steps, self.inferred_steps
        if not len(steps):
            if device is None or inferred is None or not inferred.are_steps:
                return None
            names, start, end = inferred.account.names, inferred.start_ns, inferred.end_ns
        else:
            order = np.argsort(steps.start_ns, kind="stable")
            names, start = [steps.names[i] for i in order], steps.start_ns[order]
            end = np.r_[start[1:], steps.end_ns[order][-1:]]
        if device is None:
            return on_host(names, start, end, self.main_thread_spans)
        return completions(names, start, end, self.events, self.work, device.busy, device.ledger)

    @cached_property
    def launch_costs(self) -> LaunchCosts:
        """Of all devices' launches in the step window."""
        ledgers, full = [device.ledger for device in self.devices], self.host_time.full_queue
        return launch_costs(
            self.work, self.host, self.main_thread_spans, self.main_thread, ledgers, full, self.window
        )

    def hotspots(self, kind: Kind) -> list[Hotspot]:
        """Launch hotspots over the step window and all devices."""
        if kind not in self._hotspots:
            self._hotspots[kind] = hotspots(self.launch_costs, self.host, kind)
        return self._hotspots[kind]

    @cached_property
    def replay(self) -> Replay:
        blocking, full = self.host_time.blocking, self.host_time.full_queue.call
        return Replay(self.events, self.work, blocking, full, self.steps, self.window)

    @cached_property
    def main_thread_spans(self) -> CauseSpans:
        """The step window as the main thread lived it: pieces that cover it exactly (columns as in
        idle.Ledger)."""
        # The marks of a memory snapshot tell when a step was, and nothing of what a thread did.
        if self.main_thread == NONE or not self.window.duration_ns or self.trace.kind != "trace":
            return CauseSpans.join([])
        start, end = np.array([self.window.start_ns]), np.array([self.window.end_ns])
        pieces = self.host_time.explain(
            start, end, np.array([self.main_thread], np.int32), np.zeros(1, np.int64)
        )
        return pieces.take(np.argsort(pieces.start_ns, kind="stable"))

    def _device_name(self, device: int) -> str:
        return str(self._properties(device).get("name") or "")

    def _properties(self, device: int) -> dict[str, Any]:
        for properties in self.trace.metadata.device_properties:
            if isinstance(properties, dict) and properties.get("id") == device:
                return properties
        return {}

    def compute_capability(self, device: int) -> tuple[int, int] | None:
        """Of one of NVIDIA's GPUs, e.g. (8, 0); None of others, and where the trace does not say. AMD's are
        told by their names and their wavefronts of 64."""
        properties = self._properties(device)
        capability = properties.get("computeMajor"), properties.get("computeMinor")
        name = self._device_name(device)
        if properties.get("warpSize") == 64 or name.startswith(("AMD", "Radeon")):
            return None
        return capability if all(type(part) is int for part in capability) else None  # type: ignore[return-value]

    def multiprocessor(self, device: int) -> Multiprocessor | None:
        """What one of the device's multiprocessors has; None where the trace does not say."""
        return multiprocessor(self._properties(device), self.compute_capability(device))

    @cached_property
    def roofline(self) -> Roofline | None:
        """The busiest device's matrix products; None without one, or where its peaks are not known."""
        peaks = peaks_of(self.device.name) if self.device is not None else None
        if self.device is None or peaks is None:
            return None
        return roofline(self.device.kernels, self.work, self.host, peaks)

    @cached_property
    def unfused_attention(self) -> UnfusedAttention | None:
        """On the busiest device; None without one."""
        return (
            unfused_attention(self.device.kernels, self.work, self.host) if self.device is not None else None
        )

    @cached_property
    def memory(self) -> list[DeviceMemory]:
        """Each device's, the GPU with the highest peak first, the CPU last."""
        driver = {d.id: d.ledger.by_cause(self.window).get(Cause.ALLOCATOR, 0) for d in self.devices}
        return device_memory(self.trace, self.host, self.memory_context, self._memory_steps, driver)

    @cached_property
    def memory_context(self) -> MemoryContext:
        return MemoryContext(self.trace.memory, self.host, self.transfers)

    @property
    def _memory_steps(self) -> Periods | None:
        """The steps as the host ran them, recorded or inferred; None without either."""
        steps = self.step_times
        if steps is None:
            return None
        return Periods(steps.times.names, steps.host_start_ns, steps.host_end_ns, "step")

    @cached_property
    def recorded(self) -> Recorded:
        events, metadata = self.events, self.trace.metadata
        stacks = (
            bool((events.category == Category.PYTHON_FUNCTION).any())
            or bool((events.call_stack != NONE).any())
            or bool(self.trace.memory.stacks)
        )
        return Recorded(
            steps=len(self.steps) > 0,
            stacks=stacks,
            shapes=metadata.record_shapes,
            memory=len(self.trace.memory) > 0,
            flops=metadata.with_flops,
            overhead=bool((events.category == Category.OVERHEAD).any()),
        )
