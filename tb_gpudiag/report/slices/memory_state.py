"""What was live on a device at a moment: by call stack, and the largest allocations."""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64, places_of, summed
from tb_gpudiag.errors import UsageError
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.curves import slice_curve, unpack
from tb_gpudiag.report.slices.memory_history import NEVER_NS, device_index
from tb_gpudiag.report.slices.memory_slice import site_of
from tb_gpudiag.report.slices.prepared import (
    NS_PER_US,
    Prepared,
    heaviest_nodes,
    read_meta,
    requested_span,
    text_at,
)

MOST_NODES = 4_000
MOST_BLOCKS = 50

SMALLEST_SHARE = 0.0005
"""Of the width: under one pixel on a screen of 1,920."""


def slice_memory_state(prepared: Prepared, device: int | None, at_us: float | None) -> pb.MemoryState:
    """Return the state of one device at a time; None is the first device, or the recording's end. Raises
    UsageError: the trace has no memory of this device, or does not say what was freed."""
    meta = read_meta(prepared, "memory_meta")
    index = device_index(meta, device)
    if not meta["paired"][index]:
        raise UsageError("The trace does not say which allocations were freed.", where="device")
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
        state="ready",
        progress=1.0,
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
    found.names.extend(
        text_at(prepared["stack_text"], prepared["stack_text_first"], i) for i in names.tolist()
    )
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
