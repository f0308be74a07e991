"""Launch costs: host time before and in each launch call of the step window, and the GPU's wait for it.

Hotspots add them up by operator, by module, by source line and by kernel.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Literal

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, Numbers, UInt8, summed
from tb_gpudiag.facts.core.causes import BETWEEN_CALLS, Cause, CauseSpans
from tb_gpudiag.facts.core.handover import HostTime
from tb_gpudiag.facts.core.host import UNDECIDED, Host
from tb_gpudiag.facts.core.intervals import (
    MOST_RANGES,
    Intervals,
    ShownRanges,
    Window,
    coverage,
    distinct,
    places_of_each,
)
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.core.threads import NOTHING
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.marks import module_name
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES

# Idle time that a launch itself causes: it came late by the time spent on issuing it.
_ISSUING = np.array([Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY], np.uint8)

# What an operator does to launch. Time with a cause of its own (data loading, compilation, a blocking call)
# is not a cost of the launch.
_IN_OPERATOR = np.array([Cause.DISPATCH, *BETWEEN_CALLS, Cause.COLLECTIVE, UNDECIDED], np.uint8)

HotspotKind = Literal["operator", "module", "line", "kernel"]
HOTSPOT_KINDS: tuple[HotspotKind, ...] = ("operator", "module", "line", "kernel")

_NOWHERE = {
    "operator": "(outside any operator)",
    "module": "(outside any module, or no stacks)",
    "line": "(no Python frame recorded)",
}


@dataclass(frozen=True, eq=False)
class LaunchCosts:
    """The window's launch calls (see launches.launched_in), in order of event index. Shape (c,) each; a graph
    launch is one call, with all its kernels.

    dispatch_ns, python_ns: the launching thread's time since its previous launch, or since the window began:
    dispatch in operators and outside any call, Python in neither. The rest of that stretch was something
    else: other calls, data loading, a wait for another thread. On threads other than the main one, time
    without any recorded span is such a wait.
    """

    event: Int64
    work: Int64  # event index of the first work that it launched
    device: Int32
    kernel_ns: Int64
    empty_queue: Bool  # as in launches.Work
    host_ns: Int64  # in the call
    dispatch_ns: Int64
    python_ns: Int64
    full_queue_ns: Int64  # of host_ns: blocked on a full queue
    idle_ns: Int64  # of the GPU: dispatch, launch and latency in the gaps that its work ended, in the window
    idle_start_ns: Int64  # start and end of that idle time; meaningless without any
    idle_end_ns: Int64

    def __len__(self) -> int:
        return len(self.event)

    def of(self, device: int) -> LaunchCosts:
        own = self.device == device
        return LaunchCosts(**{column.name: getattr(self, column.name)[own] for column in fields(self)})

    @cached_property
    def by_weight(self) -> Int64:
        """Order of all launches: most idle time first, then the longest call."""
        order = np.argsort(-self.host_ns, kind="stable")
        return order[np.argsort(-self.idle_ns[order], kind="stable")]


def launch_costs(
    work: Work,
    launched: Bool,
    host_time: HostTime,
    spans: CauseSpans,
    ledgers: list[Ledger],
    window: Window,
    host_window: Window,
) -> LaunchCosts:
    """Compute the costs of the window's launch calls.

    launched: mask of the work that they launched, shape (g,) (Facts.launched). spans: what the main thread
    did in the host window, in order (Facts.main_thread_spans). ledgers: of all devices.
    """
    events, full = work.events, host_time.full_queue
    linked = np.flatnonzero(launched)
    calls, first, of_call = np.unique(work.launch[linked], return_index=True, return_inverse=True)
    first = linked[first]
    kernel_ns = summed(of_call, events.duration_ns[work.event[linked]], len(calls))
    dispatch_ns, python_ns = _on_the_way(work, host_time, spans, calls, host_window.start_ns)
    waited = np.zeros(len(events), np.int64)
    waited[full.call] = full.waited_ns
    idle, start, end = _idle_by_call(ledgers, window, calls)
    return LaunchCosts(
        calls,
        work.event[first],
        events.device[work.event[first]],
        kernel_ns,
        work.empty_queue[first],
        events.duration_ns[calls],
        dispatch_ns,
        python_ns,
        waited[calls],
        idle,
        start,
        end,
    )


def _on_the_way(
    work: Work, host_time: HostTime, spans: CauseSpans, calls: Int64, since_ns: int
) -> tuple[Int64, Int64]:
    """Return the dispatch and the Python time before each call since this time, shape of `calls` each."""
    events, host = work.events, host_time.host
    every = distinct(work.launch[work.linked])
    every = every[np.argsort(events.start_ns[every], kind="stable")]
    launching = set(np.unique(events.thread[calls]).tolist())
    in_call = events.among(*CALL_CATEGORIES)
    dispatch_ns, python_ns = np.zeros(len(calls), np.int64), np.zeros(len(calls), np.int64)
    for thread, places in places_of_each(events.thread[every]):
        if thread not in launching:
            continue
        own = every[places]
        called = events.start_ns[own]
        returned = np.maximum.accumulate(np.r_[since_ns, events.end_ns[own][:-1]])
        free_from = np.minimum(returned, called)
        start, end, event, cause = _timeline(host_time, spans, thread)
        operator = np.zeros(len(event), np.bool_)
        called_out = np.zeros(len(event), np.bool_)
        known = event != NONE
        operator[known], called_out[known] = host.operator[event[known]] != NONE, in_call[event[known]]
        dispatch = operator & ~called_out & np.isin(cause, _IN_OPERATOR)
        python = ~operator & ~called_out & np.isin(cause, np.array(BETWEEN_CALLS, np.uint8))
        at = np.searchsorted(calls, own)
        inside = (at < len(calls)) & (calls[np.minimum(at, len(calls) - 1)] == own)
        for total, chosen in ((dispatch_ns, dispatch), (python_ns, python)):
            spent = coverage(Intervals(start[chosen], end[chosen]), free_from[inside], called[inside])
            total[at[inside]] = spent
    return dispatch_ns, python_ns


def _timeline(host_time: HostTime, spans: CauseSpans, thread: int) -> tuple[Int64, Int64, Numbers, UInt8]:
    """Return a thread's (start, end, innermost event, cause) in order; nothing if its spans are 0 ns long.

    On the main thread, waits for other threads are removed. On the others such waits are unknown.
    """
    if thread == host_time.main:
        own = spans.thread == thread
        return spans.start_ns[own], spans.end_ns[own], spans.event[own], spans.cause[own]
    host = host_time.host
    activity = host.activities.get(thread, NOTHING)
    cause = np.full(len(activity.event), UNDECIDED, np.uint8)
    known = activity.event != NONE
    cause[known] = host.cause[activity.event[known]]
    return activity.start_ns, activity.end_ns, activity.event, cause


def _idle_by_call(ledgers: list[Ledger], window: Window, calls: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the issuing time in the gaps that each launch call's work ended, and its start and end, shape of
    `calls` each. calls: ascending."""
    idle, start = np.zeros(len(calls), np.int64), np.full(len(calls), window.end_ns)
    end = np.full(len(calls), window.start_ns)
    for ledger in ledgers:
        launch, inside = ledger.gaps.launch[ledger.gap], ledger.inside(window)
        some = np.flatnonzero(np.isin(ledger.cause, _ISSUING) & np.isin(launch, calls) & (inside > 0))
        call = np.searchsorted(calls, launch[some])
        np.add.at(idle, call, inside[some])
        np.minimum.at(start, call, np.maximum(ledger.start_ns[some], window.start_ns))
        np.maximum.at(end, call, np.minimum(ledger.end_ns[some], window.end_ns))
    return idle, start, end


