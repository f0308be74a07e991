"""Memory by device: the curve, its floors, its peak, growing allocation sites, the allocator's reserve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.device_properties import device_properties
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.core.threads import innermost
from tb_gpudiag.facts.core.transfers import Transfers
from tb_gpudiag.facts.memory.allocations import MemoryContext
from tb_gpudiag.facts.memory.curve import Curve, memory_curve
from tb_gpudiag.facts.memory.find_phases import phases
from tb_gpudiag.facts.memory.fitting import Fit, find_fit
from tb_gpudiag.facts.memory.floor import NO_PERIODS, Floors, Periods, Trend, floors, trend, windows
from tb_gpudiag.facts.memory.memory_kinds import Allocations
from tb_gpudiag.facts.memory.noted_history import is_long, last_rate, steady_rate
from tb_gpudiag.facts.memory.noted_tensors import (
    NO_HOLDER,
    NOTHING_NOTED,
    NotedHolder,
    NotedTensors,
    noted_growths,
    noted_tensors,
)
from tb_gpudiag.facts.memory.peak import Failure, Peak, find_failure, find_peak
from tb_gpudiag.facts.memory.phase import Phase
from tb_gpudiag.facts.memory.repeats import inferred_steps
from tb_gpudiag.facts.memory.reserve import Reserve, find_reserve
from tb_gpudiag.facts.memory.sites import (
    GrowingSite,
    Survivors,
    growing_sites,
    largest_survivors,
    sites_of_sizes,
)
from tb_gpudiag.facts.memory.unfinished import bytes_to_come
from tb_gpudiag.facts.memory.ways import Way, find_ways, fits_without
from tb_gpudiag.trace.events import MemoryEvents, Trace
from tb_gpudiag.vocabulary.recorded import Category, DeviceType
from tb_gpudiag.vocabulary.torch_frames import OPTIMIZER_MADE

MOST_GPUS = 64
"""A node has up to 16."""


@dataclass
class DeviceMemory:
    """One device's memory. Its parts are computed when they are first used.

    device: as recorded. -1 is the CPU, whose totals count only what was allocated while a profiler ran.
    capacity_bytes: 0 where the trace does not say.
    driver_ns: see Reserve.
    """

    device: int
    capacity_bytes: int
    driver_ns: int
    allocations: Allocations
    _trace: Trace
    _periods: Periods | None  # steps; None where there are none

    @property
    def curve(self) -> Curve:
        return self.allocations.curve

    @property
    def is_cpu(self) -> bool:
        return self.device == NONE

    @property
    def is_of_snapshot(self) -> bool:
        """Whether it is the history of a GPU's allocator, not a trace."""
        return self._trace.kind == "snapshot"

    @property
    def has_modules(self) -> bool:
        """Whether the recording shows which modules allocated."""
        events = self._trace.events
        frames = (events.category == Category.PYTHON_FUNCTION).any() or (events.call_stack != NONE).any()
        return bool(self._trace.memory.stacks) or bool(frames)

    @property
    def is_rocm(self) -> bool:
        return int(self._trace.memory.device_type[self.curve.event[0]]) == DeviceType.HIP

    @property
    def name(self) -> str:
        return "CPU" if self.is_cpu else f"GPU {self.device}"

    @property
    def peak_allocated_bytes(self) -> int:
        return self.peak.allocated_bytes

    @property
    def peak_reserved_bytes(self) -> int:
        """0 where the trace does not say."""
        return max(0, int(self.curve.reserved.max()))

    @property
    def end_bytes(self) -> int:
        return int(self.curve.allocated[-1])

    @property
    def knows_room(self) -> bool:
        """Whether it is known how much is free: the capacity, and what was allocated before recording."""
        return self.capacity_bytes > 0 and not self.curve.relative

    @cached_property
    def peak(self) -> Peak:
        return find_peak(self.allocations)

    @cached_property
    def failure(self) -> Failure | None:
        """The last allocation that failed."""
        return find_failure(self.allocations, self._trace.segments)

    @cached_property
    def to_come_bytes(self) -> int:
        """What the forward pass that failed would have kept in addition, as far as that is known."""
        known = len(self.allocations.failures) > 0 and self.allocations.paired
        return bytes_to_come(self.allocations) if known else 0

    @cached_property
    def ways(self) -> list[Way]:
        """How the request might have fit, replayed; empty where that cannot be told."""
        fit = self._fit_of_capacity
        if fit is None or not len(self.allocations.failures):
            return []
        return find_ways(self.allocations, fit.start, fit.changes, self.capacity_bytes)

    def fits_without(self, gone: Int64) -> bool | None:
        """Whether the request that failed fits without these allocations (indices), replayed; None where that
        cannot be told."""
        fit = self._fit_of_capacity
        return fits_without(fit.start, fit.changes, self.capacity_bytes, gone) if fit is not None else None

    @property
    def expandable_room(self) -> float | None:
        """Share of the capacity that what was allocated, the request and the rest of its pass leave in
        expandable segments, replayed; below 0 where they do not fit, None where that cannot be told."""
        fit = self._fit_of_capacity
        if fit is None:
            return None
        return 1 - (fit.expandable_needs_bytes + self.to_come_bytes) / self.capacity_bytes

    @cached_property
    def fit(self) -> Fit | None:
        """How much memory the allocations need, replayed; None where they cannot be."""
        segments = self._trace.segments
        if segments is None or self.is_cpu or not self.allocations.paired:
            return None
        return find_fit(self.allocations, segments, self.device)

    @property
    def _fit_of_capacity(self) -> Fit | None:
        """The same where the recording says how much there is."""
        return self.fit if self.capacity_bytes else None

    @cached_property
    def floors(self) -> Floors:
        """Floors of steps (recorded or inferred), or of windows of time if there are no steps; empty without
        either."""
        begin_ns = self._history_begins_ns
        if self._periods is not None:
            return floors(self.curve, self._periods.after(begin_ns))
        steps = inferred_steps(self.allocations, begin_ns, has_modules=self.has_modules)
        if len(steps):
            return floors(self.curve, steps)
        # A snapshot without times (torch 2.0) counts its entries instead: they are not seconds.
        timed = not self.is_of_snapshot or self._trace.start_ns > 0
        return floors(self.curve, windows(self.curve, begin_ns) if timed else NO_PERIODS)

    @property
    def _history_begins_ns(self) -> int:
        """When a snapshot's history begins. It may begin after the first marks: steps before it are not in
        it."""
        found = self._trace.memory.found
        if found is None:
            return 0
        seen = self.curve.time_ns[~found[self.curve.event]]
        return int(seen[0]) if len(seen) else np.iinfo(np.int64).max

    @cached_property
    def trend(self) -> Trend | None:
        """None with fewer than three steps."""
        return trend(self.floors)

    @property
    def ran_out(self) -> bool:
        """Whether an allocation failed, and the job allocated nothing after that."""
        failed, made = self.reserve.out_of_memory_ns, self.allocations.time_ns
        return bool(len(failed)) and not (len(made) and made[-1] > failed[-1])

    @cached_property
    def optimizers_made(self) -> Int64:
        """Periods in which an optimizer was made, in order; -1 before them. Only frames show that."""
        events = self.allocations.host.events
        made_ns = events.start_ns[match(events, OPTIMIZER_MADE)]
        return np.unique(np.searchsorted(self.floors.periods.start_ns, made_ns, side="right") - 1)

    @cached_property
    def misses_old_frees(self) -> bool:
        """Whether frees of memory from before the recording may have happened without being recorded.

        torch's CPU profiler drops them. A GPU's allocator reports them, and so does its history: one without
        any frees was recorded without them. Where the recording shows the job's beginning, there is no older
        memory.
        """
        recorded_by_allocator = not self.is_cpu and not self.is_of_snapshot
        if recorded_by_allocator or not self.allocations.paired:
            return False
        if not self.is_cpu and len(self.allocations.free):
            return False
        return not self.begins_with_job

    @cached_property
    def begins_with_job(self) -> bool:
        """Whether a GPU's recording begins with empty memory, or the first step or what comes before it, and
        nothing later, makes an optimizer, builds modules that stay or allocates optimizer state."""
        phase, periods = self.allocations.phase, self.floors.periods
        if not self.is_cpu and not self.curve.start_bytes and not self.allocations.found.any():
            return True
        built = (phase == Phase.PARAMETER) & ~self.allocations.found
        state = (phase == Phase.OPTIMIZER) & (self.allocations.freed == NONE)
        step = np.searchsorted(periods.start_ns, self.allocations.time_ns, side="right") - 1
        first = bool(state.any()) and len(periods) > 1 and bool((step[state] == 0).all())
        made = self.optimizers_made
        first |= bool(len(made)) and bool((made <= 0).all())
        # A step may build modules for itself: a job builds what stays before its loop, or in the first step.
        stays = built & (self.allocations.freed == NONE)
        return first or any(one.any() and bool((step[one] <= 0).all()) for one in (built, stays))

    @cached_property
    def sites(self) -> list[GrowingSite]:
        found = growing_sites(self.allocations, self.floors)
        return self._with_notes(found)

    def _with_notes(self, found: list[GrowingSite]) -> list[GrowingSite]:
        if not self.is_noted:
            return found
        growths = noted_growths(self._noted, [(site.sizes, site.stack) for site in found])
        return [replace(site, noted=growth) for site, growth in zip(found, growths, strict=True)]

    @cached_property
    def steady_per_step(self) -> float:
        """Bytes per step by which memory was noted to grow since the job began; 0 if that is not known."""
        return steady_rate(self._noted.history)

    @property
    def has_history(self) -> bool:
        """Whether it was noted what Python's tensors held at enough earlier steps of the job."""
        return is_long(self._noted.history)

    @property
    def recorded_per_step(self) -> float:
        """Bytes per step by which Python's tensors were noted to grow in the recording; 0 if unknown."""
        return last_rate(self._noted.history)

    @cached_property
    def others_per_step(self) -> float:
        """Bytes per step by which the process grew beside Python's tensors until the recording began; 0 if
        that is not known."""
        return steady_rate(self._noted.others)

    @cached_property
    def steady_sites(self) -> list[GrowingSite]:
        """Sites that made what was noted to stay, however noisy floors are; empty without steady growth."""
        if not self.steady_per_step:
            return []
        sizes, rate = self._noted.became_more, self.steady_per_step
        return self._with_notes(sites_of_sizes(self.allocations, self.floors, sizes, rate))

    @property
    def is_noted(self) -> bool:
        return self._noted is not NOTHING_NOTED

    @cached_property
    def graph_grows(self) -> bool | None:
        """As in NotedTensors, of tensors on any device; None where nothing was noted."""
        return noted_tensors(self._trace.metadata.tensors).graph_grows

    @cached_property
    def nodes_per_step(self) -> float:
        """By how many nodes per step graphs were noted to grow since the job began; 0 if unknown."""
        return steady_rate(self._noted.nodes) if self.graph_grows else 0.0

    @property
    def noted_holder(self) -> NotedHolder:
        """What holds a graph that grows, or else the largest tensors that became more, as far as known."""
        holders = map(self._noted.holders.get, sorted(self._noted.became_more, reverse=True))
        return next(filter(None, chain(self._noted.roots.values(), holders)), NO_HOLDER)

    @cached_property
    def _noted(self) -> NotedTensors:
        return noted_tensors(self._trace.metadata.tensors) if self.is_cpu else NOTHING_NOTED

    @property
    def survivors(self) -> Survivors | None:
        """The site that keeps most of what it allocates throughout the recording."""
        return largest_survivors(self.allocations)

    @cached_property
    def reserve(self) -> Reserve:
        excused = self.floors.periods.end_ns[self.floors.excused]
        warm = int(excused.max()) if len(excused) and self.floors.periods.unit == "step" else None
        return find_reserve(self.allocations, self._trace.segments, self.device, warm, self.driver_ns)


