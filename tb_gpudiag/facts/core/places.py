"""Host events grouped by where in the user's code they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.trace.vocabulary.frames import Frame


class PlaceTime(NamedTuple):
    """One place: a frame, an operator, or both; "" for no operator."""

    frame: Frame | None
    operator: str
    time_ns: int


def by_place(
    host: Host, event: Int64, weight_ns: Int64, *, by_operator: bool = False, most: int
) -> list[PlaceTime]:
    """The weightiest places first, at most so many.

    event: shape (k,), host events or NONE; weight_ns: shape (k,), the time that each stands for. Events of
    one frame are one place, or one for each of its operators; where no frame is known, the operator is the
    place. Time with neither is left out.
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
    # Both numbers in one, so that grouping sorts plain integers; 0 is neither.
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
