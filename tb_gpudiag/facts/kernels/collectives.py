"""Collectives on one rank: how long they ran, and how much of that was exposed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpudiag.facts.core.busy import Busy
from tb_gpudiag.facts.core.intervals import Intervals, Window, clip, intersect
from tb_gpudiag.facts.kernels.kernels import Kernels
from tb_gpudiag.vocabulary.kernel_families import Family
from tb_gpudiag.vocabulary.kernel_names import collective_kind


@dataclass(frozen=True)
class CollectiveTime:
    """One kind of collective over the step window."""

    name: str  # such as `AllReduce`; the kernel's name where it contains no kind
    kernels: int
    time_ns: int  # while at least one of them ran
    exposed_ns: int  # of time_ns: nothing computed meanwhile


def exposed_communication(busy: Busy, window: Window) -> Intervals:
    """Return when a collective ran in the step window and nothing computed."""
    return clip(busy.communicating, window.start_ns, window.end_ns)


def collectives(kernels: Kernels, busy: Busy, window: Window) -> list[CollectiveTime]:
    """Return the kinds of collectives, the most exposed first. Where kinds overlap, each one counts."""
    chosen = kernels.family == Family.COLLECTIVE
    names = busy.events.names
    number, member = np.unique(busy.events.name[kernels.event[chosen]], return_inverse=True)
    kind = np.array([collective_kind(names[i]) for i in number], object)
    exposed = exposed_communication(busy, window)
    found = []
    own = np.zeros(len(chosen), np.bool_)
    for name in sorted(set(kind)):
        own[:] = False
        own[np.flatnonzero(chosen)[kind[member] == name]] = True
        ran = kernels.union(own)
        found.append(CollectiveTime(name, int(own.sum()), ran.total, intersect(ran, exposed).total))
    return sorted(found, key=lambda c: (-c.exposed_ns, -c.time_ns, c.name))
