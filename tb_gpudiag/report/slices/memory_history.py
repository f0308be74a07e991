"""History of each device's allocator, as arrays that can be kept on disk; memory_slice.py reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Int64, UInt8, summed
from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.core.intervals import Window
from tb_gpudiag.facts.core.recording import Steps
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.floor_table import site_keys
from tb_gpudiag.facts.memory.memory_kinds import KINDS, Allocations, MemoryKind
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.report.slices.prepared import (
    Prepared,
    Pyramid,
    TextTable,
    build_pyramid,
    joined,
    pack,
    pack_meta,
    read_meta,
)
from tb_gpudiag.vocabulary.frames import LineKind

# Distinct pairs of operator and line, most bytes first. All others share a group without a name. A large
# training script has some hundreds.
MOST_GROUPS = 10_000

# Freed after the recording, or never.
NEVER_NS = np.iinfo(np.int64).max

_ALLOCATION_ARRAYS = ("made_ns", "freed_ns", "bytes", "group", "kind")
_FREE_ARRAYS = ("free_ns", "free_bytes")


class Group(NamedTuple):
    """An allocation site. A text is empty if the trace does not say."""

    operator: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    line_kind: LineKind = LineKind.UNKNOWN


@dataclass(frozen=True, eq=False)
class History:
    """History of one device's allocator, in bytes. All times but `freed_ns` are ascending.

    Shapes: the curve (m,), the allocations (a,), all frees (f,), which include frees of older allocations.
    """

    device: int
    time_ns: Int64
    allocated: Int64
    reserved: Int64  # empty if the trace does not say
    start_bytes: int  # allocated before the first event
    made_ns: Int64  # NONE: before the recording
    bytes: Int64
    # NEVER_NS for an allocation that is live at the recording's end; None if frees do not name theirs.
    freed_ns: Int64 | None
    group: Int64  # index into the groups
    kind: UInt8  # index into KINDS
    free_ns: Int64
    free_bytes: Int64


def prepare_memory(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Return everything that slices of the trace's memory need, as plain arrays by name."""
    devices = facts.memory
    groups: dict[Group, int] = {}
    histories = [_history(device, _grouped(device.allocations, groups)) for device in devices]
    span = _span(facts.recording, histories)
    return prepare_histories(histories, list(groups), _steps(devices), span.start_ns, span.end_ns)


def memory_of(prepared: Prepared, device: int | None, *, frees: bool = False) -> tuple[dict[str, Any], int]:
    """Return memory_meta and the place of a device in it; None is the first one. frees: it has to be known
    what was freed. Raises UsageError: the trace has no such memory of this device."""
    meta = read_meta(prepared, "memory_meta")
    devices: list[int] = meta["devices"]
    if not devices or (device is not None and device not in devices):
        raise UsageError("The trace has no memory of this device.", where="device")
    index = 0 if device is None else devices.index(device)
    if frees and not meta["paired"][index]:
        raise UsageError("The trace does not say which allocations were freed.", where="device")
    return meta, index


def _steps(devices: Sequence[DeviceMemory]) -> Steps:
    """Return the steps that the chart marks."""
    periods = devices[0].floors.periods if devices else None
    if periods is None or periods.unit != "step":
        none = np.zeros(0, np.int64)
        return Steps([], none, none)
    return Steps(periods.names, periods.start_ns, periods.end_ns)


def _span(recording: Window, histories: Sequence[History]) -> Window:
    """The recording, extended to all memory events."""
    times = [history.time_ns for history in histories if len(history.time_ns)]
    return Window(
        min([recording.start_ns, *(int(time[0]) for time in times)]),
        max([recording.end_ns, *(int(time[-1]) for time in times)]),
    )


