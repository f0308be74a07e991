"""The segments of a memory snapshot, and what was in them at a moment.

A snapshot has the segments at its end. Undoing the later entries of the history gives those of any moment:
an address is in a segment if the snapshot's own segments, less what the allocator got later, plus what it
returned later, cover it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64, places_of, summed
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.memory_history import NEVER_NS, memory_of
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, joined, requested_span, text_at
from tb_gpudiag.trace.events import MemoryEvents, Segments
from tb_gpudiag.vocabulary.recorded import MemoryAction, allocated_bytes

MOST_ROWS: Final = 2_000
MOST_BOXES: Final = 30_000
MOST_NODES: Final = 20_000

# Allocations shorter than this share of their segment are merged with their neighbors: no screen shows them.
_CELLS: Final = 1_000

# Addresses beyond this are not real, and would not fit the arithmetic.
_LAST_ADDRESS: Final = 1 << 61

_SEGMENT_ARRAYS: Final = ("address", "bytes", "stream", "pool", "expandable")
_MOVE_ARRAYS: Final = ("time_ns", "address", "bytes")
_EARLIER_ARRAYS: Final = ("address", "bytes", "freed_ns")


def prepare_segments(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of all devices, in the order of prepare_memory. Nothing without segments.

    map_segment_…   the segments at the snapshot's end
    map_move_…      what the allocator got from the driver (bytes above 0) and returned (below 0)
    map_address     address of each allocation
    map_earlier_…   allocations from before the recording that were freed in it
    """
    segments, memory = facts.trace.segments, facts.trace.memory
    if segments is None:
        return {}
    devices = facts.memory
    none = np.zeros(0, np.int64)
    addresses = [_address(memory.address[device.allocations.event]) for device in devices]
    return {
        "map_address": np.concatenate([none, *addresses]),
        **joined(
            "map_segment_first",
            "map_segment",
            _SEGMENT_ARRAYS,
            [_own_segments(segments, d.device) for d in devices],
        ),
        **joined("map_move_first", "map_move", _MOVE_ARRAYS, [_moves(memory, d.device) for d in devices]),
        **joined("map_earlier_first", "map_earlier", _EARLIER_ARRAYS, [_earlier(memory, d) for d in devices]),
    }


def _address(values: npt.NDArray[np.uint64]) -> Int64:
    return np.minimum(values, np.uint64(_LAST_ADDRESS)).astype(np.int64)


def _own_segments(segments: Segments, device: int) -> list[Int64]:
    own = (segments.device == device) & (segments.address < _LAST_ADDRESS)
    columns = (
        _address(segments.address),
        segments.bytes,
        segments.stream,
        segments.pool,
        segments.expandable,
    )
    return [np.asarray(column)[own].astype(np.int64) for column in columns]


def _moves(memory: MemoryEvents, device: int) -> list[Int64]:
    moved = np.isin(memory.action, (MemoryAction.GROW, MemoryAction.SHRINK))
    own = moved & (memory.device == device) & (memory.address < _LAST_ADDRESS)
    return [memory.time_ns[own], _address(memory.address[own]), memory.bytes[own]]


def _earlier(memory: MemoryEvents, device: DeviceMemory) -> list[Int64]:
    allocations = device.allocations
    event = device.curve.event[allocations.early_free]
    return [_address(memory.address[event]), allocations.early_free_bytes, memory.time_ns[event]]


class _Rows(NamedTuple):
    """Segments by address, shape (s,) each. stream and pool are NONE if the snapshot does not say."""

    address: Int64
    bytes: Int64
    stream: Int64
    pool: Int64
    expandable: Int64


class _Blocks(NamedTuple):
    """Allocations by address, shape (b,) each."""

    address: Int64
    requested: Int64
    made_ns: Int64  # NONE: before the recording
    freed_ns: Int64
    node: Int64

    def take(self, index: npt.NDArray[Any]) -> _Blocks:
        return _Blocks(*(column[index] for column in self))


