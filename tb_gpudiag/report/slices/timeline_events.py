"""Details of single events: prepared once for all, then read for one event at a time.

span_…       one entry per event of the trace, by its number
detail_…     one entry per distinct combination of recorded arguments
link_…       one entry per pair of linked events (facts/core/links.py)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64, Numbers
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.host import Host
from tb_gpudiag.facts.core.links import LinkKind, Links
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, TextTable
from tb_gpudiag.report.slices.timeline_chains import LONGEST_STACK, MOST_FRAMES, texts_of
from tb_gpudiag.report.slices.timeline_lanes import Shown
from tb_gpudiag.trace.events import Events
from tb_gpudiag.vocabulary.marks import module_label
from tb_gpudiag.vocabulary.recorded import Category

# Links of one event: a CUDA graph's launch starts thousands of kernels.
MOST_LINKS = 50

# An operator's links are those of the calls in it, which are among this many calls after its start.
MOST_CALLS = 5_000

# Characters of the shapes of an operator's inputs.
LONGEST_ARGUMENT = 2_000

NUMBERS = ("bytes", "warps_per_block", "registers", "shared_bytes")
DECIMALS = ("blocks", "blocks_per_sm")


def prepare_events(
    events: Events, host: Host, links: Links, texts: TextTable
) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays. Texts are added to the table."""
    operators = events.category == Category.CPU_OP
    columns: dict[str, npt.NDArray[Any]] = {
        "stack": events.call_stack,
        "shapes": events.shapes,
        "types": events.types,
        "settings": events.settings,
        **{name: getattr(events, name) for name in NUMBERS},
        **{name: np.nan_to_num(getattr(events, name), nan=NONE) for name in DECIMALS},
    }
    detail, one = _distinct(list(columns.values()))
    found = {name: column[one] for name, column in columns.items()}
    for name, known, longest in (
        ("stack", events.call_stacks, LONGEST_STACK),
        ("shapes", events.input_shapes, LONGEST_ARGUMENT),
        ("types", events.input_types, LONGEST_ARGUMENT),
        ("settings", events.input_settings, LONGEST_ARGUMENT),
    ):
        found[name] = texts_of(found[name], partial(_added, texts, known, longest))
    return {
        "span_parent": _small(host.tree.parent),
        "span_number": _small(np.where(operators, events.external_id, events.correlation)),
        "span_detail": _small(detail),
        **{f"detail_{name}": column for name, column in found.items()},
        "link_first": _small(links.first),
        "link_second": _small(links.second),
        "link_kind": links.kind,
    }


def _added(texts: TextTable, known: list[str], longest: int, index: int) -> int:
    return texts.add(known[index], longest)


def _distinct(columns: list[npt.NDArray[Any]]) -> tuple[Int64, Int64]:
    """Number the distinct rows: (number of each row, a row of each number)."""
    row = np.zeros(len(columns[0]), np.int64)
    one = row[:1]
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, value = np.unique(column, return_inverse=True)
            _, one, row = np.unique(row * len(values) + value, return_index=True, return_inverse=True)
    return row, one.astype(np.int64)


def _small(column: Numbers) -> npt.NDArray[np.generic]:
    """Store whole numbers in as few bytes as they need."""
    least = np.min_scalar_type(min(int(column.min(initial=0)), -1 - int(column.max(initial=0))))
    return column.astype(least)


def event_at(
    prepared: Prepared, lane: int, depth: int, start_us: float, previous: bool = False
) -> pb.EventDetails:
    """Return the event of a lane that runs at a time, else the next one in its row. previous: the last one
    that begins before this time. Raises UsageError: there is none."""
    shown = Shown(prepared)
    known = 0 <= lane < len(shown.lanes) and shown.lanes[lane]["kind"] in ("stream", "thread")
    if not known or not 0 <= depth < shown.lanes[lane]["rows"]:
        raise UsageError("The timeline has no such row of events.", where="lane")
    time_ns = round(min(max(start_us, -1e15), 1e15) * NS_PER_US)
    found = shown.before(lane, depth, time_ns) if previous else shown.at(lane, depth, time_ns)
    if not len(found):
        raise UsageError("This row has no such event.", where="start_us")
    return _details(shown, int(found.number[0]))


def event_details(
    prepared: Prepared,
    number: int | None,
    lane: int | None = None,
    depth: int | None = None,
    start_us: float | None = None,
    previous: bool = False,
) -> pb.EventDetails:
    """Return an event with its stack, arguments and links: the one with this number, else that of
    event_at. Raises UsageError: there is no such event."""
    if number is not None:
        return _details(Shown(prepared), number)
    if lane is None or depth is None or start_us is None:
        raise UsageError("An event needs a number, or lane, depth and start_us.", where="event")
    return event_at(prepared, lane, depth, start_us, previous)


