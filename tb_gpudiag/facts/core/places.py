"""Where host events are: in the user's code, and in the model (the path of modules and operators around)."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from tb_gpudiag.arrays import NONE, Int32, Int64, Numbers, marked, summed
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import groups, numbered
from tb_gpudiag.facts.core.matching import match
from tb_gpudiag.vocabulary.frames import Frame
from tb_gpudiag.vocabulary.marks import MODULE, module_name
from tb_gpudiag.vocabulary.recorded import Category


class PlaceTime(NamedTuple):
    """Time at one place. What is unknown or not the same for all of it is None or ""."""

    frame: Frame | None
    caller: Frame | None  # the nearest frame outside of installed packages, if `frame` is inside
    operator: str
    module: str
    range: str  # of record_function
    time_ns: int


def by_operator(host: Host, event: Numbers, weight_ns: Int64) -> list[tuple[str, int]]:
    """Add up time by the operator that the events are in, wherever it is called, the longest time first.
    Shapes as for by_place."""
    return [(host.name(one), ns) for one, ns in _added(host, event, weight_ns, host.events.name)]


def by_inputs(host: Host, event: Numbers, weight_ns: Int64) -> list[tuple[str, str, int]]:
    """The same by operator and the shapes of its inputs, such as `[[64, 512], [512, 512]]`, of operators with
    recorded shapes."""
    events = host.events
    shaped = marked(events.shapes != NONE, event)
    found = _added(host, event[shaped], weight_ns[shaped], events.name, events.shapes)
    return [(host.name(one), events.input_shapes[events.shapes[one]], ns) for one, ns in found]


def _added(host: Host, event: Numbers, weight_ns: Int64, *by: Int32) -> list[tuple[int, int]]:
    operator = np.where(event != NONE, host.operator[event], NONE)
    known = operator != NONE
    kind, first = groups(*(column[operator[known]] for column in by))
    total = summed(kind, weight_ns[known], len(first))
    order = np.argsort(-total, kind="stable")
    return list(zip(operator[known][first][order].tolist(), total[order].tolist(), strict=True))


def by_place(
    host: Host, event: Numbers, weight_ns: Int64, *, by_operator: bool = False, most: int
) -> list[PlaceTime]:
    """Add up time by place; return at most `most` places, the longest time first.

    event: host events or NONE, shape (k,).
    weight_ns: the time of each, shape (k,).
    by_operator: make each operator of a frame a place of its own.

    Where no frame is known, the place is the operator in its module or `record_function`. Time without any of
    these is dropped.
    """
    known = event != NONE
    event, weight_ns = event[known], weight_ns[known]
    place, operator = host.place[event], host.names(host.operator[event])
    module, range_ = host.names(host.module[event]), host.names(host.range[event])
    nowhere = place == NONE
    if not by_operator:
        operator = np.where(nowhere, operator, NONE)
    around = np.where(nowhere, np.where(module == NONE, range_, module), NONE)
    # All columns in one number, so that grouping sorts plain integers; 0 means that nothing is known.
    around = numbered(np.r_[NONE, around])[1][1:]
    base = len(host.events.names) + 1
    key, member = numbered(((place + 1) * (around.max(initial=0) + 1) + around) * base + operator + 1)
    total = summed(member, weight_ns, len(key))
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


def _only(host: Host, name: Int64) -> str:
    """Return the name that all have, or "" if names differ."""
    same = name[0] != NONE and bool((name == name[0]).all())
    return host.events.names[int(name[0])] if same else ""


def _caller(host: Host, event: Numbers, weight_ns: Int64) -> Frame | None:
    """Return the caller of most of the time, if it is not the place itself."""
    callers, member = numbered(host.caller[event])
    most = int(callers[np.bincount(member, weights=weight_ns).argmax()])
    return None if most == host.place[event[0]] else host.frame(most)


# Models nest modules and operators some 20 levels deep. What is deeper has the path of this level.
_MOST_LEVELS: Final = 60
# A path may have as many names as there are levels.
_LONGEST: Final = 600


class Paths:
    """Operators and modules around each host event, outermost first.

    of_event: number of the path that ends with the event's nearest operator or module, or NONE, shape (n,).
    """

    def __init__(self, host: Host) -> None:
        events, tree = host.events, host.tree
        part = (events.category == Category.CPU_OP) | match(events, MODULE)
        own = np.where(part & (tree.depth >= 0), np.arange(len(events)), NONE)
        nearest = tree.nearest(own)
        parent = np.where(tree.parent == NONE, NONE, nearest[tree.parent])
        rest = np.flatnonzero(own != NONE)
        number = np.full(len(events), NONE, np.int64)
        self._above: list[int] = []  # number of the path without its last name
        self._name: list[int] = []
        self._names = events.names
        for _ in range(_MOST_LEVELS):
            outermost = parent[rest] == NONE
            above = np.where(outermost, NONE, number[parent[rest]])
            ready = outermost | (above != NONE)
            if not ready.any():
                break
            here = rest[ready]
            number[here] = self._numbered(above[ready], events.name[here].astype(np.int64))
            rest = rest[~ready]
        self.of_event: Int64 = np.where(nearest == NONE, NONE, number[nearest])

    def _numbered(self, above: Int64, name: Int64) -> Int64:
        """Return a number for each distinct pair."""
        base = len(self._names) + 1
        pairs, member = np.unique((above + 1) * base + name, return_inverse=True)
        first = len(self._above)
        self._above += (pairs // base - 1).tolist()
        self._name += (pairs % base).tolist()
        return first + member

    def text(self, number: int, separator: str) -> str:
        """Return the names of a path, joined; "" for NONE."""
        found = []
        while number != NONE:
            found.append(module_name(self._names[self._name[number]]))
            number = self._above[number]
        text = separator.join(reversed(found))
        return text if len(text) <= _LONGEST else text[-_LONGEST:]
