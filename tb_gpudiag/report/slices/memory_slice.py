"""Slices of one device's memory: its curve, and which allocations in a range stayed live; the largest
allocations over a range as bands; what was live at a moment; and call stacks of allocations as one merged
tree.

stack_parent, stack_last, stack_kind, stack_name   the tree in depth-first order; names are in `stack_text`
memory_node                                        node of each allocation, or NONE

Ranges include both ends, so that a range up to the recording's end contains the last event. The curve at the
range's end is the curve before its start, plus what was allocated in it, minus what was freed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64, mask_of, places_of, summed
from tb_gpudiag.facts.core.intervals import expand
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.memory_kinds import KINDS
from tb_gpudiag.facts.operators.call_tree import MergedTree, merge
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.memory_history import NEVER_NS, memory_of
from tb_gpudiag.report.slices.prepared import (
    NS_PER_US,
    Prepared,
    Pyramid,
    Span,
    TextTable,
    curve_message,
    heaviest_nodes,
    requested_span,
    slice_curve,
    step_marks,
    text_at,
    unpack,
)
from tb_gpudiag.vocabulary.frames import LineKind
from tb_gpudiag.vocabulary.marks import merged_name
from tb_gpudiag.vocabulary.recorded import Category

MOST_STACKS = 5_000
"""Stacks of a snapshot with most bytes. A training script has some hundreds."""

MOST_FRAMES = 128


class _Stacks(NamedTuple):
    """A merged tree with the category and name of each node, and the node of each allocation."""

    tree: MergedTree
    kind: npt.NDArray[np.uint8]
    names: list[str]
    node: Int64


def prepare_stacks(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of all devices' allocations, in the order of prepare_memory."""
    found = _of_snapshot(facts) if facts.trace.memory.stacks else _of_calls(facts)
    texts = TextTable()
    name = [texts.add(text) for text in found.names]
    text, first = texts.arrays()
    return {
        "memory_node": found.node.astype(np.int32),
        "stack_parent": found.tree.parent.astype(np.int32),
        "stack_last": found.tree.last.astype(np.int32),
        "stack_kind": found.kind,
        "stack_name": np.array(name, np.int32),
        "stack_text": text,
        "stack_text_first": first,
    }


def _of_snapshot(facts: Facts) -> _Stacks:
    none = np.zeros(0, np.int64)
    stack = np.concatenate([none, *(device.allocations.stack for device in facts.memory)])
    size = np.concatenate([none, *(device.allocations.bytes for device in facts.memory)])
    stacks = facts.trace.memory.stacks
    total = np.bincount(stack[stack != NONE], size[stack != NONE], len(stacks))
    parents: list[int] = []
    depths: list[int] = []
    names: list[str] = []
    known: dict[tuple[int, str], int] = {}
    leaf = np.full(len(stacks) + 1, NONE, np.int64)  # one more, so that NONE stays NONE
    for index in np.argsort(-total, kind="stable")[:MOST_STACKS].tolist():
        at = NONE
        for depth, frame in enumerate(stacks[index].split("\n")[:MOST_FRAMES]):
            found = known.get((at, frame))
            if found is None:
                found = known[at, frame] = len(names)
                parents.append(at)
                depths.append(depth)
                names.append(frame)
            at = found
        leaf[index] = at
    key = np.unique(names, return_inverse=True)[1].astype(np.int64) if names else none
    tree, node = merge(np.array(parents, np.int64), np.array(depths, np.int64), key)
    kind = np.full(len(tree), Category.PYTHON_FUNCTION, np.uint8)
    of_item = np.r_[node, NONE]
    return _Stacks(tree, kind, [names[i] for i in tree.first.tolist()], of_item[leaf[stack]])


