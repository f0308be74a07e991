"""Launches grouped by operator, by module, by source line and by kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tb_gpudiag.facts.causes import Cause
from tb_gpudiag.facts.host import Host
from tb_gpudiag.facts.idle import Ledger
from tb_gpudiag.facts.launches import Work
from tb_gpudiag.facts.steps import Window
from tb_gpudiag.trace.events import NONE, Events, Int64

Kind = Literal["operator", "module", "line", "kernel"]
KINDS: tuple[Kind, ...] = ("operator", "module", "line", "kernel")

_NOWHERE = {
    "operator": "(outside any operator)",
    "module": "(outside any module, or no stacks)",
    "line": "(no Python frame recorded)",
}

# The idle time that a launch itself is to blame for: it came too late by what was spent on the way to it.
_ISSUING = np.array([Cause.DISPATCH, Cause.LAUNCH, Cause.LATENCY], np.uint8)


@dataclass(frozen=True)
class Hotspot:
    """One group. A graph launch counts once, and owns the time of all its kernels."""

    key: str
    kind: Kind
    launches: int
    host_ns: int  # in the launch calls
    kernel_ns: int
    empty_queue_share: float  # of the launches: issued when the device had nothing left to do
    idle_ns: int  # dispatch, launch and latency in the gaps that they ended, in the step window


def hotspots(
    events: Events, work: Work, host: Host, ledgers: list[Ledger], window: Window, kind: Kind
) -> list[Hotspot]:
    """All groups of one kind over the step window's launches, those that caused most idle time first."""
    linked = np.flatnonzero(
        (work.launch != NONE)
        & (work.launch_start_ns >= window.start_ns)
        & (work.launch_start_ns < window.end_ns)
    )
    if not len(linked):
        return []
    calls, first, of_call = np.unique(work.launch[linked], return_index=True, return_inverse=True)
    group = _groups(events, work, host, linked[first], calls, kind)
    names, member = np.unique(group, return_inverse=True)
    kernel_ns = np.bincount(of_call, weights=events.duration_ns[work.event[linked]], minlength=len(calls))
    idle_ns = _idle_by_call(ledgers, window, len(events))[calls]

    def total(weights: Int64) -> Int64:
        return np.rint(np.bincount(member, weights=weights, minlength=len(names))).astype(np.int64)

    count = np.bincount(member, minlength=len(names))
    empty = total(work.empty_queue[linked[first]].astype(np.int64))
    host_ns, kernels, idle = total(events.duration_ns[calls]), total(kernel_ns), total(idle_ns)
    order = np.lexsort((-host_ns, -idle))
    return [
        Hotspot(
            _label(events, host, int(names[i]), kind),
            kind,
            int(count[i]),
            int(host_ns[i]),
            int(kernels[i]),
            float(empty[i] / count[i]),
            int(idle[i]),
        )
        for i in order
    ]


def _groups(events: Events, work: Work, host: Host, first: Int64, calls: Int64, kind: Kind) -> Int64:
    """A number for each launch's group: a name's index, or for lines the frame's."""
    if kind == "kernel":
        return events.name[work.event[first]].astype(np.int64)
    if kind == "line":
        return host.place[calls]
    event = host.operator[calls] if kind == "operator" else host.module[calls]
    return np.where(event == NONE, NONE, events.name[np.maximum(event, 0)]).astype(np.int64)


def _label(events: Events, host: Host, group: int, kind: Kind) -> str:
    if group == NONE:
        return _NOWHERE[kind]
    return str(host.frame(group)) if kind == "line" else events.names[group].removeprefix("nn.Module: ")


def _idle_by_call(ledgers: list[Ledger], window: Window, n: int) -> Int64:
    """Shape (n,): per launch call, the issuing time in the gaps that its work ended."""
    idle = np.zeros(n, np.int64)
    for ledger in ledgers:
        launch = ledger.gaps.launch[ledger.gap]
        some = np.isin(ledger.cause, _ISSUING) & (launch != NONE)
        np.add.at(idle, launch[some], ledger.inside(window)[some])
    return idle
