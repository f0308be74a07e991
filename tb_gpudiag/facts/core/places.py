"""Host events grouped by where in the user's code they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import numbered
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.marks import module_name


class PlaceTime(NamedTuple):
    """Time at one place. What is unknown or not the same for all of it is None or ""."""

    frame: Frame | None
    caller: Frame | None  # the nearest frame outside of installed packages, if `frame` is inside
    operator: str
    module: str
    range: str  # of record_function
    time_ns: int


def by_place(
    host: Host, event: Int64, weight_ns: Int64, *, by_operator: bool = False, most: int
) -> list[PlaceTime]:
    """Add up time by place; return at most `most` places, the longest time first.

    event: host events or NONE, shape (k,).
    weight_ns: the time of each, shape (k,).
    by_operator: make each operator of a frame a place of its own.

    Where no frame is known, the place is the operator in its module or `record_function`. Time with none of
    them is dropped.
    """
    known = event != NONE
    event, weight_ns = event[known], weight_ns[known]
    if not len(event):
        return []
    place, operator = host.place[event], _names(host, host.operator[event])
    module, range_ = _names(host, host.module[event]), _names(host, host.range[event])
    nowhere = place == NONE
    if not by_operator:
        operator = np.where(nowhere, operator, NONE)
    around = np.where(nowhere, np.where(module == NONE, range_, module), NONE)
    # All numbers in one, so that grouping sorts plain integers; 0 means none of them.
    around = numbered(np.r_[NONE, around])[1][1:]
    base = len(host.events.names) + 1
    key, member = numbered(((place + 1) * (around.max() + 1) + around) * base + operator + 1)
    total = np.zeros(len(key), np.int64)
    np.add.at(total, member, weight_ns)
    found = []
    for i in [int(i) for i in np.argsort(-total, kind="stable") if key[i]][:most]:
        own = np.flatnonzero(member == i)
        frame = host.frame(int(place[own[0]]))
        found.append(
            PlaceTime(
                frame,
                _caller(host, event[own], weight_ns[own]) if frame is not None else None,
                _only(host, operator[own]),
                module_name(_only(host, module[own])),
                _only(host, range_[own]),
                int(total[i]),
            )
        )
    return found


def _names(host: Host, event: Int64) -> Int64:
    """Index of each event's name; NONE for NONE."""
    return np.where(event == NONE, NONE, host.events.name[event]).astype(np.int64)


def _only(host: Host, name: Int64) -> str:
    """Return the name if it is the same for all, else ""."""
    same = name[0] != NONE and bool((name == name[0]).all())
    return host.events.names[int(name[0])] if same else ""


def _caller(host: Host, event: Int64, weight_ns: Int64) -> Frame | None:
    """Return the caller of most of the time, if it is not the place itself."""
    callers, member = numbered(host.caller[event])
    most = int(callers[np.bincount(member, weights=weight_ns).argmax()])
    return None if most == host.place[event[0]] else host.frame(most)