def _details(shown: Shown, number: int) -> pb.EventDetails:
    found = shown.of_numbers(np.array([number], np.int64))
    if not len(found):
        raise UsageError(f"The timeline shows no event {number} of this trace.", where="event")
    event = shown.messages(found)[0]
    links, left_out = _links(shown, number, event.kind == Category.CPU_OP)
    # GPU work has the stack of its launch; a backward operator the modules of its forward operator.
    launch = next(
        (link.event for link in links if link.leads_here and link.kind == pb.EventLink.launch), None
    )
    origin = launch.number if launch is not None else number
    stack = _stack(shown, origin) + ([launch.name] if launch is not None else [])
    module = _module(stack)
    if not module:
        operator = _nearest_link(shown, origin, LinkKind.BACKWARD)
        module = _module(_stack(shown, operator)) if operator != NONE else ""
    answer = pb.EventDetails(
        event=event,
        track=shown.lanes[event.lane]["title"],
        module=module,
        stack=stack,
        links=links,
        links_left_out=left_out,
    )
    _add_arguments(answer, shown)
    return answer


def _add_arguments(answer: pb.EventDetails, shown: Shown) -> None:
    prepared, event = shown.prepared, answer.event
    id_ = int(prepared["span_number"][event.number])
    if id_ > 0 and event.kind == Category.CPU_OP:
        answer.external_id = str(id_)
    elif id_ > 0:
        answer.correlation = str(id_)
    detail = int(prepared["span_detail"][event.number])
    for name in ("shapes", "types", "settings"):
        text = int(prepared[f"detail_{name}"][detail])
        setattr(answer, name, "" if text == NONE else shown.text(text))
    for name in (*NUMBERS, *DECIMALS):
        value = prepared[f"detail_{name}"][detail].item()
        setattr(answer, name, max(0, value))


def _ancestors(prepared: Prepared, number: int) -> list[int]:
    """Return the events that enclose this one, innermost first."""
    found: list[int] = []
    parent = prepared["span_parent"]
    while (number := int(parent[number])) != NONE:
        found.append(number)
    return found


def _stack(shown: Shown, number: int) -> list[str]:
    """Return the names of what encloses an event, innermost last. In old traces, which have no Python spans,
    an operator carries its stack, innermost first."""
    above = _ancestors(shown.prepared, number)[:MOST_FRAMES]
    boxes = shown.of_numbers(np.array(above, np.int64))
    names = dict(zip(boxes.number.tolist(), boxes.name.tolist(), strict=True))
    frames: list[str] = []
    for event in (number, *above):
        if event != number and event in names:
            frames.append(shown.text(names[event]))
        carried = int(shown.prepared["detail_stack"][int(shown.prepared["span_detail"][event])])
        if carried != NONE:
            frames.extend(frame.strip() for frame in shown.text(carried).split(";") if frame.strip())
            break
    return frames[:MOST_FRAMES][::-1]


def _module(stack: list[str]) -> str:
    """Return the innermost module of a stack, or ""."""
    return next((label for name in reversed(stack) if (label := module_label(name))), "")


def _nearest_link(shown: Shown, number: int, kind: LinkKind) -> int:
    """Return the event that leads to this one, or to the nearest that encloses it; NONE if none does."""
    prepared = shown.prepared
    of_kind = prepared["link_kind"] == kind
    first, second = prepared["link_first"][of_kind], prepared["link_second"][of_kind]
    for event in (number, *_ancestors(prepared, number)):
        found = np.flatnonzero(second == event)
        if len(found):
            return int(first[found[0]])
    return NONE


def _links(shown: Shown, number: int, operator: bool) -> tuple[list[pb.EventLink], int]:
    """Return the links of an event, nearest in time first, and how many more there are."""
    prepared = shown.prepared
    first, second = np.asarray(prepared["link_first"]), np.asarray(prepared["link_second"])
    kind = np.asarray(prepared["link_kind"])
    here = np.flatnonzero(second == number)
    there = np.flatnonzero(first == number)
    if operator:
        # Find the links from calls in an operator to the work that they launch.
        after = np.flatnonzero((first > number) & (kind == LinkKind.LAUNCH))
        after = after[np.argsort(first[after], kind="stable")[:MOST_CALLS]]
        parent = np.asarray(prepared["span_parent"])
        above = first[after].astype(np.int64)
        inside = np.zeros(len(after), np.bool_)
        open_ = np.arange(len(after))
        while len(open_):
            above[open_] = parent[above[open_]]
            inside[open_] = above[open_] == number
            open_ = open_[(above[open_] != NONE) & ~inside[open_]]
        there = np.r_[there, after[inside].astype(np.int64)]
    index = np.r_[here, there]
    other = np.r_[first[here], second[there]].astype(np.int64)
    leads_here = np.arange(len(index)) < len(here)
    chosen = slice(MOST_LINKS)
    boxes = shown.of_numbers(np.unique(other[chosen]))
    events = {event.number: event for event in shown.messages(boxes)}
    found = [
        pb.EventLink(kind=LinkKind(int(kind[i])).label, leads_here=bool(leads), event=events[o])
        for i, o, leads in zip(
            index[chosen].tolist(), other[chosen].tolist(), leads_here[chosen].tolist(), strict=True
        )
        if o in events
    ]
    return found, len(index) - len(found)
