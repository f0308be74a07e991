"""Busy: one device's work as sets of intervals, split into computing, communicating and copying."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.facts.core.intervals import Intervals, Window, subtract, union
from tb_gpudiag.facts.core.launches import Work
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.kernel_names import communicates
from tb_gpudiag.vocabulary.recorded import Category


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