def _history(device: DeviceMemory, group: Int64) -> History:
    curve, allocations = device.curve, device.allocations
    made_ns = np.where(allocations.found, NONE, allocations.time_ns)
    freed = np.where(allocations.freed == NONE, NEVER_NS, allocations.freed_ns)
    return History(
        device=device.device,
        time_ns=curve.time_ns,
        allocated=curve.allocated,
        reserved=curve.reserved if curve.has_reserved else np.zeros(0, np.int64),
        start_bytes=curve.start_bytes,
        made_ns=made_ns,
        bytes=allocations.bytes,
        freed_ns=freed if allocations.paired else None,
        group=group,
        kind=_kind(device),
        free_ns=allocations.free_ns,
        free_bytes=allocations.free_bytes,
    )


def _kind(device: DeviceMemory) -> UInt8:
    """What each allocation is for, as an index into KINDS."""
    allocations = device.allocations
    return np.where(allocations.found, KINDS.index(MemoryKind.BEFORE), allocations.kind)


def _grouped(allocations: Allocations, groups: dict[Group, int]) -> Int64:
    """Group number of each allocation. New groups are added to `groups`."""
    site, one = site_keys(allocations, np.arange(len(allocations)))
    total = summed(site, allocations.bytes, len(one))
    number = np.full(len(one), groups.setdefault(Group(), len(groups)), np.int64)
    for index in np.argsort(-total, kind="stable")[:MOST_GROUPS].tolist():
        first = int(one[index])
        operator = allocations.host.name(int(allocations.operator[first]))
        group = Group(operator, *(allocations.frame(first) or ()))
        number[index] = groups.setdefault(group, len(groups))
    return number[site]


def prepare_histories(
    histories: Sequence[History], groups: Sequence[Group], steps: Steps, start_ns: int, end_ns: int
) -> dict[str, npt.NDArray[Any]]:
    """Pack histories into plain arrays. Start and end are the recording's."""
    texts = TextTable()
    names = [
        (texts.add(g.operator), texts.add(g.file), g.line, texts.add(g.function), g.line_kind) for g in groups
    ]
    curves: list[Pyramid] = []
    allocations: list[tuple[npt.NDArray[Any], ...]] = []
    frees: list[tuple[npt.NDArray[Any], ...]] = []
    for history in histories:
        curves += _curves(history, start_ns)
        freed = np.zeros_like(history.made_ns) if history.freed_ns is None else history.freed_ns
        allocations.append((history.made_ns, freed, history.bytes, history.group, history.kind))
        frees.append((history.free_ns, history.free_bytes))
    step_name = np.array([texts.add(name) for name in steps.names], np.int64)
    text, text_first = texts.arrays()
    meta = {
        "devices": [history.device for history in histories],
        "paired": [history.freed_ns is not None for history in histories],
        "start_ns": start_ns,
        "end_ns": end_ns,
    }
    return {
        "memory_meta": pack_meta(meta),
        "memory_text": text,
        "memory_text_first": text_first,
        "memory_step_name": step_name,
        "memory_step_start_ns": steps.start_ns,
        "memory_step_end_ns": steps.end_ns,
        "memory_groups": np.array(names, np.int64).reshape(-1, 5),
        **pack("memory_curve", curves),
        **joined("memory_allocations_first", "memory", _ALLOCATION_ARRAYS, allocations),
        **joined("memory_frees_first", "memory", _FREE_ARRAYS, frees),
    }


def _curves(history: History, start_ns: int) -> tuple[Pyramid, Pyramid]:
    """Allocated and reserved memory from the recording's start."""
    time = history.time_ns
    begin = np.minimum(time[:1], start_ns)
    allocated = build_pyramid(np.r_[begin, time], np.r_[np.int64(history.start_bytes), history.allocated])
    if not len(history.reserved):
        none = np.zeros(0, np.int64)
        return allocated, build_pyramid(none, none)
    # Reserved memory before the first event is not known. Assume that the event did not change it.
    reserved = np.r_[history.reserved[:1], history.reserved]
    return allocated, build_pyramid(*_changes(np.r_[begin, time], reserved))


def _changes(time_ns: Int64, value: Int64) -> tuple[Int64, Int64]:
    """Only the points where the value changes."""
    changes = np.r_[True, value[1:] != value[:-1]]
    return time_ns[changes], value[changes]
