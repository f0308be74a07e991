"""Launch costs: host time before and in each launch call of the step window, and the GPU's wait for it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, UInt8
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import UNDECIDED, Host
from tb_gpudiag.facts.core.intervals import Intervals, Window, coverage, distinct
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.facts.core.ledger import Ledger
from tb_gpudiag.facts.core.queue_depth import FullQueue
from tb_gpudiag.facts.core.threads import NOTHING
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES

# Idle time that a launch itself causes: it came late by the time spent on issuing it.
_ISSUING = np.array([Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY], np.uint8)

# What an operator does to launch. Time with a cause of its own (data loading, compilation, a blocking call)
# is not a cost of the launch.
_IN_OPERATOR = np.array([Cause.DISPATCH, Cause.PYTHON, Cause.COLLECTIVE, UNDECIDED], np.uint8)


@dataclass(frozen=True)
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
        """Return the launches on one device."""
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
    host: Host,
    spans: CauseSpans,
    main: int,
    ledgers: list[Ledger],
    full: FullQueue,
    window: Window,
) -> LaunchCosts:
    """Compute the costs of the window's launch calls.

    launched: mask of the work that they launched, shape (g,) (Facts.launched). spans: what the main thread
    did in the window, in order (Facts.main_thread_spans). main: index of the main thread. ledgers: of all
    devices.
    """
    events = host.events
    linked = np.flatnonzero(launched)
    calls, first, of_call = np.unique(work.launch[linked], return_index=True, return_inverse=True)
    first = linked[first]
    kernel_ns = np.zeros(len(calls), np.int64)
    np.add.at(kernel_ns, of_call, events.duration_ns[work.event[linked]])
    dispatch_ns, python_ns = _on_the_way(work, host, spans, main, calls, window)
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
    work: Work, host: Host, spans: CauseSpans, main: int, calls: Int64, window: Window
) -> tuple[Int64, Int64]:
    """Return the dispatch and the Python time before each call, shape of `calls` each."""
    events = host.events
    every = distinct(work.launch[work.linked])
    every = every[np.lexsort((events.start_ns[every], events.thread[every]))]
    in_call = events.among(*CALL_CATEGORIES)
    dispatch_ns, python_ns = np.zeros(len(calls), np.int64), np.zeros(len(calls), np.int64)
    for thread in np.unique(events.thread[calls]).tolist():
        own = every[events.thread[every] == thread]
        called = events.start_ns[own]
        returned = np.maximum.accumulate(np.r_[window.start_ns, events.end_ns[own][:-1]])
        free_from = np.minimum(returned, called)
        start, end, event, cause = _timeline(host, spans, thread, main)
        operator = np.zeros(len(event), np.bool_)
        called_out = np.zeros(len(event), np.bool_)
        known = event != NONE
        operator[known], called_out[known] = host.operator[event[known]] != NONE, in_call[event[known]]
        dispatch = operator & ~called_out & np.isin(cause, _IN_OPERATOR)
        python = ~operator & ~called_out & (cause == Cause.PYTHON)
        at = np.searchsorted(calls, own)
        inside = (at < len(calls)) & (calls[np.minimum(at, len(calls) - 1)] == own)
        for total, chosen in ((dispatch_ns, dispatch), (python_ns, python)):
            spent = coverage(Intervals(start[chosen], end[chosen]), free_from[inside], called[inside])
            total[at[inside]] = spent
    return dispatch_ns, python_ns


def _timeline(host: Host, spans: CauseSpans, thread: int, main: int) -> tuple[Int64, Int64, Int64, UInt8]:
    """Return a thread's (start, end, innermost event, cause) in order; nothing if its spans are 0 ns long.

    On the main thread, waits for other threads are removed. On the others such waits are unknown.
    """
    if thread == main:
        own = spans.take(spans.thread == thread)
        return own.start_ns, own.end_ns, own.event, own.cause
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
