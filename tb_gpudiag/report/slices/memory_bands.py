"""Allocations over a time range, stacked: the largest ones, which the page draws as bands in columns.

Each column shows the moment at which most was allocated in its part of the range, so that no peak is lost.
"""

from __future__ import annotations

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.intervals import expand
from tb_gpudiag.facts.memory.memory_kinds import KINDS
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.curves import Pyramid, unpack
from tb_gpudiag.report.slices.memory_history import NEVER_NS, device_index
from tb_gpudiag.report.slices.memory_slice import site_of
from tb_gpudiag.report.slices.prepared import NS_PER_US, Prepared, read_meta, requested_span

MOST_BANDS = 2_000
"""Bands of a picture, those with the largest area. A screen has 300 rows for them."""


def slice_memory_bands(
    prepared: Prepared, device: int | None, start_us: float | None, end_us: float | None, width: int
) -> pb.MemoryBands:
    """Return the bands of one device in a range, in at most `width` columns. None is the first device, or the
    recording's start or end. Raises UsageError: the trace has no memory of this device, or does not say what
    was freed."""
    meta = read_meta(prepared, "memory_meta")
    index = device_index(meta, device)
    if not meta["paired"][index]:
        raise UsageError("The trace does not say which allocations were freed.", where="device")
    span = requested_span(meta, start_us, end_us)
    at_ns, allocated = _columns(
        unpack(prepared, "memory_curve", 2 * index), span.start_ns, span.end_ns, width
    )
    found = pb.MemoryBands(
        state="ready",
        progress=1.0,
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
