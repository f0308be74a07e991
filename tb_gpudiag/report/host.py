"""Where the main host thread's time of the step window went; for a CPU-only trace this is the diagnosis."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.facts.causes import Cause
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.units import place, us
from tb_gpudiag.rules.format import one_line
from tb_gpudiag.rules.ledger import places
from tb_gpudiag.trace.events import CALL_CATEGORIES, NONE, Category, Int64

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
    groups, member = np.unique(np.stack([kind, name]), axis=1, return_inverse=True)
    member = member.reshape(-1)
    total = np.zeros(groups.shape[1], np.int64)
    np.add.at(total, member, length_ns)
    activities = []
    for i in np.argsort(-total, kind="stable")[:HOST_LIMIT]:
        own = member == i
        group_kind, group_name = groups[:, i].tolist()
        message = pb.HostActivity(
            kind=KINDS[group_kind], name=one_line(_label(facts, group_kind, group_name)), us=us(total[i])
        )
        for where in places(facts, pieces.event[own], length_ns[own])[:1]:
            message.place.CopyFrom(place(where))
        activities.append(message)
    return activities


def _kinds_and_names(facts: Facts, is_input: np.ndarray, event: Int64) -> tuple[Int64, Int64]:
    """Shape (p,) each: a piece's kind, and the index of the name that it is listed under (NONE: nothing
    recorded)."""
    events = facts.events
    known = event != NONE
    safe = np.maximum(event, 0)
    category = np.where(known, events.category[safe], Category.OTHER)
    kind = np.full(len(event), _PYTHON, np.int64)
    kind[category == Category.CPU_OP] = _OPERATOR
    kind[np.isin(category, CALL_CATEGORIES)] = _CALL
    kind[is_input] = _INPUT
    # Python is listed under the nearest frame of the user's own, not under the built-in that ran.
    frame = np.where(known, facts.host.place[safe], NONE)
    shown = np.where((kind == _PYTHON) & (frame != NONE), frame, event)
    name = np.where(shown == NONE, NONE, events.name[np.maximum(shown, 0)]).astype(np.int64)
    name[is_input] = NONE
    return kind, name


def _label(facts: Facts, kind: int, name: int) -> str:
    if kind == _INPUT:
        return "data loading"
    return "(nothing recorded)" if name == NONE else facts.events.names[name]