def slice_segments(prepared: Prepared, device: int | None, at_us: float | None) -> pb.SegmentMap:
    """Return the segments of one device at a time; None is the first device, or the recording's end.
    Raises UsageError: the file has no memory of this device, or no segments."""
    meta, index = memory_of(prepared, device)
    if "map_address" not in prepared:
        raise UsageError("Only memory snapshots have segments.", where="id")
    at_ns = requested_span(meta, None, at_us).end_ns
    rows = _segments_at(prepared, index, at_ns)
    blocks = _blocks_at(prepared, index, at_ns)
    owner = np.searchsorted(rows.address, blocks.address, side="right") - 1
    inside = owner >= 0
    inside[inside] &= blocks.address[inside] < rows.address[owner[inside]] + rows.bytes[owner[inside]]
    outside = int(blocks.requested[~inside].sum())
    blocks, owner = blocks.take(inside), owner[inside]
    used = summed(owner, blocks.requested, len(rows.address))
    found = pb.SegmentMap(
        device=meta["devices"][index],
        segments=len(rows.address),
        bytes=int(rows.bytes.sum()),
        used_bytes=int(used.sum()),
        inactive_bytes=int((rows.bytes - used)[used > 0].sum()),
        free_bytes=int(rows.bytes[used == 0].sum()),
        outside_bytes=outside,
    )
    _add(found, prepared, rows, blocks, owner, used)
    return found


def _part(prepared: Prepared, name: str, parts: tuple[str, ...], index: int) -> list[Int64]:
    own = slice(*prepared[f"map_{name}_first"][index : index + 2].tolist())
    return [np.asarray(prepared[f"map_{name}_{part}"])[own] for part in parts]


def _segments_at(prepared: Prepared, index: int, at_ns: int) -> _Rows:
    address, size, stream, pool, expandable = _part(prepared, "segment", _SEGMENT_ARRAYS, index)
    time, moved, change = _part(prepared, "move", _MOVE_ARRAYS, index)
    later = time > at_ns
    moved, change = moved[later], change[later]
    # Where pieces begin and end, and by how much the cover changes there.
    edge = np.concatenate([address, address + size, moved, moved + np.abs(change)])
    sign = np.concatenate([np.ones_like(size), -np.ones_like(size), -np.sign(change), np.sign(change)])
    at, place = np.unique(edge, return_inverse=True)
    step = summed(place, sign, len(at))
    covered = np.cumsum(step) > 0
    owner = np.searchsorted(address, at, side="right") - 1
    known = owner >= 0
    known[known] &= at[known] < (address + size)[owner[known]]
    # An edge within an expandable segment, where it grew, does not begin another one.
    inner = known & (at > address[np.maximum(owner, 0)]) if len(address) else known
    inner &= (expandable[np.maximum(owner, 0)] > 0) if len(address) else known
    goes_on = np.r_[False, covered[:-1]]
    begins = np.flatnonzero(covered & ~(goes_on & inner))
    ends = np.flatnonzero((goes_on & ~covered) | (covered & goes_on & ~inner))
    start, owner, known = at[begins], owner[begins], known[begins]

    def of(column: Int64) -> Int64:
        return (
            np.where(known, column[np.maximum(owner, 0)], NONE) if len(column) else np.full(len(start), NONE)
        )

    return _Rows(start, at[ends] - start, of(stream), of(pool), of(expandable))


def _blocks_at(prepared: Prepared, index: int, at_ns: int) -> _Blocks:
    own = slice(*prepared["memory_allocations_first"][index : index + 2].tolist())
    made, freed, size, node = (
        np.asarray(prepared[f"memory_{name}"])[own] for name in ("made_ns", "freed_ns", "bytes", "node")
    )
    live = np.flatnonzero((made <= at_ns) & (freed > at_ns))
    address, earlier_size, earlier_freed = _part(prepared, "earlier", _EARLIER_ARRAYS, index)
    still = earlier_freed > at_ns
    nothing = np.full(int(still.sum()), NONE, np.int64)
    found = _Blocks(
        np.r_[np.asarray(prepared["map_address"])[own][live], address[still]],
        np.r_[size[live], earlier_size[still]],
        np.r_[made[live], nothing],
        np.r_[freed[live], earlier_freed[still]],
        np.r_[node[live].astype(np.int64), nothing],
    )
    return found.take(np.argsort(found.address, kind="stable"))


