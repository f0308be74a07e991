"""Where the main host thread's time in the step window went. For CPU-only traces this is the diagnosis."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.facts.core.causes import Cause, CauseSpans
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.intervals import longest, numbered
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.building.units import place, time_ranges, us
from tb_gpudiag.rules.shared.lost_time import places
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, Category
from tb_gpudiag.wording.format import one_line

HOST_LIMIT = 20

KINDS = ("input", "operator", "call", "python")
_INPUT, _OPERATOR, _CALL, _PYTHON = range(len(KINDS))


def host_messages(host: Host, spans: CauseSpans) -> list[pb.HostActivity]:
    """Group the main thread's time by operator, call and Python frame, most time first.

    All of data loading is one activity. spans: the main thread's time in the step window.
    """
    if not len(spans.start_ns):
        return []
    length_ns = spans.end_ns - spans.start_ns
    kind, name = _kinds_and_names(host, spans.cause == Cause.INPUT, spans.event)
    # Both numbers in one, so that grouping sorts plain integers.
    groups, member = numbered((name + 1) * len(KINDS) + kind)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, member, length_ns)
    activities = []
    for i in np.argsort(-total, kind="stable")[:HOST_LIMIT]:
        own = np.flatnonzero(member == i)
        group_name, group_kind = divmod(int(groups[i]), len(KINDS))
        mostly_in = places(host, spans.event[own], length_ns[own])[:1]
        activities.append(
            pb.HostActivity(
                kind=KINDS[group_kind],
                name=one_line(_label(host, group_kind, group_name - 1)),
                us=us(total[i]),
                ranges=time_ranges(longest(spans.start_ns[own], spans.end_ns[own])),
                place=place(mostly_in[0]) if mostly_in else None,
            )
        )
    return activities


def _kinds_and_names(host: Host, is_input: Bool, event: Int64) -> tuple[Int64, Int64]:
    """Kind of each span, and the number of the name under which it is listed; NONE where nothing was
    recorded. Shape (s,) each."""
    events = host.events
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
    frame = np.where(known & (kind == _PYTHON), host.place[safe], NONE)
    name = np.where(frame == NONE, name, frame + len(events.names))
    name[is_input] = NONE
    return kind, name


def _label(host: Host, kind: int, name: int) -> str:
    if kind == _INPUT:
        return "data loading"
    if name == NONE:
        return "(nothing recorded)"
    names = host.events.names
    return names[name] if name < len(names) else str(host.frame(name - len(names)))
