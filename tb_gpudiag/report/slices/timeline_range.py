"""A range of the timeline: where the time of GPUs and of host threads went, by cause, operator, call and
kernel, and the events whose name matches a text. The parts of a device and of a thread add up to the range.

Names are matched, not events: a trace has few different names. Patterns run in RE2, whose time is linear in
the name, and stop after a while: a pattern comes from anywhere, as names do.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tb_gpudiag.arrays import NONE, Bool, Int64, mask_of, summed
from tb_gpudiag.errors import LimitReached, UsageError
from tb_gpudiag.facts.core.causes import Cause
from tb_gpudiag.facts.core.intervals import Intervals, clip, subtract, union
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, requested_span
from tb_gpudiag.report.slices.slice_table import LONGEST_SEARCH, Search
from tb_gpudiag.report.slices.timeline_lanes import COLLECTIVE_KIND, Shown
from tb_gpudiag.report.slices.timeline_levels import Boxes
from tb_gpudiag.vocabulary.marks import MODULE_PREFIX
from tb_gpudiag.vocabulary.recorded import CALL_CATEGORIES, GPU_WORK_CATEGORIES, Category

LONGEST_REASON = 300
PARTS = 800
"""Parts of the recording whose matches are counted."""

# Names that are matched between two looks at the clock.
_BATCH = 2_000
_MATCH_WITHIN_S = 2.0

KINDS = {
    "any": tuple(Category),
    "operator": (Category.CPU_OP,),
    "kernel": (*GPU_WORK_CATEGORIES, COLLECTIVE_KIND),
    "module": tuple(Category),
    "call": CALL_CATEGORIES,
    "range": (Category.USER_ANNOTATION, Category.GPU_USER_ANNOTATION),
    "function": (Category.PYTHON_FUNCTION,),
}
"""What can be searched for: categories of events."""


def find_events(
    prepared: Prepared, search: Search, limit: int, first: int | None = None, near_us: float | None = None
) -> pb.Matches:
    """Return `limit` matches from the one with index `first`, else those around a time.

    Raises:
        UsageError: the text is too long.
        LimitReached: it takes too long.
    """
    shown = Shown(prepared)
    try:
        names = _matching_names(shown, search)
    except pa.ArrowInvalid as error:
        # Usual while somebody types: not a bad request.
        why = str(error).removeprefix("Invalid regular expression: ")
        what = f"Not a valid regular expression: {why}"[:LONGEST_REASON]
        return pb.Matches(state="failed", error=pb.Problem(what=what, where="text"))
    if search.kind == "module":
        names &= _names(shown, MODULE_PREFIX, False)
    levels = shown.levels
    of_kind = mask_of(
        [int(each) for each in KINDS[search.kind]] + [COLLECTIVE_KIND] * (search.kind == "any"), 256
    )
    of_name = np.zeros(len(prepared["text_first"]), np.bool_)
    of_name[len(Cause) : len(Cause) + len(names)] = names
    index = np.flatnonzero(of_name[levels.name] & of_kind[levels.kind] & shown.are_events)
    found = shown.boxes(index)
    order = np.lexsort((found.number, found.start_ns))
    start = found.start_ns[order]
    if first is None:
        at = 0 if near_us is None else int(np.searchsorted(start, round(near_us * NS_PER_US)))
        first = max(0, min(at, len(order) - 1) - limit // 2)
    chosen = order[first : first + limit]
    return pb.Matches(
        total=len(order),
        first=first,
        events=shown.messages(found.take(chosen)),
        per_part=_per_part(start, int(shown.meta["start_ns"]), int(shown.meta["end_ns"])),
    )


def _per_part(start: Int64, low: int, high: int) -> list[int]:
    if not len(start):
        return []
    part = (start - low) * PARTS // max(high - low, 1)
    return np.bincount(np.clip(part, 0, PARTS - 1), minlength=PARTS).tolist()


def _matching_names(shown: Shown, search: Search) -> Bool:
    if len(search.text) > LONGEST_SEARCH:
        raise UsageError(f"The text has more than {LONGEST_SEARCH} characters.", where="text")
    if not search.text:
        return np.ones(int(shown.meta["names"]), np.bool_)
    return _names(shown, search.text, search.regex)


def _names(shown: Shown, text: str, regex: bool) -> Bool:
    """Mask of the names of events that contain a text or match a pattern, in any case."""
    first = np.asarray(shown.prepared["text_first"])[len(Cause) : len(Cause) + int(shown.meta["names"]) + 1]
    content = np.asarray(shown.prepared["text"])
    names = pa.LargeStringArray.from_buffers(len(first) - 1, pa.py_buffer(first), pa.py_buffer(content))
    match = pc.match_substring_regex if regex else pc.match_substring
    found = []
    deadline_s = time.monotonic() + _MATCH_WITHIN_S
    for at in range(0, len(names), _BATCH):
        part = names.slice(at, _BATCH)
        found.append(match(part, text, ignore_case=True).to_numpy(zero_copy_only=False))
        if time.monotonic() > deadline_s:
            raise LimitReached(
                "Matching this expression takes too long.", where="text", remedy="Use a simpler one."
            )
    return np.concatenate([np.zeros(0, np.bool_), *found])


# Rows of a table. The others are one row.
MOST_ROWS = 100


def range_statistics(prepared: Prepared, start_us: float | None, end_us: float | None) -> pb.RangeStatistics:
    """Return what happened from start_us to end_us. None is the recording's start or end."""
    shown = Shown(prepared)
    span = requested_span(shown.meta, start_us, end_us)
    low, high = span.start_ns, span.end_ns
    work = shown.between(low, high, shown.rows_of("stream"))
    host = shown.between(low, high, shown.rows_of("thread"))
    work_ns, host_ns = _inside(work, low, high), _inside(host, low, high)
    self_ns = _self_ns(host, host_ns, prepared)
    is_call = np.isin(host.kind, np.array(CALL_CATEGORIES, np.uint8))
    is_operator = host.kind == Category.CPU_OP
    lane = shown.lane_of_row[host.row] if len(host) else np.zeros(0, np.int64)
    time_ns = np.zeros((len(shown.lanes), int(max(Category)) + 1), np.int64)
    np.add.at(time_ns, (lane, host.kind), self_ns)
    found = []
    for at, each in enumerate(shown.lanes):
        if each["kind"] != "thread":
            continue
        calls = int(time_ns[at, list(CALL_CATEGORIES)].sum())
        found.append(
            pb.ThreadRange(
                title=each["title"],
                operators_us=time_ns[at, Category.CPU_OP] / NS_PER_US,
                calls_us=calls / NS_PER_US,
                python_us=time_ns[at, Category.PYTHON_FUNCTION] / NS_PER_US,
                annotations_us=time_ns[at, Category.USER_ANNOTATION] / NS_PER_US,
                nothing_us=(high - low - int(time_ns[at].sum())) / NS_PER_US,
            )
        )
    return pb.RangeStatistics(
        start_us=low / NS_PER_US,
        end_us=high / NS_PER_US,
        devices=[_device(shown, chain, work, low, high) for chain in shown.meta["chains"]],
        threads=found,
        operators=_by_name(shown, host, is_operator, self_ns, host_ns),
        calls=_by_name(shown, host, is_call, self_ns, host_ns),
        kernels=_by_name(shown, work, np.ones(len(work), np.bool_), work_ns, work_ns),
    )


