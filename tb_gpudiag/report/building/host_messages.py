"""Where the main host thread's time of the step window went; for a CPU-only trace this is the diagnosis."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.ranges import longest
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import place, time_ranges, us
from tb_gpudiag.rules.shared.lost_time import places
from tb_gpudiag.trace.events import CALL_CATEGORIES, NONE, Category, Int64
from tb_gpudiag.wording.format import one_line

HOST_LIMIT = 20
"""Activities listed, those that took most time first."""

KINDS = ("input", "operator", "call", "python")
_INPUT, _OPERATOR, _CALL, _PYTHON = range(len(KINDS))


def host_activity(facts: Facts) -> list[pb.HostActivity]:
    """The main thread's time by operator, call and Python frame; all of data loading is one activity."""
    pieces = facts.host_pieces
    if not len(pieces.start_ns):
        return []
    length_ns = pieces.end_ns - pieces.start_ns
    kind, name = _kinds_and_names(facts, pieces.cause == Cause.INPUT, pieces.event)
    # Both numbers in one, so that grouping sorts plain integers.
    groups, member = np.unique((name + 1) * len(KINDS) + kind, return_inverse=True)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, member, length_ns)
    activities = []
    for i in np.argsort(-total, kind="stable")[:HOST_LIMIT]:
        own = np.flatnonzero(member == i)
        group_name, group_kind = divmod(int(groups[i]), len(KINDS))
        message = pb.HostActivity(
            kind=KINDS[group_kind],
            name=one_line(_label(facts, group_kind, group_name - 1)),
            us=us(total[i]),
            ranges=time_ranges(longest(pieces.start_ns[own], pieces.end_ns[own])),
        )
        for where in places(facts.host, pieces.event[own], length_ns[own])[:1]:
            message.place.CopyFrom(place(where))
        activities.append(message)
    return activities


def _kinds_and_names(facts: Facts, is_input: np.ndarray, event: Int64) -> tuple[Int64, Int64]:
    """Shape (p,) each: a piece's kind, and a number for what it is listed under (NONE: nothing recorded)."""
    events = facts.events
    known = event != NONE
    safe = np.maximum(event, 0)
    category = np.where(known, events.category[safe], Category.OTHER)
    kind = np.full(len(event), _PYTHON, np.int64)
    kind[category == Category.CPU_OP] = _OPERATOR
    kind[np.isin(category, CALL_CATEGORIES)] = _CALL
    kind[is_input] = _INPUT
    # Python is listed under the nearest frame of the user's own, not under the built-in that ran. Numbers of
    # frames come after those of names.
    name = np.where(known, events.name[safe], NONE).astype(np.int64)
    frame = np.where(known & (kind == _PYTHON), facts.host.place[safe], NONE)
    name = np.where(frame == NONE, name, frame + len(events.names))
    name[is_input] = NONE
    return kind, name


def _label(facts: Facts, kind: int, name: int) -> str:
    if kind == _INPUT:
        return "data loading"
    if name == NONE:
        return "(nothing recorded)"
    names = facts.events.names
    return names[name] if name < len(names) else str(facts.host.frame(name - len(names)))