@dataclass(frozen=True)
class Hotspot:
    """One group of launches. A graph launch counts once, with the time of all its kernels. Times are as in
    LaunchCosts."""

    key: str
    kind: HotspotKind
    launches: int
    host_ns: int
    dispatch_ns: int
    python_ns: int
    kernel_ns: int
    empty_queue_share: float  # share of the launches: issued when the device had nothing left to do
    idle_ns: int
    full_queue_launches: int
    full_queue_ns: int
    ranges: ShownRanges  # the longest idle times that its launches caused, else its longest calls


def hotspots(costs: LaunchCosts, host: Host, kind: HotspotKind) -> list[Hotspot]:
    """Group the launches, the group that caused most idle time first."""
    events = host.events
    names, member = np.unique(_groups(events, costs, host, kind), return_inverse=True)
    groups = len(names)

    def total(weights: Int64) -> Int64:
        return np.rint(np.bincount(member, weights=weights, minlength=groups)).astype(np.int64)

    count = np.bincount(member, minlength=groups)
    host_ns, idle_ns = total(costs.host_ns), total(costs.idle_ns)
    empty, full = total(costs.empty_queue.astype(np.int64)), total((costs.full_queue_ns > 0).astype(np.int64))
    dispatch_ns, python_ns = total(costs.dispatch_ns), total(costs.python_ns)
    kernel_ns, full_ns = total(costs.kernel_ns), total(costs.full_queue_ns)
    by_weight = costs.by_weight
    # Small numbers are sorted in one pass.
    small = member.astype(np.uint16) if groups <= 1 << 16 else member
    by_group = by_weight[np.argsort(small[by_weight], kind="stable")]
    call, idle = costs.event[by_group], costs.idle_ns[by_group] > 0
    places = (
        np.where(idle, costs.idle_start_ns[by_group], events.start_ns[call]),
        np.where(idle, costs.idle_end_ns[by_group], events.end_ns[call]),
        costs.device[by_group].astype(np.int64),
    )
    first = np.cumsum(count) - count
    stop = first + np.minimum(count, MOST_RANGES)
    return [
        Hotspot(
            _label(events, host, int(names[i]), kind),
            kind,
            int(count[i]),
            int(host_ns[i]),
            int(dispatch_ns[i]),
            int(python_ns[i]),
            int(kernel_ns[i]),
            float(empty[i] / count[i]),
            int(idle_ns[i]),
            int(full[i]),
            int(full_ns[i]),
            ShownRanges(*(column[first[i] : stop[i]] for column in places)),
        )
        for i in np.lexsort((-host_ns, -idle_ns))
    ]


def _groups(events: Events, costs: LaunchCosts, host: Host, kind: HotspotKind) -> Numbers:
    """Return a number for each launch's group: a name's index, or for lines the frame's."""
    if kind == "kernel":
        return events.name[costs.work].astype(np.int64)
    if kind == "line":
        return host.place[costs.event]
    event = host.operator[costs.event] if kind == "operator" else host.module[costs.event]
    return host.names(event)


def _label(events: Events, host: Host, group: int, kind: HotspotKind) -> str:
    if group == NONE:
        return _NOWHERE[kind]
    return str(host.frame(group)) if kind == "line" else module_name(events.names[group])