def memory_context(memory: MemoryEvents, host: Host, transfers: Transfers) -> MemoryContext:
    """Find what the host did at each memory event."""
    # A snapshot says neither which thread set a mark nor which one allocated.
    sole = next(iter(host.activities)) if len(host.activities) == 1 else NONE
    thread = np.where(memory.thread == NONE, np.int32(sole), memory.thread)
    around = innermost(host.activities, thread, memory.time_ns)
    return MemoryContext(memory, host, around, phases(memory, host, transfers, around))


def device_memory(
    trace: Trace, context: MemoryContext, steps: Steps, driver_ns: Mapping[int, int]
) -> list[DeviceMemory]:
    """Return every device with allocations or frees: GPUs by peak (the MOST_GPUS with most events, if there
    are more), then the CPU.

    steps: as the host ran them, recorded or inferred.
    driver_ns: device -> idle time under calls to the driver for memory.
    """
    memory, found = trace.memory, list[DeviceMemory]()
    periods = Periods.of_steps(steps) if len(steps) else None
    cpu = memory.device_type == DeviceType.CPU

    def of(device: int, own: Int64) -> DeviceMemory:
        capacity = 0 if device == NONE else device_properties(trace.metadata, device).memory_bytes
        allocations = Allocations(memory_curve(memory, own), context)
        return DeviceMemory(device, capacity, driver_ns.get(device, 0), allocations, trace, periods)

    device = np.where(cpu, NONE, np.maximum(memory.device, 0))
    # Two kinds of accelerator in one trace may have the same numbers: their type distinguishes them.
    key = memory.device_type.astype(np.int64) * 2**32 + device
    codes, events = np.unique(key[~cpu], return_counts=True)
    for code in codes[np.argsort(-events, kind="stable")[:MOST_GPUS]].tolist():
        own = np.flatnonzero((key == code) & ~cpu)
        number = int(device[own[0]])
        found.append(of(number, own))
    found.sort(key=lambda one: -int(one.curve.allocated.max()))
    if cpu.any():
        found.append(of(NONE, np.flatnonzero(cpu)))
    return found