def _of_calls(facts: Facts) -> _Stacks:
    calls, events = facts.call_tree, facts.events
    operator = np.concatenate(
        [np.zeros(0, np.int64), *(device.allocations.operator for device in facts.memory)]
    )
    of_event = np.full(len(events) + 1, NONE, np.int64)
    of_event[calls.calls.event] = calls.node
    of_event[calls.calls.repeat] = of_event[calls.calls.repeated]
    node = of_event[operator]
    used = mask_of(node[node != NONE], len(calls.tree))
    sums = np.r_[0, np.cumsum(used)]
    item = np.flatnonzero(sums[calls.tree.last] - sums[:-1] > 0)
    place = places_of(item, len(used))
    key = np.unique(calls.kind_key, return_inverse=True)[1].astype(np.int64)
    tree, of_item = merge(place[calls.tree.parent[item]], calls.tree.depth[item], key[item])
    event = calls.event[item[tree.first]] if len(tree) else item
    names = ["thread" if i == NONE else merged_name(events.names[events.name[i]]) for i in event.tolist()]
    return _Stacks(tree, calls.category[item[tree.first]], names, np.r_[of_item, NONE][place[node]])


MOST_SITES = 50
"""Rows of the table of allocation sites."""

MOST_BANDS = 2_000
"""Bands of a picture, those with the largest area. A screen has 300 rows for them."""

MOST_NODES = 4_000
MOST_BLOCKS = 50

SMALLEST_SHARE = 0.0005
"""Of the width: under one pixel on a screen of 1,920."""


def slice_memory(
    prepared: Prepared, device: int | None, start_us: float | None, end_us: float | None, width: int
) -> pb.MemorySlice:
    """Return a range of one device's memory for `width` pixels. None is the first device, or the
    recording's start or end. Raises UsageError: the trace has no memory of this device."""
    meta, index = memory_of(prepared, device)
    span = requested_span(meta, start_us, end_us)
    allocated, reserved = (
        slice_curve(unpack(prepared, "memory_curve", curve), span.start_ns, span.end_ns + 1, width)
        for curve in (2 * index, 2 * index + 1)
    )
    found = pb.MemorySlice(
        device=meta["devices"][index],
        start_us=span.start_ns / NS_PER_US,
        end_us=span.end_ns / NS_PER_US,
        trace_start_us=span.first_ns / NS_PER_US,
        trace_end_us=span.last_ns / NS_PER_US,
        allocated=curve_message(allocated),
        reserved=curve_message(reserved),
        exact=allocated.exact and reserved.exact,
        steps=step_marks(prepared, span, "memory_"),
    )
    rows = _within(prepared, "memory_frees_first", "memory_free_ns", index, span)
    found.freed_bytes = int(prepared["memory_free_bytes"][rows].sum())
    found.frees = rows.stop - rows.start
    _add_allocations(found, prepared, index, span)
    if not meta["paired"][index]:
        # Mark survivors as unknown, for a trace whose frees do not name their allocation.
        found.survived_bytes = found.kept_bytes = NONE
        for site in found.sites:
            site.survived_bytes = site.kept_bytes = NONE
    return found


def _within(prepared: Prepared, first: str, time: str, index: int, span: Span) -> slice[int, int, None]:
    """The device's rows in the range, both ends included."""
    low, high = prepared[first][index : index + 2].tolist()
    own = np.asarray(prepared[time])[low:high]
    left, right = np.searchsorted(own, span.start_ns), np.searchsorted(own, span.end_ns, side="right")
    return slice(low + int(left), low + int(right))


def _add_allocations(found: pb.MemorySlice, prepared: Prepared, index: int, span: Span) -> None:
    rows = _within(prepared, "memory_allocations_first", "memory_made_ns", index, span)
    size, freed, group = (
        np.asarray(prepared[f"memory_{name}"])[rows] for name in ("bytes", "freed_ns", "group")
    )
    alive = np.flatnonzero(freed > span.end_ns)
    kept = alive[freed[alive] == NEVER_NS]
    found.allocated_bytes, found.allocations = int(size.sum()), len(size)
    found.survived_bytes, found.survivors = int(size[alive].sum()), len(alive)
    found.kept_bytes = int(size[kept].sum())
    groups = len(prepared["memory_groups"])
    count = np.bincount(group, minlength=groups)
    allocated, survived, left = (
        np.bincount(group[some], size[some], groups) for some in (slice(None), alive, kept)
    )
    # Most survived bytes first, then most allocated bytes.
    order = np.lexsort((-allocated, -survived))[:MOST_SITES]
    for site in order[count[order] > 0].tolist():
        operator, place = site_of(prepared, site)
        found.sites.add(
            operator=operator,
            place=place,
            allocated_bytes=float(allocated[site]),
            allocations=int(count[site]),
            survived_bytes=float(survived[site]),
            kept_bytes=float(left[site]),
        )


