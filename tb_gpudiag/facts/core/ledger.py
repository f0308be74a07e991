"""One device's time: its work as sets of intervals, and a ledger of its idle time. Both add up to an account
of each step.

idle.py builds the ledger.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Bool, Int64, UInt8, summed
from tb_gpudiag.facts.core.causes import Cause, Trigger, time_by_cause
from tb_gpudiag.facts.core.intervals import Intervals, Window, coverage, subtract, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.kernel_names import communicates
from tb_gpudiag.vocabulary.recorded import Category


@dataclass(frozen=True, eq=False)
class Gaps:
    """Stretches in which one device had no work, in order of time. Shape (g,) each."""

    start_ns: Int64
    end_ns: Int64
    trigger: UInt8  # Trigger
    ended_by: Int64  # event index of the work that ended it, or NONE at the window's end
    launch: Int64  # event index of that work's launch, or NONE
    blocked_in: Int64  # event index of the call that drained the queue, or NONE
    blocked_ns: Int64  # how long the host had been blocked in it; 0 without one

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, eq=False)
class Ledger:
    """One device's idle time over the GPU span and the step window together. Segments have shape (s,).

    event: the innermost host event that the segment is attributed to, or NONE.
    drained_ns: at most this part of the segment would not exist without the blocking call that drained the
    queue: the host would have been that much earlier. Never more than the segment.
    """

    start_ns: Int64
    end_ns: Int64
    cause: UInt8  # Cause
    gap: Int64  # index into gaps
    event: Int64
    drained_ns: Int64
    lost: Bool  # work may have run that the trace has only the launch of; the cause is UNRECORDED
    gaps: Gaps

    def __len__(self) -> int:
        return len(self.start_ns)

    def inside(self, window: Window) -> Int64:
        """Return how much of each segment is in the window, shape (s,)."""
        length: Int64 = np.minimum(self.end_ns, window.end_ns) - np.maximum(self.start_ns, window.start_ns)
        return np.maximum(length, 0)

    def idle_ns(self, window: Window) -> int:
        return int(self.inside(window).sum())

    def by_cause(self, window: Window) -> dict[Cause, int]:
        """Return cause -> ns in the window, in the order of Cause, without causes that did not occur."""
        total = summed(self.cause, self.inside(window), len(Cause))
        return {cause: int(total[cause]) for cause in Cause if total[cause]}

    def by_trigger(self, window: Window) -> dict[Trigger, int]:
        """Return trigger -> ns in the window, without triggers that did not occur."""
        total = summed(self.gaps.trigger[self.gap], self.inside(window), len(Trigger))
        return {trigger: int(total[trigger]) for trigger in Trigger if total[trigger]}

    def gaps_in(self, window: Window) -> int:
        """Count the gaps that are at least partly in the window."""
        return int(((self.gaps.start_ns < window.end_ns) & (self.gaps.end_ns > window.start_ns)).sum())


@dataclass(frozen=True, eq=False)
class TimeAccount:
    """Stretches of time, such as one per step. Shape (k,) each; idle_ns has shape (k, causes).

    computing + communicating + copying + idle = end - start, exactly.
    """

    names: list[str]
    start_ns: Int64
    end_ns: Int64
    computing_ns: Int64
    communicating_ns: Int64
    copying_ns: Int64
    idle_ns: Int64


@dataclass(frozen=True, eq=False)
class GpuTime:
    """Busy and idle time of one device over the recorded window."""

    busy: Busy
    ledger: Ledger

    @property
    def device(self) -> int:
        return self.busy.device

    def account(self, names: list[str], start_ns: Int64, end_ns: Int64) -> TimeAccount:
        """Account for any stretches [start, end), each with its name."""
        idle = Intervals(self.ledger.start_ns, self.ledger.end_ns)
        return TimeAccount(
            names,
            start_ns,
            end_ns,
            coverage(self.busy.computing, start_ns, end_ns),
            coverage(self.busy.communicating, start_ns, end_ns),
            coverage(self.busy.copying, start_ns, end_ns),
            time_by_cause(idle, self.ledger.cause, start_ns, end_ns),
        )

    def of_window(self, window: Window) -> TimeAccount:
        """Account for the window as one slice."""
        return self.account([""], np.array([window.start_ns]), np.array([window.end_ns]))


@dataclass(frozen=True, eq=False)
class Busy:
    """Busy time of one device.

    work: its GPU events in order of start, over all streams, unlinked ones included. Copies and collectives
    count only where they are exposed: hidden behind computation they cost nothing. The sets computing,
    communicating and copying are disjoint, and their union is `all`.
    """

    device: int
    events: Events
    work: Int64
    communication: Bool  # mask of communication kernels, shape (n,)

    def _of(self, chosen: Bool) -> Intervals:
        some = self.work[chosen]
        return union(self.events.start_ns[some], self.events.end_ns[some])

    @cached_property
    def all(self) -> Intervals:
        return self._of(np.ones(len(self.work), np.bool_))

    @cached_property
    def computing(self) -> Intervals:
        copies = self.events.category[self.work] == Category.MEMCPY
        return self._of(~copies & ~self.communication[self.work])

    @cached_property
    def communicating(self) -> Intervals:
        return subtract(self._of(self.communication[self.work]), self.computing)

    @cached_property
    def copying(self) -> Intervals:
        copies = self._of(self.events.category[self.work] == Category.MEMCPY)
        return subtract(subtract(copies, self.computing), self.communicating)

    @property
    def span(self) -> Window:
        """The GPU span: the first GPU event's start to the last one's end."""
        return Window(int(self.all.start[0]), int(self.all.end[-1])) if len(self.all.start) else Window(0, 0)


def find_busy(work: Work, communication: Bool) -> list[Busy]:
    """Find the devices with work of some duration, the busiest first. communication: mask of communication
    kernels, shape (n,)."""
    devices = np.unique(work.device).tolist()
    found = [Busy(one, work.events, work.event[work.device == one], communication) for one in devices]
    return sorted((busy for busy in found if busy.all.total), key=lambda busy: -busy.all.total)


def communication_kernels(events: Events) -> Bool:
    """Mask of the kernels of communication libraries such as NCCL and RCCL, shape (n,)."""
    found = np.zeros(len(events), np.bool_)
    kernels = events.where(Category.KERNEL)
    names, name = np.unique(events.name[kernels], return_inverse=True)
    found[kernels] = communicates([events.names[i] for i in names])[name]
    return found
