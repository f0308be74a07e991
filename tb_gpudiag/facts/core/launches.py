"""Launches: host calls linked by correlation to the GPU work that they started."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.trace.events import CALL_CATEGORIES, GPU_WORK_CATEGORIES, NONE, Bool, Category, Events, Int64


@dataclass(frozen=True)
class Work:
    """GPU work of all devices in order of start. Shape (g,) each. A graph's kernels share one launch.

    launch: event index of the host call; NONE where the trace has none (2.5% of GPU work in public traces,
    mostly queued before the recording began). Such work is never dropped: it keeps the device busy, too.
    """

    event: Int64
    launch: Int64
    launch_start_ns: Int64  # NONE without a launch
    launch_end_ns: Int64
    empty_queue: Bool  # linked, and all work launched earlier on the device had ended when the call returned
    first_use: Bool  # a kernel whose name no earlier work has

    def __len__(self) -> int:
        return len(self.event)


def join_launches(events: Events) -> Work:
    """Join launches to the GPU work that they started, by correlation. A call that begins after the work
    began is not its launch."""
    work = events.where(*GPU_WORK_CATEGORIES)
    calls = events.where(*CALL_CATEGORIES)
    calls = calls[events.correlation[calls] > 0]
    calls = calls[np.argsort(events.correlation[calls], kind="stable")]
    keys = events.correlation[calls]
    launch = np.full(len(work), NONE, np.int64)
    if len(calls):
        wanted = events.correlation[work]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = (keys[at] == wanted) & (events.start_ns[calls[at]] <= events.start_ns[work])
        launch[found] = calls[at[found]]
    linked = launch != NONE
    start = np.where(linked, events.start_ns[launch], NONE)
    end = np.where(linked, events.end_ns[launch], NONE)
    first_use = np.zeros(len(work), np.bool_)
    first_use[np.unique(events.name[work], return_index=True)[1]] = True
    first_use &= events.category[work] == Category.KERNEL
    return Work(work, launch, start, end, _empty_queue(events, work, start, end), first_use)


def _empty_queue(events: Events, work: Int64, launch_start: Int64, launch_end: Int64) -> Bool:
    """Mask of the work whose call returned when everything launched earlier on its device had ended."""
    empty = np.zeros(len(work), np.bool_)
    for device in np.unique(events.device[work]):
        own = np.flatnonzero(events.device[work] == device)
        issued = np.where(launch_start[own] == NONE, events.start_ns[work[own]], launch_start[own])
        own = own[np.argsort(issued, kind="stable")]
        reached = np.maximum.accumulate(events.end_ns[work[own]])
        before = np.r_[np.iinfo(np.int64).min, reached[:-1]]
        # Kernels of a graph share the call: work before the call counts, not the graph's other kernels.
        first = np.r_[True, launch_start[own][1:] != launch_start[own][:-1]]
        before = before[np.maximum.accumulate(np.where(first, np.arange(len(own)), 0))]
        empty[own] = (launch_start[own] != NONE) & (before <= launch_end[own])
    return empty
