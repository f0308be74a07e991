"""Launches: host calls linked by correlation to the GPU work that they started."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, mask_of
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.matching import match_some
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events, is_id
from tb_gpudiag.trace.times import launches, with_id
from tb_gpudiag.vocabulary.api_calls import GRAPH_LAUNCH
from tb_gpudiag.vocabulary.recorded import GPU_WORK_CATEGORIES, Category

# Queued work starts this soon after the work before it or after its launch returned, unless it waits for
# something: on most systems in public traces back-to-back kernels follow in 1-3 us, dependent ones across
# streams and copy engines in up to about 10 us, and launches reach an idle GPU in 2-15 us.
TURNAROUND_NS = 20_000

# On some systems (Windows, virtual machines) launches take 24-46 us to reach an idle GPU. Nine in ten arrive
# within 1.6 times the lower quartile, on every system. The lower quartile, because launches that wait for
# another process take longer; and no more than the most, because such a wait takes a time slice of 2 ms.
USUAL_QUANTILE = 0.25
TIMES_USUAL = 2
MOST_TURNAROUND_NS = 100_000
FEWEST_LAUNCHES = 10

# Before the recording's own work, a wait of this length is not a launch's latency: the GPU was busy with work
# that was not recorded. Waits for an idle GPU return within about 20 us.
UNRECORDED_NS = 1_000_000

# A launch call takes 3-20 us. On an idle GPU, a first launch of a kernel that takes a hundred times that
# loads the kernel's module: CUDA loads lazily from 11.7 on.
LOADING_CALL_NS = 1_000_000

# CUDA queues about this many launches before the next one blocks (1,024 on the GPUs that were measured).
QUEUE_LIMIT = 1_024


@dataclass(frozen=True, eq=False)
class Work:
    """GPU work of all devices in order of start. Shape (g,) each. A graph's kernels share one launch.

    launch: event index of the host call; NONE where the trace has none (2.5% of GPU work in public traces,
    mostly queued before the recording began). Such work is never dropped, because it keeps the device busy as
    well.
    origin: the launch, or the operator that the work names by its external id, or NONE. The origin gives
    operator, stack and shapes, but not when the work was launched.
    """

    events: Events
    event: Int64
    launch: Int64
    origin: Int64
    launch_start_ns: Int64  # NONE without a launch
    launch_end_ns: Int64
    free_ns: Int64  # when all work launched earlier on the device had ended; the least number without any
    first_use: Bool  # a kernel whose name no earlier work has

    def __len__(self) -> int:
        return len(self.event)

    @cached_property
    def linked(self) -> Bool:
        """Mask of the work with a launch."""
        return self.launch != NONE

    @cached_property
    def empty_queue(self) -> Bool:
        """Mask of the work whose call returned when everything launched earlier on its device had ended."""
        return self.linked & (self.free_ns <= self.launch_end_ns)

    @cached_property
    def latency_ns(self) -> int:
        """How long after its launch returned a kernel starts on an idle GPU, usually; 0 with too few."""
        kernel = self.events.category[self.event] == Category.KERNEL
        idle = np.flatnonzero(self.linked & kernel & (self.free_ns <= self.launch_start_ns))
        idle = idle[np.unique(self.launch[idle], return_index=True)[1]]  # the first kernel of a graph
        if len(idle) < FEWEST_LAUNCHES:
            return 0
        return max(0, int(np.quantile(self.start_ns[idle] - self.launch_end_ns[idle], USUAL_QUANTILE)))

    @property
    def turnaround_ns(self) -> int:
        """How soon queued work starts on this system, unless it waits for something."""
        return min(max(TIMES_USUAL * self.latency_ns, TURNAROUND_NS), MOST_TURNAROUND_NS)

    @cached_property
    def by_launch(self) -> Int64:
        """Indices of the work with a launch, in order of launch."""
        linked = np.flatnonzero(self.linked)
        return linked[np.argsort(self.launch_start_ns[linked], kind="stable")]

    @cached_property
    def device(self) -> Int32:
        return self.events.device[self.event]

    @cached_property
    def stream_key(self) -> Int64:
        return stream_keys(self.events, self.event)

    @cached_property
    def loads_module(self) -> Bool:
        """Mask of the long calls that launched a kernel for the first time, shape (n,) over all events. A
        graph's kernels were loaded when it was made: its launch is as long as its nodes are many."""
        found = mask_of(self.launch[self.first_use & self.linked & ~self.in_graph], len(self.events))
        return found & (self.events.duration_ns >= LOADING_CALL_NS)

    @cached_property
    def in_graph(self) -> Bool:
        """Mask of the work that a launch of a CUDA graph started, shape (g,)."""
        found: Bool = self.linked.copy()
        found[found] = match_some(self.events, GRAPH_LAUNCH, self.launch[found])
        return found

    @cached_property
    def graph_begun_ns(self) -> Int64:
        """When the first work of each graph launch began, shape (n,) over all events; NONE for others."""
        begun = np.full(len(self.events), NONE, np.int64)
        calls, first = np.unique(self.launch[self.in_graph], return_index=True)
        begun[calls] = self.start_ns[self.in_graph][first]
        return begun

    @cached_property
    def start_ns(self) -> Int64:
        return self.events.start_ns[self.event]

    @cached_property
    def end_ns(self) -> Int64:
        return self.events.end_ns[self.event]