def _add(
    found: pb.SegmentMap, prepared: Prepared, rows: _Rows, blocks: _Blocks, owner: Int64, used: Int64
) -> None:
    """Add rows, and the boxes of the largest. owner: the segment of each block; used: bytes of each."""
    offset = blocks.address - rows.address[owner]
    end = np.minimum(offset + allocated_bytes(blocks.requested), rows.bytes[owner])
    largest_free = _largest_free(rows, owner, offset, end)
    count = np.bincount(owner, minlength=len(used))
    merged = _merged(rows.bytes[owner], owner, offset, end - offset)
    boxes = np.bincount(owner[merged], minlength=len(used))
    order = np.lexsort((rows.address, -rows.bytes))[:MOST_ROWS]
    boxed = np.cumsum(boxes[order]) <= MOST_BOXES
    row_of = np.full(len(used), NONE, np.int64)
    row_of[order[boxed]] = np.flatnonzero(boxed)
    for at, row in enumerate(order.tolist()):
        found.rows.add(
            address=f"0x{int(rows.address[row]):x}",
            bytes=int(rows.bytes[row]),
            used_bytes=int(used[row]),
            largest_free_bytes=int(largest_free[row]),
            blocks=int(count[row]),
            stream="" if rows.stream[row] == NONE else str(rows.stream[row]),
            pool=max(0, int(rows.pool[row])),
            expandable=bool(rows.expandable[row] > 0),
            boxed=bool(boxed[at]),
        )
    kept = np.flatnonzero(merged & (row_of[owner] != NONE))
    kept = kept[np.lexsort((offset[kept], row_of[owner[kept]]))]
    size = np.diff(np.r_[np.flatnonzero(merged), len(merged)])
    of_box = np.zeros(len(merged), np.int64)
    of_box[merged] = size
    several = of_box[kept] > 1
    last = kept + of_box[kept] - 1
    sums = np.r_[0, np.cumsum(blocks.requested)]
    found.box_row.extend(row_of[owner[kept]].tolist())
    found.box_offset.extend(offset[kept].tolist())
    found.box_bytes.extend((end[last] - offset[kept]).tolist())
    found.box_requested.extend((sums[last + 1] - sums[kept]).tolist())
    found.box_count.extend(of_box[kept].tolist())
    found.box_made_us.extend(_times(blocks.made_ns[kept], several, blocks.made_ns[kept] <= NONE))
    found.box_freed_us.extend(_times(blocks.freed_ns[kept], several, blocks.freed_ns[kept] == NEVER_NS))
    _add_nodes(found, prepared, np.where(several, NONE, blocks.node[kept]))


def _times(time_ns: Int64, several: Bool, never: Bool) -> list[float]:
    return np.where(several, 0, np.where(never, NONE, time_ns / NS_PER_US)).tolist()


def _largest_free(rows: _Rows, owner: Int64, offset: Int64, end: Int64) -> Int64:
    """Return the largest free stretch of each segment."""
    same = np.r_[False, owner[1:] == owner[:-1]]
    before = offset - np.where(same, np.r_[0, end[:-1]], 0)
    largest = np.zeros(len(rows.bytes), np.int64)
    np.maximum.at(largest, owner, before)
    last = np.zeros(len(rows.bytes), np.int64)
    np.maximum.at(last, owner, end)
    return np.maximum(largest, rows.bytes - last)


def _merged(whole: Int64, owner: Int64, offset: Int64, size: Int64) -> Bool:
    """Mask of the blocks that begin a box: small ones are in one with those before them in the same cell."""
    cell = offset // np.maximum(whole // _CELLS, 1)
    small = size * _CELLS < whole
    joins = small[1:] & small[:-1] & (cell[1:] == cell[:-1]) & (owner[1:] == owner[:-1])
    return np.r_[True, ~joins][: len(owner)]


def _add_nodes(found: pb.SegmentMap, prepared: Prepared, node: Int64) -> None:
    """Add the stacks of the boxes as a tree."""
    parent = np.asarray(prepared["stack_parent"]).astype(np.int64)
    used = np.zeros(len(parent) + 1, np.bool_)
    open_ = np.unique(node[node != NONE])
    while len(open_) and int(used.sum()) + len(open_) <= MOST_NODES:
        used[open_] = True
        above = np.unique(parent[open_])
        open_ = above[(above != NONE) & ~used[above]]
    kept = np.flatnonzero(used[:-1])
    place = places_of(kept, len(parent))
    names, name = np.unique(np.asarray(prepared["stack_name"])[kept], return_inverse=True)
    found.box_node.extend(place[node].tolist())
    found.node_parent.extend(place[parent[kept]].tolist())
    found.node_name.extend(name.tolist())
    found.names.extend(text_at(prepared, "stack_text", i) for i in names.tolist())