def site_of(prepared: Prepared, group: int) -> tuple[str, pb.Place | None]:
    """Return operator and place of a group of allocations."""
    operator, file, line, function, kind = (int(part) for part in prepared["memory_groups"][group])
    text = [text_at(prepared, "memory_text", index) for index in (operator, file, function)]
    place = pb.Place(
        file=text[1], line=line, line_kind=LineKind(kind).name, function=text[2], operator=text[0]
    )
    return text[0], place if text[1] or text[2] else None


def slice_memory_bands(
    prepared: Prepared, device: int | None, start_us: float | None, end_us: float | None, width: int
) -> pb.MemoryBands:
    """Return the bands of one device in a range, in at most `width` columns. None is the first device, or the
    recording's start or end. Raises UsageError: the trace has no memory of this device, or does not say what
    was freed."""
    meta, index = memory_of(prepared, device, frees=True)
    span = requested_span(meta, start_us, end_us)
    at_ns, allocated = _columns(
        unpack(prepared, "memory_curve", 2 * index), span.start_ns, span.end_ns, width
    )
    found = pb.MemoryBands(
        device=meta["devices"][index],
        start_us=span.start_ns / NS_PER_US,
        end_us=span.end_ns / NS_PER_US,
        column_us=(at_ns / NS_PER_US).tolist(),
    )
    first, last = prepared["memory_allocations_first"][index : index + 2].tolist()
    _add_bands(found, prepared, slice(first, last), at_ns, allocated)
    return found


def _columns(curve: Pyramid, start_ns: int, end_ns: int, width: int) -> tuple[Int64, Int64]:
    """Return the moment that each column shows, and what was allocated then, shape (columns,)."""
    columns = max(1, min(width, end_ns - start_ns))
    edge = start_ns + np.arange(columns + 1, dtype=np.int64) * (end_ns - start_ns) // columns
    time, value = curve.time_ns, curve.value
    if not len(time):
        return edge[:-1], np.zeros(columns, np.int64)
    # Before the first event of a column, the last one before it is valid.
    left = np.maximum(np.searchsorted(time, edge[:-1], side="right") - 1, 0)
    right = np.searchsorted(time, edge[1:], side="left")
    right[-1] = np.searchsorted(time, end_ns, side="right")
    owner, place = expand(left, np.maximum(right, left + 1))
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    most = np.maximum.reduceat(value[place], first)
    hit = np.flatnonzero(value[place] == most[owner])
    at = np.zeros(columns, np.int64)
    at[owner[hit[::-1]]] = place[hit[::-1]]
    return np.maximum(time[at], edge[:-1]), most


def _add_bands(
    found: pb.MemoryBands, prepared: Prepared, rows: slice[int, int, None], at_ns: Int64, allocated: Int64
) -> None:
    made, freed, size = (
        np.asarray(prepared[f"memory_{name}"])[rows] for name in ("made_ns", "freed_ns", "bytes")
    )
    near = np.flatnonzero((made <= at_ns[-1]) & (freed > at_ns[0]))
    begin = np.searchsorted(at_ns, made[near], side="left")
    end = np.searchsorted(at_ns, freed[near], side="left")
    seen = end > begin
    near, begin, end = near[seen], begin[seen], end[seen]
    kept = np.arange(len(near))
    if len(near) > MOST_BANDS:
        kept = np.sort(np.argpartition(-size[near] * (end - begin), MOST_BANDS)[:MOST_BANDS])
    found.more_bands = len(near) - len(kept)
    near, begin, end = near[kept], begin[kept], end[kept]
    change = np.zeros(len(at_ns) + 1, np.int64)
    np.add.at(change, begin, size[near])
    np.add.at(change, end, -size[near])
    found.rest_bytes.extend(np.maximum(allocated - np.cumsum(change)[:-1], 0).tolist())
    found.band_from.extend(begin.tolist())
    found.band_to.extend(end.tolist())
    found.band_bytes.extend(size[near].tolist())
    found.band_made_us.extend(np.where(made[near] == NONE, NONE, made[near] / NS_PER_US).tolist())
    found.band_freed_us.extend(np.where(freed[near] == NEVER_NS, NONE, freed[near] / NS_PER_US).tolist())
    group, site = np.unique(np.asarray(prepared["memory_group"])[rows][near], return_inverse=True)
    found.band_site.extend(site.reshape(-1).tolist())
    found.kinds.extend(kind.value for kind in KINDS)
    found.band_kind.extend(np.asarray(prepared["memory_kind"])[rows][near].tolist())
    for one in group.tolist():
        operator, place = site_of(prepared, one)
        found.sites.add(operator=operator, place=place)


