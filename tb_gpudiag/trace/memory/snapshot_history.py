"""Read the history in a memory snapshot into columns: what the allocator did entry for entry, and the
spans marked in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import Int32, Int64, UInt8
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.events import Events, Thread
from tb_gpudiag.trace.memory.snapshot_segments import MOST_ADDRESSES, SnapshotStacks, within, within_all
from tb_gpudiag.trace.memory.snapshot_tables import MISSING, Dicts, NotTables, SnapshotTables
from tb_gpudiag.trace.trace_parts import LONGEST_NS, MOST_BYTES
from tb_gpudiag.vocabulary.recorded import Category, MemoryAction

# Steps, optimizers, loaders and the user's own marks: about ten per step. Marks have a ring buffer of their
# own, as long as the memory history's.
MARKS_LIMIT: Final = 2_000_000
_NAME_LIMIT: Final = 1_000
# µs since 1970 take 51 bits. The difference of two such times in nanoseconds must fit 64 bits.
LATEST_US: Final = 1 << 52

Mark = tuple[str, bool, int]
"""Name of a span, True for its start and False for its end, and the time in µs on the history's clock."""


def marks(annotations: Any) -> list[Mark]:
    """Return the marks of a snapshot's `external_annotations`, in their order. Skip malformed ones."""
    found: list[Mark] = []
    shown: dict[str, str] = {}
    for mark in annotations if type(annotations) is list else []:
        if type(mark) is not dict or len(found) == MARKS_LIMIT:
            continue
        name, stage, time_us = mark.get("name"), mark.get("stage"), mark.get("time_us")
        if type(name) is not str or stage not in ("START", "END"):
            continue
        if type(time_us) is int and 0 <= time_us < LATEST_US:
            if name not in shown:
                shown[name] = name[:_NAME_LIMIT].encode("utf-8", "replace").decode()
            found.append((shown[name], stage == "START", time_us))
    return found