def _inside(boxes: Boxes, low: int, high: int) -> Int64:
    """Return how much of each event is in the range."""
    return np.minimum(boxes.start_ns + boxes.duration_ns, high) - np.maximum(boxes.start_ns, low)


def _self_ns(host: Boxes, inside_ns: Int64, prepared: Prepared) -> Int64:
    """Return how long each span is the innermost one of its thread, within the range."""
    if not len(host):
        return inside_ns
    parent = prepared["span_parent"][host.number].astype(np.int64)
    nested = summed(parent[parent != NONE], inside_ns[parent != NONE], len(prepared["span_parent"]))
    return inside_ns - nested[host.number]


def _device(shown: Shown, chain: dict[str, int], work: Boxes, low: int, high: int) -> pb.DeviceRange:
    prepared = shown.prepared
    gaps = slice(chain["first_gap"], chain["first_gap"] + chain["gaps"])
    gap_start, gap_end = prepared["gap_start_ns"][gaps], prepared["gap_end_ns"][gaps]
    cut_low, cut_high = np.searchsorted(prepared["cut_gap"], [gaps.start, gaps.stop])
    cuts = slice(int(cut_low), int(cut_high))
    start = np.maximum(prepared["cut_start_ns"][cuts], low)
    idle_ns = np.maximum(np.minimum(prepared["cut_end_ns"][cuts], high) - start, 0)
    by_cause = summed(prepared["cut_cause"][cuts], idle_ns, len(Cause))
    inside = max(0, min(high, chain["end_ns"]) - max(low, chain["start_ns"]))
    lanes = np.array([lane["device"] == chain["device"] for lane in shown.lanes], np.bool_)
    own = work.take(lanes[shown.lane_of_row[work.row]])
    communicating, copying = _exposed(own, low, high)
    return pb.DeviceRange(
        device=chain["device"],
        # The ledger is exact. Boxes are cut short where one stream's work overlaps many times.
        computing_us=(inside - int(by_cause.sum()) - communicating - copying) / NS_PER_US,
        copying_us=copying / NS_PER_US,
        communicating_us=communicating / NS_PER_US,
        idle_by_cause=[pb.CauseTime(cause=c.label, us=by_cause[c] / NS_PER_US) for c in Cause if by_cause[c]],
        outside_us=(high - low - inside) / NS_PER_US,
        gaps=int(((gap_start < high) & (gap_end > low)).sum()),
    )


def _exposed(work: Boxes, low: int, high: int) -> tuple[int, int]:
    """Return the time of exposed communication, and of exposed copies: see facts.core.ledger.Busy."""

    def busy(chosen: Bool) -> Intervals:
        start, length = work.start_ns[chosen], work.duration_ns[chosen]
        return clip(union(start, start + length), low, high)

    copies, communication = work.kind == Category.MEMCPY, work.kind == COLLECTIVE_KIND
    computing = busy(~copies & ~communication)
    communicating = subtract(busy(communication), computing)
    copying = subtract(subtract(busy(copies), computing), communicating)
    return communicating.total, copying.total


def _by_name(shown: Shown, boxes: Boxes, chosen: Bool, self_ns: Int64, total_ns: Int64) -> list[pb.NamedTime]:
    """Sum events by name, most time first."""
    names, group = np.unique(boxes.name[chosen], return_inverse=True)
    count = np.bincount(group, minlength=len(names))
    own, total = (summed(group, values[chosen], len(names)) for values in (self_ns, total_ns))
    order = np.argsort(-own, kind="stable")
    rows = [
        pb.NamedTime(
            name=shown.text(int(names[i])),
            count=int(count[i]),
            self_us=own[i] / NS_PER_US,
            total_us=total[i] / NS_PER_US,
        )
        for i in order[:MOST_ROWS].tolist()
    ]
    rest = order[MOST_ROWS:]
    if len(rest):
        sums = (int(values[rest].sum()) for values in (own, total))
        own_us, total_us = (value / NS_PER_US for value in sums)
        rows.append(pb.NamedTime(count=int(count[rest].sum()), self_us=own_us, total_us=total_us))
    return rows
