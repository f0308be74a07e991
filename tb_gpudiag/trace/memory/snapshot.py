"""Read a CUDA memory snapshot (`torch.cuda.memory._dump_snapshot`) into a Trace.

A snapshot has two parts: the allocator's segments and blocks at the time it was taken, and the history before
that, as far back as the ring buffer of `_record_memory_history` goes. The history has no totals, so the
blocks give the last total. Going back from there, undoing each entry gives the total before it.

Sizes are what the allocator takes: it rounds requests up to whole units. So it does with those that failed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, UInt8
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import MemoryEvents, Metadata, Segments, Trace
from tb_gpudiag.trace.files.source import Limits
from tb_gpudiag.trace.memory.snapshot_history import (
    AllocatorHistory,
    Mark,
    PlainEntries,
    TableEntries,
    marks,
    no_history,
    read_history,
    spans,
)
from tb_gpudiag.trace.memory.snapshot_pickle import check_containers, count_of, load_plain
from tb_gpudiag.trace.memory.snapshot_segments import SnapshotStacks, read_segments
from tb_gpudiag.trace.memory.snapshot_tables import MISSING, NotTables, read_tables
from tb_gpudiag.trace.times import MOST_DEVICES, note_of, reach, settled
from tb_gpudiag.trace.times import within as within_times
from tb_gpudiag.vocabulary.recorded import DeviceType, MemoryAction, allocated_bytes

_ALLOCATE, _FREE, _GROW, _SHRINK, _ = (int(action) for action in MemoryAction)


@dataclass(frozen=True, eq=False)
class _Parts:
    """The segments, the history of each device that is read, how many devices there are, and the marks.

    host_segments: of pinned host memory, which torch 2.14 and later add."""

    segments: list[Any]
    host_segments: list[Any]
    histories: list[AllocatorHistory]
    devices: int
    annotations: Any


def read_snapshot(data: bytes, limits: Limits, path: str, progress: Callable[[float, str], None]) -> Trace:
    """Read the bytes of a pickle. Raises Unsafe, NotATrace, TooLarge."""
    collecting = gc.isenabled()
    gc.disable()  # it would take a third longer, and find nothing among millions of objects
    try:
        return _read(data, limits, path, progress)
    finally:
        if collecting:
            gc.enable()


def _read(data: bytes, limits: Limits, path: str, progress: Callable[[float, str], None]) -> Trace:
    progress(0.1, "unpickling")
    stacks = SnapshotStacks()
    parts = _from_tables(data, limits, path, stacks)
    if parts is None:
        # Texts of what the tables had are no harm, but would be kept.
        stacks = SnapshotStacks()
        parts = _from_plain(data, limits, path, stacks)
    progress(0.6, "reading the history")
    notes: list[str] = []
    if parts.devices > MOST_DEVICES:
        notes.append(f"the history of {parts.devices - MOST_DEVICES:,} devices skipped: no process has more")
    histories = parts.histories
    state, malformed = read_segments(parts.segments, stacks)
    timed = all(history.timed for history in histories)
    marked = marks(parts.annotations) if timed else []
    if timed:
        histories, marked = _without_strays(histories, marked, notes)
    if not timed:
        notes.append("the history has no times (an older torch wrote it): each entry counts as a microsecond")
    start_us = min(
        [int(h.time_us.min()) for h in histories if timed and len(h.time_us)] + [m[2] for m in marked],
        default=0,
    )
    progress(0.8, "computing totals")
    devices = sorted({h.device for h in histories if len(h.action)} | set(state.device.tolist()))
    of_device = {history.device: history for history in histories}
    rows = [_rows(of_device.get(d, no_history(d)), state, start_us if timed else 0, notes) for d in devices]
    unknown = sum(history.unknown for history in histories)
    if unknown:
        notes.append(f"{unknown:,} entries of the history of an unknown kind skipped")
    malformed += sum(history.malformed for history in histories)
    if malformed:
        notes.append(f"{malformed:,} malformed entries or blocks skipped")
    if parts.host_segments:
        of_host = read_segments(parts.host_segments, SnapshotStacks())[0]
        used, reserved = int(of_host.block_bytes[of_host.block_used].sum()), int(of_host.bytes.sum())
        notes.append(
            f"pinned host memory is not shown: {used >> 20:,} MiB in use, {reserved >> 20:,} MiB reserved"
        )
    if stacks.left_out:
        notes.append(f"{stacks.left_out:,} stacks skipped: there are too many")
    progress(1.0, "read")
    return Trace(
        events=spans(marked, start_us),
        memory=_joined(rows, stacks),
        metadata=Metadata(
            device_properties=[
                {"id": row.device, "totalGlobalMem": row.capacity_bytes} for row in rows if row.capacity_bytes
            ],
        ),
        status="COMPLETE",
        events_read=sum(history.read for history in histories),
        malformed_events=malformed,
        start_ns=start_us * 1000,
        kind="snapshot",
        segments=state,
        notes=notes,
    )


def _from_tables(data: bytes, limits: Limits, path: str, stacks: SnapshotStacks) -> _Parts | None:
    """Read a pickle without making an object of each entry; None if that cannot be done."""
    dicts = check_containers(data, limits, path)
    tables = read_tables(data)
    found = tables.parts() if tables is not None else None
    if tables is None or found is None or not {"segments", "device_traces"} <= found.keys():
        return None
    if not (tables.is_list(found["segments"]) and tables.is_list(found["device_traces"])):
        return None
    segments = tables.plain(found["segments"])
    of_host = _listed(tables.plain(found.get("host_segments", MISSING)))
    devices = tables.items(found["device_traces"])
    lists = [(i, value) for i, value in enumerate(devices[:MOST_DEVICES].tolist()) if tables.is_list(value)]
    _check_repetition(dicts, segments + of_host, sum(tables.length(value) for _, value in lists), path)
    try:
        histories = [
            read_history(i, TableEntries(tables, tables.dicts(tables.items(value))), stacks)
            for i, value in lists
        ]
    except NotTables:
        return None
    annotations = tables.plain(found.get("external_annotations", MISSING))
    return _Parts(segments, of_host, histories, len(devices), annotations)


def _from_plain(data: bytes, limits: Limits, path: str, stacks: SnapshotStacks) -> _Parts:
    segments, traces, more = _loaded_parts(load_plain(data, limits, path), path)
    of_host = _listed(more.get("host_segments"))
    devices = [(i, entries) for i, entries in enumerate(traces[:MOST_DEVICES]) if type(entries) is list]
    entries_read = sum(len(entries) for _, entries in devices)
    _check_repetition(count_of(data, b"}"), segments + of_host, entries_read, path)
    histories = [read_history(i, PlainEntries(entries), stacks) for i, entries in devices]
    return _Parts(segments, of_host, histories, len(traces), more.get("external_annotations"))


def _listed(found: Any) -> list[Any]:
    return found if type(found) is list else []


def _loaded_parts(loaded: Any, path: str) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Return the segments, the history of each device, and what else the snapshot has."""
    if type(loaded) is list and loaded and type(loaded[0]) is dict and "blocks" in loaded[0]:
        return loaded, [], {}  # torch.cuda.memory_snapshot(), pickled by hand
    if type(loaded) is dict and type(loaded.get("segments")) is list:
        traces = loaded.get("device_traces")
        if type(traces) is list or traces is None:
            return loaded["segments"], traces or [], loaded
    raise NotATrace(
        "it is a pickle of plain data, but not a memory snapshot: it has no segments",
        where=path,
        remedy="name a file that torch.cuda.memory._dump_snapshot wrote",
    )


