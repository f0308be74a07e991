"""Hotspots: launches grouped by operator, by module, by source line and by kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import MOST_RANGES, Ranges
from tb_gpudiag.facts.launching.launch_costs import LaunchCosts
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.marks import module_name

Kind = Literal["operator", "module", "line", "kernel"]
KINDS: tuple[Kind, ...] = ("operator", "module", "line", "kernel")

_NOWHERE = {
    "operator": "(outside any operator)",
    "module": "(outside any module, or no stacks)",
    "line": "(no Python frame recorded)",
}


@dataclass(frozen=True)
class Hotspot:
    """One group of launches. A graph launch counts once, with the time of all its kernels. Times are as in
    LaunchCosts."""

    key: str
    kind: Kind
    launches: int
    host_ns: int
    dispatch_ns: int
    python_ns: int
    kernel_ns: int
    empty_queue_share: float  # share of the launches: issued when the device had nothing left to do
    idle_ns: int
    full_queue_launches: int
    full_queue_ns: int
    ranges: Ranges  # the longest idle times that its launches caused, else its longest calls


class Hotspots:
    """Hotspots of each kind, grouped when they are first asked for."""

    def __init__(self, costs: LaunchCosts, host: Host) -> None:
        self._costs, self._host = costs, host
        self._by_kind: dict[Kind, list[Hotspot]] = {}

    def of(self, kind: Kind) -> list[Hotspot]:
        if kind not in self._by_kind:
            self._by_kind[kind] = hotspots(self._costs, self._host, kind)
        return self._by_kind[kind]


def hotspots(costs: LaunchCosts, host: Host, kind: Kind) -> list[Hotspot]:
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
    places = _places(events, costs, by_group)
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
            Ranges(*(column[first[i] : stop[i]] for column in places)),
        )
        for i in np.lexsort((-host_ns, -idle_ns))
    ]


def _groups(events: Events, costs: LaunchCosts, host: Host, kind: Kind) -> Int64:
    """Return a number for each launch's group: a name's index, or for lines the frame's."""
    if kind == "kernel":
        return events.name[costs.work].astype(np.int64)
    if kind == "line":
        return host.place[costs.event]
    event = host.operator[costs.event] if kind == "operator" else host.module[costs.event]
    return np.where(event == NONE, NONE, events.name[np.maximum(event, 0)]).astype(np.int64)


def _label(events: Events, host: Host, group: int, kind: Kind) -> str:
    if group == NONE:
        return _NOWHERE[kind]
    return str(host.frame(group)) if kind == "line" else module_name(events.names[group])


def _places(events: Events, costs: LaunchCosts, some: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the ranges that show launches on the timeline: (start, end, device)."""
    call, idle = costs.event[some], costs.idle_ns[some] > 0
    return (
        np.where(idle, costs.idle_start_ns[some], events.start_ns[call]),
        np.where(idle, costs.idle_end_ns[some], events.end_ns[call]),
        costs.device[some].astype(np.int64),
    )
