"""Launch queues: how many launches waited on each stream over time, and which launch calls blocked on a full
queue.

A launch is in its stream's queue from the return of its call (the earliest time at which it surely is) until
its work begins. Work that begins before the call returns never waits in the queue. A graph launch is one
launch: it is in the queue of its first work's stream until that work begins. So no queue's depth is ever
negative.

The recording cuts off both ends. Work that was launched before the recording has no launch in it. Streams
keep the order of launches, so this is the work that precedes the first work of its stream with a launch in
the recording: it waits from the recording's beginning. Later work without a launch in the trace is in no
queue, because nothing says how long it waited. Launches without work in the trace are in no queue either: a
host call does not say which stream it is for.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import Bool, Int64, mask_of
from tb_gpudiag.facts.core.intervals import Window, places_of_each
from tb_gpudiag.facts.core.launches import QUEUE_LIMIT, Work
from tb_gpudiag.frozen import dataclass

# A launch call that takes this many times the median, while the queue is at least half full, blocked on the
# queue if the work of some launch ended during the call.
FULL_QUEUE_RATIO = 5


class FullQueue(NamedTuple):
    """Launch calls that blocked on a full queue. Shape (f,) each, in order of the events."""

    call: Int64  # event index
    waited_ns: Int64  # how much longer the call took than the median one


class Depth(NamedTuple):
    """A step curve: the depth from each time to the next; 0 before the first and after the last."""

    time_ns: Int64
    depth: Int64


@dataclass(frozen=True, eq=False)
class Queue:
    """The launch queue of one stream. Shape (q,) each, in the order in which the work began."""

    device: int
    stream: int
    call: Int64  # event index of the launch; NONE if it was before the recording
    issued_ns: Int64
    begun_ns: Int64  # never before issued_ns

    @cached_property
    def depth(self) -> Depth:
        waited = self.begun_ns > self.issued_ns
        issued, begun = self.issued_ns[waited], self.begun_ns[waited]
        # Launches and starts at one instant are one step of the curve: every depth lasts for some time.
        time, at = np.unique(np.r_[issued, begun], return_inverse=True)
        change = np.bincount(at, np.repeat([1.0, -1.0], len(issued)), len(time)).astype(np.int64)
        return Depth(time[change != 0], np.cumsum(change[change != 0]))


def stream_queues(work: Work, recording: Window) -> list[Queue]:
    """Return the queue of every stream that has one, by device and stream."""
    events = work.events
    begun = work.start_ns
    linked = work.linked
    # In order of start, so that the first one of each call is the one that begins first.
    first = mask_of(np.flatnonzero(linked)[np.unique(work.launch[linked], return_index=True)[1]], len(work))
    issued = np.minimum(np.where(linked, work.launch_end_ns, recording.start_ns), begun)
    kept = np.flatnonzero(first | _before_any_launch(work))
    found = []
    for _, places in places_of_each(work.stream_key[kept]):
        members = kept[places]
        some = work.event[members[0]]
        device, number = int(events.device[some]), int(events.stream[some])
        found.append(Queue(device, number, work.launch[members], issued[members], begun[members]))
    return found


def _before_any_launch(work: Work) -> Bool:
    """Mask of the work that precedes the first one of its stream with a launch in the trace."""
    linked = np.flatnonzero(work.linked)
    streams, first = np.unique(work.stream_key[linked], return_index=True)
    found = np.zeros(len(work), np.bool_)
    if len(streams):
        at = np.minimum(np.searchsorted(streams, work.stream_key), len(streams) - 1)
        found = (streams[at] == work.stream_key) & (np.arange(len(work)) < linked[first[at]])
    return found


def full_queue(work: Work, blocking: Int64) -> FullQueue:
    """Find the launch calls that blocked on a full queue.

    blocking: event indices of the calls that wait for the GPU anyway (handover.HostTime.blocking).
    """
    events = work.events
    linked = work.linked
    calls, of_call = np.unique(work.launch[linked], return_inverse=True)
    start, duration = events.start_ns[calls], events.duration_ns[calls]
    if not len(calls):
        return FullQueue(calls, duration)
    # A graph's nodes are one launch, which leaves the queue when the last of them has ended.
    ends = np.zeros(len(calls), np.int64)
    np.maximum.at(ends, of_call, work.end_ns[linked])
    ends.sort()
    done = np.searchsorted(ends, start)
    outstanding = np.searchsorted(np.sort(start), start) - done
    usual = float(np.median(duration))
    waited = (outstanding > QUEUE_LIMIT // 2) & (duration > FULL_QUEUE_RATIO * usual)
    waited &= np.searchsorted(ends, start + duration, side="right") > done
    waited &= ~np.isin(calls, blocking)
    return FullQueue(calls[waited], np.rint(duration[waited] - usual).astype(np.int64))
