"""Read a CUDA memory snapshot (`torch.cuda.memory._dump_snapshot`) into a Trace.

A snapshot has two parts: the allocator's segments and blocks at the time it was taken, and the history before
that, as far back as the ring buffer of `_record_memory_history` goes. The history has no totals, so the
blocks give the last total. Going back from there, undoing each entry gives the total before it.

Sizes are as requested. The allocator rounds them up within its blocks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int32, Int64, UInt8
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.devices import MOST_DEVICES
from tb_gpudiag.trace.events import MemoryEvents, Metadata, Segments, Trace
from tb_gpudiag.trace.files.limits import Limits
from tb_gpudiag.trace.memory.snapshot_marks import LATEST_US, Mark, marks, spans
from tb_gpudiag.trace.memory.snapshot_pickle import load_plain
from tb_gpudiag.trace.memory.snapshot_segments import (
    MOST_ADDRESSES,
    read_segments,
    within,
    within_all,
)
from tb_gpudiag.trace.memory.snapshot_stacks import SnapshotStacks
from tb_gpudiag.trace.stray import note_of, reach, settled
from tb_gpudiag.trace.stray import within as within_times
from tb_gpudiag.trace.trace_parts import MOST_BYTES
from tb_gpudiag.vocabulary.recorded import DeviceType, MemoryAction

_ALLOCATE, _FREE, _GROW, _SHRINK, _OUT_OF_MEMORY = (int(action) for action in MemoryAction)
_FREE_REQUESTED: Final = 100
_NOTHING: Final = 101
_UNKNOWN: Final = 102

# What each entry of the history does. A free counts when it is completed. Until then, nobody else can have
# the memory, and the block counts as used.
_ACTIONS: Final = {
    "alloc": _ALLOCATE,
    "free_completed": _FREE,
    "free": _FREE,
    "segment_alloc": _GROW,
    "segment_map": _GROW,
    "segment_free": _SHRINK,
    "segment_unmap": _SHRINK,
    "oom": _OUT_OF_MEMORY,
    "free_requested": _FREE_REQUESTED,
    "snapshot": _NOTHING,
    "workspace_snapshot": _NOTHING,
    "user_defined": _NOTHING,
    "annotate": _NOTHING,
}


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
    loaded = load_plain(data, limits, path)
    segments, traces, annotations = _parts(loaded, path)
    _check_repetition(data, segments, traces, path)
    progress(0.6, "reading the history")
    notes: list[str] = []
    traces = _of_read_devices(traces, notes)
    stacks = SnapshotStacks()
    histories = [
        _history(device, entries, stacks) for device, entries in enumerate(traces) if type(entries) is list
    ]
    state, malformed = read_segments(segments, stacks)
    timed = all(history.timed for history in histories)
    marked = marks(annotations) if timed else []
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
    rows = [_rows(of_device.get(d, _no_history(d)), state, start_us if timed else 0, notes) for d in devices]
    unknown = sum(history.unknown for history in histories)
    if unknown:
        notes.append(f"{unknown:,} entries of the history of an unknown kind skipped")
    malformed += sum(history.malformed for history in histories)
    if malformed:
        notes.append(f"{malformed:,} malformed entries or blocks skipped")
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
            profile_memory=True,
            with_stack=bool(stacks.texts),
        ),
        status="COMPLETE",
        events_read=sum(history.read for history in histories),
        malformed_events=malformed,
        start_ns=start_us * 1000,
        kind="snapshot",
        segments=state,
        notes=notes,
    )


def _parts(loaded: Any, path: str) -> tuple[list[Any], list[Any], Any]:
    """Return the segments, the history of each device, and the marks."""
    if type(loaded) is list and loaded and type(loaded[0]) is dict and "blocks" in loaded[0]:
        return loaded, [], []  # torch.cuda.memory_snapshot(), pickled by hand
    if type(loaded) is dict and type(loaded.get("segments")) is list:
        traces = loaded.get("device_traces")
        if type(traces) is list or traces is None:
            return loaded["segments"], traces or [], loaded.get("external_annotations")
    raise NotATrace(
        "it is a pickle of plain data, but not a memory snapshot: it has no segments",
        where=path,
        remedy="name a file that torch.cuda.memory._dump_snapshot wrote",
    )


def _of_read_devices(traces: list[Any], notes: list[str]) -> list[Any]:
    if len(traces) > MOST_DEVICES:
        notes.append(f"the history of {len(traces) - MOST_DEVICES:,} devices skipped: no process has more")
    return traces[:MOST_DEVICES]


def _check_repetition(data: bytes, segments: list[Any], traces: list[Any], path: str) -> None:
    """Raise NotATrace if a pickle refers to the same list many times: each time, it would become new rows.

    In a snapshot, each entry and each block is a dict of its own.
    """
    rows = [entries for entries in traces if type(entries) is list]
    rows += [s["blocks"] for s in segments if type(s) is dict and type(s.get("blocks")) is list]
    if len(segments) + sum(map(len, rows)) > data.count(b"}"):
        raise NotATrace(
            "it has the same entries or blocks many times",
            where=path,
            remedy="name a file that torch.cuda.memory._dump_snapshot wrote",
        )


@dataclass(frozen=True)
class _History:
    """What the allocator of one device did, oldest first. All arrays have shape (m,).

    free_at_failures: (index, what the driver had free) of failed allocations whose entries say so.
    """

    device: int
    action: UInt8
    bytes: Int64  # never negative
    address: npt.NDArray[np.uint64]
    # Never decreasing, after _without_strays. Numbers of the entries if not `timed`.
    time_us: Int64
    stack: Int32
    free_at_failures: list[tuple[int, int]]
    timed: bool = True
    read: int = 0  # entries of all kinds
    malformed: int = 0
    unknown: int = 0


def _history(device: int, entries: list[Any], stacks: SnapshotStacks) -> _History:
    try:
        return _columns(device, entries, stacks)
    except _MALFORMED:
        good = [entry for entry in entries if _is_entry(entry)]
        return replace(_columns(device, good, stacks), malformed=len(entries) - len(good))


def _columns(device: int, entries: list[Any], stacks: SnapshotStacks) -> _History:
    """Turn entries into columns. Raises one of _MALFORMED if an entry is malformed."""

    def column(values: Iterable[Any], kind: Any, rows: list[Any]) -> npt.NDArray[Any]:
        return np.fromiter(values, kind, len(rows))

    actions, unknown = _ACTIONS.get, _UNKNOWN
    kind = column([actions(entry["action"], unknown) for entry in entries], np.uint8, entries)
    if not (kind == _FREE).any():  # recorded without them: skip_actions
        kind[kind == _FREE_REQUESTED] = _FREE
    chosen = np.flatnonzero(kind < _FREE_REQUESTED)
    kept = [entries[i] for i in chosen]
    size = column(map(itemgetter("size"), kept), np.int64, kept)
    timed = all("time_us" in entry for entry in kept)
    time_us = column(map(itemgetter("time_us"), kept), np.int64, kept) if timed else chosen
    if not (within_all(size, MOST_BYTES) and within_all(time_us, LATEST_US)):
        raise ValueError
    return _History(
        device,
        kind[chosen],
        size,
        column([entry.get("addr", 0) for entry in kept], np.uint64, kept),
        time_us,
        stacks.numbers([entry.get("frames") for entry in kept]),
        [
            (i, entry["device_free"])
            for i, entry in enumerate(kept)
            if entry["action"] == "oom" and within(entry.get("device_free"), MOST_BYTES)
        ],
        timed=timed,
        read=len(entries),
        unknown=int((kind == unknown).sum()),
    )


_MALFORMED: Final = (TypeError, KeyError, AttributeError, ValueError, OverflowError)


def _is_entry(entry: Any) -> bool:
    """Return whether the value has the fields of an entry, within the bounds of the columns."""
    return (
        type(entry) is dict
        and type(entry.get("action")) is str
        and within(entry.get("size"), MOST_BYTES)
        and within(entry.get("addr", 0), MOST_ADDRESSES)
        and within(entry.get("time_us", 0), LATEST_US)
    )


def _without_strays(
    histories: list[_History], marked: list[Mark], notes: list[str]
) -> tuple[list[_History], list[Mark]]:
    """Settle times far from all others (see stray.py), and make the times of each history never decrease."""
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


def _no_history(device: int) -> _History:
    return _history(device, [], SnapshotStacks())


@dataclass(frozen=True)
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
    found: Bool
    driver_free: Int64
    capacity_bytes: int  # what the process could have got, as a failed allocation says; 0 if none does


def _rows(history: _History, state: Segments, start_us: int, notes: list[str]) -> _Rows:
    """Add totals to the history, and before it the blocks that are older than the history and still used."""
    own = state.device == history.device
    used = state.block_used & own[state.block_segment]
    moves = (history.action == _ALLOCATE) | (history.action == _FREE)
    older = np.flatnonzero(used & ~np.isin(state.block_address, history.address[moves]))
    older_bytes = state.block_requested_bytes[older]
    falls = np.isin(history.action, (_FREE, _SHRINK))
    signed = np.where(falls, -history.bytes, history.bytes)
    segment = (history.action == _GROW) | (history.action == _SHRINK)
    allocated, before = _back_from(int(state.block_requested_bytes[used].sum()), np.where(moves, signed, 0))
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
        np.arange(count + len(signed)) < count,
        np.r_[np.full(count, NONE), driver_free],
        max((int(reserved[i]) + free for i, free in history.free_at_failures if reserved[i] > 0), default=0),
    )


def _back_from(last: int, change: Int64) -> tuple[Int64, int]:
    """Return the total after each change, shape (m,), and the one before all of them, from the last total."""
    before = last - int(change.sum())
    return before + np.cumsum(change), before


def _joined(devices: list[_Rows], stacks: SnapshotStacks) -> MemoryEvents:
    def column(of: Callable[[_Rows], npt.NDArray[Any]], kind: Any) -> npt.NDArray[Any]:
        return np.concatenate([of(rows) for rows in devices] or [np.zeros(0)]).astype(kind)[order]

    time_ns = np.concatenate([rows.time_ns for rows in devices] or [np.zeros(0, np.int64)])
    order = np.argsort(time_ns, kind="stable")
    count = len(time_ns)
    return MemoryEvents(
        time_ns=time_ns[order],
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
        driver_free=column(lambda r: r.driver_free, np.int64),
    )