def stream_keys(events: Events, some: Int64) -> Int64:
    """Return device and stream of GPU events in one number, so that grouping sorts plain integers."""
    return (events.device[some].astype(np.int64) << 32) + events.stream[some]


def join_launches(events: Events) -> Work:
    """Join launches to the GPU work that they started."""
    work = events.where(*GPU_WORK_CATEGORIES)
    launch = launches(events, work)
    linked = launch != NONE
    start = np.where(linked, events.start_ns[launch], NONE)
    end = np.where(linked, events.end_ns[launch], NONE)
    first_use = mask_of(np.unique(events.name[work], return_index=True)[1], len(work))
    first_use &= events.category[work] == Category.KERNEL
    return Work(
        events,
        event=work,
        launch=launch,
        origin=_origins(events, work, launch),
        launch_start_ns=start,
        launch_end_ns=end,
        free_ns=_free(events, work, start),
        first_use=first_use,
    )


def _origins(events: Events, work: Int64, launch: Int64) -> Int64:
    """Return the launch of each work, or the operator with its external id, or NONE."""
    origin = launch.copy()
    lone = (launch == NONE) & is_id(events.external_id[work])
    if lone.any():
        hosts = events.where(Category.CPU_OP)
        named = with_id(events.external_id[work], hosts, events.external_id[hosts])
        named[events.start_ns[named] > events.start_ns[work]] = NONE
        if _names_operators(events, work, launch, named, lone):
            origin[lone] = named[lone]
    return origin


def _names_operators(events: Events, work: Int64, launch: Int64, named: Int64, lone: Bool) -> bool:
    """Return whether external ids of GPU work are operators' ids. Some recorders write correlations there,
    which can be the same numbers by chance.

    If they are operators' ids, most launches are inside the operator that their work names. Without launches,
    ids that equal the correlation must at least all name an operator.
    """
    linked = (launch != NONE) & is_id(events.external_id[work])
    if linked.any():
        inside = named != NONE
        inside &= events.thread[named] == events.thread[launch]
        inside &= events.start_ns[named] <= events.start_ns[launch]
        inside &= events.start_ns[launch] < events.end_ns[named]
        return bool(2 * inside[linked].sum() > linked.sum())
    differ = events.external_id[work[lone]] != events.correlation[work[lone]]
    return bool(differ.any() or (named[lone] != NONE).all())


def launched_in(work: Work, window: Window, *, by_steps: bool) -> Bool:
    """Mask of the work whose launch belongs to the window, shape (g,).

    by_steps: the window consists of steps. Then a launch belongs to it if the call begins in it. Otherwise
    the window begins and ends where the GPU's work does, and a launch belongs to it with any of its work.
    """
    begun = window.contains(work.launch_start_ns)
    found: Bool = work.linked & begun
    if not by_steps:
        runs = (work.end_ns > window.start_ns) & (work.start_ns < window.end_ns)
        found |= work.linked & runs
    return found


def _free(events: Events, work: Int64, launch_start: Int64) -> Int64:
    """Return when everything launched earlier on the work's device had ended, shape of `work`."""
    free = np.full(len(work), np.iinfo(np.int64).min)
    for device in np.unique(events.device[work]):
        own = np.flatnonzero(events.device[work] == device)
        issued = np.where(launch_start[own] == NONE, events.start_ns[work[own]], launch_start[own])
        own = own[np.argsort(issued, kind="stable")]
        reached = np.maximum.accumulate(events.end_ns[work[own]])
        before = np.r_[np.iinfo(np.int64).min, reached[:-1]]
        # Kernels of a graph share the call: work before the call counts, not the graph's other kernels.
        first = np.r_[True, launch_start[own][1:] != launch_start[own][:-1]]
        free[own] = before[np.maximum.accumulate(np.where(first, np.arange(len(own)), 0))]
    return free