def spans(marked: Iterable[Mark], start_us: int) -> Events:
    """Make annotations of one thread, with times since `start_us`.

    A snapshot does not say which thread made a mark. So an end belongs to the last open start of the same
    name. Marks without a start or without an end in the snapshot are skipped, and spans that no job has.
    """
    open_: dict[str, list[int]] = {}
    codes: dict[str, int] = {}
    rows: list[tuple[int, int, int]] = []
    for name, begins, time_us in marked:
        if begins:
            open_.setdefault(name, []).append(time_us)
        elif open_.get(name):
            began_us = open_[name].pop()
            rows.append((began_us - start_us, max(0, time_us - began_us), codes.setdefault(name, len(codes))))
    table = np.array(rows, np.int64).reshape(-1, 3)
    table = table[table[:, 1] <= LONGEST_NS // 1000]
    # An enclosing span comes before the spans inside it.
    table = table[np.lexsort((-table[:, 1], table[:, 0]))]
    return replace(
        Events.blank(len(table)),
        category=np.full(len(table), Category.USER_ANNOTATION, np.uint8),
        name=table[:, 2].astype(np.int32),
        start_ns=table[:, 0] * 1000,
        duration_ns=table[:, 1] * 1000,
        thread=np.zeros(len(table), np.int32),
        names=list(codes),
        threads=[Thread("", "", "record_function")] if len(table) else [],
    )


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

MOST_STREAMS: Final = 1 << 63
"""Streams are known by the address of what is behind them."""

MALFORMED: Final = (TypeError, KeyError, AttributeError, ValueError, OverflowError)


@dataclass(frozen=True, eq=False)
class AllocatorHistory:
    """What the allocator of one device did, oldest first. All arrays have shape (m,).

    free_at_failures: (index, what the driver had free) of failed allocations whose entries say so.
    """

    device: int
    action: UInt8
    bytes: Int64  # never negative
    address: npt.NDArray[np.uint64]
    # Never decreasing, once snapshot.py settled stray ones. Numbers of the entries if not `timed`.
    time_us: Int64
    stack: Int32
    stream: Int64
    free_at_failures: list[tuple[int, int]]
    timed: bool = True
    read: int = 0  # entries of all kinds
    malformed: int = 0
    unknown: int = 0


class PlainEntries:
    """The entries of a device's history as Python's own dicts."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def actions(self) -> UInt8:
        """Return the code of each action. Raises one of MALFORMED, as the others do."""
        known = _ACTIONS.get
        return self._column((known(e["action"], _UNKNOWN) for e in self._entries), np.uint8)

    def at(self, rows: Int64) -> PlainEntries:
        return PlainEntries([self._entries[i] for i in rows.tolist()])

    def all_have(self, key: str) -> bool:
        return all(key in entry for entry in self._entries)

    def numbers(self, key: str) -> Int64:
        return self._column(map(itemgetter(key), self._entries), np.int64)

    def addresses(self) -> npt.NDArray[np.uint64]:
        return self._column((entry.get("addr", 0) for entry in self._entries), np.uint64)

    def stacks(self, stacks: SnapshotStacks) -> Int32:
        return stacks.numbers([entry.get("frames") for entry in self._entries])

    def streams(self) -> Int64:
        """Return the stream of each, 0 where it is none."""
        found = [entry.get("stream") for entry in self._entries]
        return np.array([s if within(s, MOST_STREAMS) else 0 for s in found], np.int64)

    def driver_free(self) -> list[Any]:
        return [entry.get("device_free") for entry in self._entries]

    def good(self) -> PlainEntries:
        """Return the entries that have all fields, within the bounds of the columns."""
        return PlainEntries([entry for entry in self._entries if _is_entry(entry)])

    def _column(self, values: Iterable[Any], kind: Any) -> npt.NDArray[Any]:
        return np.fromiter(values, kind, len(self))


class TableEntries:
    """The entries of a device's history in tables. Methods as in PlainEntries; any may raise NotTables."""

    def __init__(self, tables: SnapshotTables, dicts: Dicts) -> None:
        self._tables, self._dicts = tables, dicts

    def __len__(self) -> int:
        return len(self._dicts)

    def actions(self) -> UInt8:
        column = self._dicts.column("action")
        code, known = self._tables.codes(column, _ACTIONS, _UNKNOWN)
        if not (known | (column == MISSING)).all():
            raise NotTables
        if not known.all():
            raise ValueError
        return code.astype(np.uint8)

    def at(self, rows: Int64) -> TableEntries:
        return TableEntries(self._tables, self._dicts.at(rows))

    def all_have(self, key: str) -> bool:
        return self._dicts.all_have(key)

    def numbers(self, key: str) -> Int64:
        found, known = self._tables.numbers(self._dicts.column(key))
        if not known.all():
            raise ValueError
        return found

    def addresses(self) -> npt.NDArray[np.uint64]:
        column = self._dicts.column("addr")
        found, known = self._tables.numbers(column)
        if not (known | (column == MISSING)).all() or (found < 0).any():
            raise ValueError
        return found.astype(np.uint64)

    def stacks(self, stacks: SnapshotStacks) -> Int32:
        one, group = self._tables.distinct(self._dicts.column("frames"))
        of_group = stacks.numbers([self._tables.plain(value) for value in one.tolist()])
        return of_group[group] if len(one) else np.zeros(0, np.int32)

    def streams(self) -> Int64:
        found, known = self._tables.numbers(self._dicts.column("stream"))
        return np.where(known & (found >= 0), found, 0)

    def driver_free(self) -> list[Any]:
        return [self._tables.plain(value) for value in self._dicts.column("device_free").tolist()]

    def good(self) -> TableEntries:
        _, said = self._tables.codes(self._dicts.column("action"), _ACTIONS, _UNKNOWN)
        for key, bound in (("size", MOST_BYTES), ("addr", MOST_ADDRESSES), ("time_us", LATEST_US)):
            column = self._dicts.column(key)
            found, known = self._tables.numbers(column)
            said &= (known & (found >= 0) & (found < bound)) | ((column == MISSING) & (key != "size"))
        return self.at(np.flatnonzero(said))


def read_history(
    device: int, entries: PlainEntries | TableEntries, stacks: SnapshotStacks
) -> AllocatorHistory:
    """Turn entries into columns. Malformed ones are skipped, and counted. May raise NotTables for tables."""
    try:
        return _columns(device, entries, stacks)
    except MALFORMED:
        good = entries.good()
        return replace(_columns(device, good, stacks), malformed=len(entries) - len(good))


def no_history(device: int) -> AllocatorHistory:
    return read_history(device, PlainEntries([]), SnapshotStacks())


def _columns(device: int, entries: PlainEntries | TableEntries, stacks: SnapshotStacks) -> AllocatorHistory:
    """Raises one of MALFORMED if an entry is malformed."""
    kind = entries.actions()
    if not (kind == _FREE).any():  # recorded without them: skip_actions
        kind[kind == _FREE_REQUESTED] = _FREE
    rows = np.flatnonzero(kind < _FREE_REQUESTED)
    action, chosen = kind[rows], entries.at(rows)
    size = chosen.numbers("size")
    timed = chosen.all_have("time_us")
    time_us = chosen.numbers("time_us") if timed else rows
    if not (within_all(size, MOST_BYTES) and within_all(time_us, LATEST_US)):
        raise ValueError
    failed = np.flatnonzero(action == _OUT_OF_MEMORY)
    free = zip(failed.tolist(), chosen.at(failed).driver_free(), strict=True)
    return AllocatorHistory(
        device,
        action,
        size,
        chosen.addresses(),
        time_us,
        chosen.stacks(stacks),
        chosen.streams(),
        [(i, bytes_free) for i, bytes_free in free if within(bytes_free, MOST_BYTES)],
        timed=timed,
        read=len(entries),
        unknown=int((kind == _UNKNOWN).sum()),
    )


def _is_entry(entry: Any) -> bool:
    """Return whether the value has the fields of an entry, within the bounds of the columns."""
    return (
        type(entry) is dict
        and type(entry.get("action")) is str
        and within(entry.get("size"), MOST_BYTES)
        and within(entry.get("addr", 0), MOST_ADDRESSES)
        and within(entry.get("time_us", 0), LATEST_US)
    )