def slice_memory_state(prepared: Prepared, device: int | None, at_us: float | None) -> pb.MemoryState:
    """Return the state of one device at a time; None is the first device, or the recording's end. Raises
    UsageError: the trace has no memory of this device, or does not say what was freed."""
    meta, index = memory_of(prepared, device, frees=True)
    at_ns = requested_span(meta, None, at_us).end_ns
    rows = slice(*prepared["memory_allocations_first"][index : index + 2].tolist())
    made, freed, size, node = (
        np.asarray(prepared[f"memory_{name}"])[rows] for name in ("made_ns", "freed_ns", "bytes", "node")
    )
    live = np.flatnonzero((made <= at_ns) & (freed > at_ns))
    total = int(size[live].sum())
    unknown = int(size[live][node[live] == NONE].sum())
    curve = slice_curve(unpack(prepared, "memory_curve", 2 * index), at_ns, at_ns + 1, 1)
    allocated = int(curve.high[-1]) if len(curve.high) else total
    found = pb.MemoryState(
        device=meta["devices"][index],
        live_bytes=total,
        allocations=len(live),
        before_bytes=int(size[live][made[live] == NONE].sum()),
        earlier_bytes=max(0, allocated - total),
        unknown_bytes=unknown,
    )
    _add_nodes(found, prepared, node[live].astype(np.int64), size[live])
    _add_blocks(found, prepared, live + rows.start, size[live])
    return found


def _add_nodes(found: pb.MemoryState, prepared: Prepared, node: Int64, size: Int64) -> None:
    parent = np.asarray(prepared["stack_parent"]).astype(np.int64)
    last = np.asarray(prepared["stack_last"])
    known = node != NONE
    own = summed(node[known], size[known], len(parent))
    blocks = np.bincount(node[known], minlength=len(parent))
    whole, count = (
        sums[last] - sums[:-1] for sums in (np.r_[0, np.cumsum(own)], np.r_[0, np.cumsum(blocks)])
    )
    kept = np.flatnonzero(whole >= max(1, int(own.sum() * SMALLEST_SHARE)))
    kept = heaviest_nodes(kept, whole, MOST_NODES)
    place = places_of(kept, len(parent))
    dropped = np.flatnonzero((place[:-1] == NONE) & (whole > 0))
    above = place[parent[dropped]]
    names, name = np.unique(np.asarray(prepared["stack_name"])[kept], return_inverse=True)
    found.names.extend(text_at(prepared, "stack_text", i) for i in names.tolist())
    found.node.extend(kept.tolist())
    found.parent.extend(place[parent[kept]].tolist())
    found.name.extend(name.tolist())
    found.kind.extend(np.asarray(prepared["stack_kind"])[kept].tolist())
    found.node_bytes.extend(whole[kept].tolist())
    found.count.extend(count[kept].tolist())
    found.left_out.extend(np.bincount(above[above != NONE], minlength=len(kept)).tolist())


def _add_blocks(found: pb.MemoryState, prepared: Prepared, rows: Int64, size: Int64) -> None:
    order = np.argsort(-size, kind="stable")
    for i in order[:MOST_BLOCKS].tolist():
        row = int(rows[i])
        made, freed = int(prepared["memory_made_ns"][row]), int(prepared["memory_freed_ns"][row])
        operator, place = site_of(prepared, int(prepared["memory_group"][row]))
        found.blocks.add(
            bytes=size[i],
            made_us=NONE if made == NONE else made / NS_PER_US,
            freed_us=NONE if freed == NEVER_NS else freed / NS_PER_US,
            operator=operator,
            place=place,
        )
    found.more_blocks = max(0, len(order) - MOST_BLOCKS)
    found.more_blocks_bytes = size[order[MOST_BLOCKS:]].sum()