def _check_repetition(dicts: int, segments: list[Any], entries: int, path: str) -> None:
    """Raise NotATrace if a pickle refers to the same list many times: each time, it would become new rows.

    In a snapshot, each entry and each block is a dict of its own. dicts: as many as the pickle can have.
    """
    blocks = [s["blocks"] for s in segments if type(s) is dict and type(s.get("blocks")) is list]
    if len(segments) + entries + sum(map(len, blocks)) > dicts:
        raise NotATrace(
            "it has the same entries or blocks many times",
            where=path,
            remedy="name a file that torch.cuda.memory._dump_snapshot wrote",
        )


def _without_strays(
    histories: list[AllocatorHistory], marked: list[Mark], notes: list[str]
) -> tuple[list[AllocatorHistory], list[Mark]]:
    """Settle stray times (see times.py), and make the times of each history never decrease."""
    mark_ns = np.array([time_us for _, _, time_us in marked], np.int64) * 1000
    bounds = reach(mark_ns, *(history.time_us * 1000 for history in histories))
    marks_near = within_times(mark_ns, *bounds)
    stray = int((~marks_near).sum())
    settled_histories = []
    for history in histories:
        time_ns, count = settled(history.time_us * 1000, *bounds)
        stray += count
        settled_histories.append(replace(history, time_us=np.maximum.accumulate(time_ns // 1000)))
    if stray:
        notes.append(note_of(stray))
    return settled_histories, [mark for mark, near in zip(marked, marks_near, strict=True) if near]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of MemoryEvents of one device, in time order. All arrays have shape (m,); `bytes` is signed."""

    device: int
    time_ns: Int64
    action: UInt8
    bytes: Int64
    address: npt.NDArray[np.uint64]
    allocated: Int64
    reserved: Int64
    stack: Int32
    stream: Int64
    found: Bool
    driver_free: Int64
    capacity_bytes: int  # what the process could have got, as a failed allocation says; 0 if none does


def _rows(history: AllocatorHistory, state: Segments, start_us: int, notes: list[str]) -> _Rows:
    """Add totals to the history, and before it the blocks that are older than the history and still used."""
    own = state.device == history.device
    used = state.block_used & own[state.block_segment]
    moves = (history.action == _ALLOCATE) | (history.action == _FREE)
    older = np.flatnonzero(used & ~_is_among(state.block_address, history.address[moves]))
    taken = allocated_bytes(state.block_requested_bytes)
    older_bytes = taken[older]
    falls = (history.action == _FREE) | (history.action == _SHRINK)
    size = np.where(moves, allocated_bytes(history.bytes), history.bytes)
    signed = np.where(falls, -size, size)
    segment = (history.action == _GROW) | (history.action == _SHRINK)
    allocated, before = _back_from(int(taken[used].sum()), np.where(moves, signed, 0))
    reserved, reserved_before = _back_from(int(state.bytes[own].sum()), np.where(segment, signed, 0))
    # Older blocks were allocated before the history. If the totals say less, the snapshot was not taken where
    # the history ends.
    lift = max(0, int(older_bytes.sum()) - before, -int(allocated.min(initial=0)))
    if lift:
        notes.append(
            f"GPU {history.device}: the history does not match the blocks at its end (was recording stopped "
            f"before the snapshot was taken?): the curve is {lift:,} bytes higher than the blocks say"
        )
    if own.any() or segment.any():
        reserved_lift = max(0, -reserved_before, -int(reserved.min(initial=0)))
        reserved, reserved_before = reserved + reserved_lift, reserved_before + reserved_lift
    else:
        reserved, reserved_before = np.full(len(signed), NONE), NONE
    driver_free = np.full(len(signed), NONE)
    for i, free in history.free_at_failures:
        driver_free[i] = free
    count = len(older)
    first = before + lift - int(older_bytes.sum())
    return _Rows(
        history.device,
        np.r_[np.zeros(count, np.int64), (history.time_us - start_us) * 1000],
        np.r_[np.full(count, _ALLOCATE, np.uint8), history.action],
        np.r_[older_bytes, signed],
        np.r_[state.block_address[older], history.address],
        np.r_[first + np.cumsum(older_bytes), allocated + lift],
        np.r_[np.full(count, reserved_before), reserved],
        np.r_[state.block_stack[older], history.stack],
        np.r_[state.stream[state.block_segment[older]], history.stream],
        np.arange(count + len(signed)) < count,
        np.r_[np.full(count, NONE), driver_free],
        max((int(reserved[i]) + free for i, free in history.free_at_failures if reserved[i] > 0), default=0),
    )


def _is_among(few: npt.NDArray[np.uint64], many: npt.NDArray[np.uint64]) -> Bool:
    """Mask of the few that are among the many, shape of `few`. np.isin takes several times as long."""
    ordered = np.sort(many)
    first, last = (np.searchsorted(ordered, few, side=side) for side in ("left", "right"))
    return first < last


def _back_from(last: int, change: Int64) -> tuple[Int64, int]:
    """Return the total after each change, shape (m,), and the one before all of them, from the last total."""
    before = last - int(change.sum())
    return before + np.cumsum(change), before


def _joined(devices: list[_Rows], stacks: SnapshotStacks) -> MemoryEvents:
    def column(of: Callable[[_Rows], npt.NDArray[Any]], kind: Any) -> npt.NDArray[Any]:
        return np.concatenate([of(rows) for rows in devices] or [np.zeros(0)]).astype(kind, copy=False)[order]

    # Those of one device are in order.
    order: slice | Int64 = slice(None)
    if len(devices) > 1:
        order = np.argsort(np.concatenate([rows.time_ns for rows in devices]), kind="stable")
    time_ns = column(lambda r: r.time_ns, np.int64)
    count = len(time_ns)
    return MemoryEvents(
        time_ns=time_ns,
        action=column(lambda r: r.action, np.uint8),
        bytes=column(lambda r: r.bytes, np.int64),
        address=column(lambda r: r.address, np.uint64),
        device_type=np.full(count, DeviceType.CUDA, np.int32),
        device=column(lambda r: np.full(len(r.action), r.device), np.int32),
        allocated=column(lambda r: r.allocated, np.int64),
        reserved=column(lambda r: r.reserved, np.int64),
        thread=np.full(count, NONE, np.int32),
        stack=column(lambda r: r.stack, np.int32),
        stacks=stacks.texts,
        found=column(lambda r: r.found, np.bool_),
        stream=column(lambda r: r.stream, np.int64),
        driver_free=column(lambda r: r.driver_free, np.int64),
    )
