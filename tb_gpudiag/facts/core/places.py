"""Host events grouped by where in the user's code they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.trace.vocabulary.frames import Frame


class PlaceTime(NamedTuple):
    """Time at one place: a frame, an operator, or both; "" for no operator."""

    frame: Frame | None
    operator: str
    time_ns: int


def by_place(
    host: Host, event: Int64, weight_ns: Int64, *, by_operator: bool = False, most: int
) -> list[PlaceTime]:
    """Add up time by place; return at most `most` places, the longest time first.

    event: host events or NONE, shape (k,).
    weight_ns: the time of each, shape (k,).
    by_operator: make each operator of a frame a place of its own.

    Where no frame is known, the operator is the place. Time with neither is dropped.
    """
    known = event != NONE
    event, weight_ns = event[known], weight_ns[known]
    if not len(event):
        return []
    place, operator = host.place[event], host.operator[event]
    events = host.events
    names = np.where(operator == NONE, NONE, events.name[operator]).astype(np.int64)
    if not by_operator:
        names = np.where(place == NONE, names, NONE)
    # Both numbers in one, so that grouping sorts plain integers; 0 means neither.
    base = len(events.names) + 1
    key, member = np.unique((place + 1) * base + names + 1, return_inverse=True)
    total = np.zeros(len(key), np.int64)
    np.add.at(total, member, weight_ns)
    heaviest = [int(i) for i in np.argsort(-total, kind="stable") if key[i]][:most]
    found = []
    for i in heaviest:
        frame, name = divmod(int(key[i]), base)
        found.append(PlaceTime(host.frame(frame - 1), events.names[name - 1] if name else "", int(total[i])))
    return found
