"""The memory view: prepared once as arrays that can be kept on disk, then cut into slices for a screen.

A slice is a device's curve over a range, and what became of what was allocated in it. Ranges hold both of
their ends, so that a range up to the recording's end holds the last event. Then the curve at the range's end
is the curve before its start, plus what was allocated in it, less what was freed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_gpudiag.errors import UsageError
from tb_gpudiag.facts.facts import Facts
from tb_gpudiag.facts.memory.device_memory import DeviceMemory
from tb_gpudiag.facts.memory.sites import site_keys, span_name
from tb_gpudiag.report import report_pb2 as pb
from tb_gpudiag.report.slices.curves import CurveSlice, Pyramid, build_pyramid, pack, slice_curve, unpack
from tb_gpudiag.report.slices.timeline import NS_PER_US, Prepared, clamped_ns, step_marks
from tb_gpudiag.report.slices.timeline_text import TextTable, text_at
from tb_gpudiag.trace.events import NONE, Int64
from tb_gpudiag.trace.vocabulary.frames import innermost_place

# A node has up to 16 GPUs, and the CPU.
MOST_DEVICES = 64

# What a table shows and a reader takes in.
MOST_SITES = 50

# Distinct pairs of operator and line, most bytes first; what remains shares one that has no name. A large
# training script has some hundreds.
MOST_GROUPS = 10_000

# Freed after the recording, or never.
NEVER_NS = np.iinfo(np.int64).max

_ALLOCATION_ARRAYS = ("made_ns", "freed_ns", "bytes", "group")
_FREE_ARRAYS = ("free_ns", "free_bytes")


class Steps(NamedTuple):
    """What the chart marks; shape (s,) each."""

    names: Sequence[str]
    start_ns: Int64
    end_ns: Int64


class Group(NamedTuple):
    """Who allocates: text as the trace has it, empty where it does not say."""

    operator: str = ""
    file: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True)
class History:
    """What one device's allocator did; sizes are bytes. Times ascend but `freed_ns`.

    The curve has shape (m,), the allocations (a,), all frees, also of what was allocated before, (f,).
    """

    device: int
    time_ns: Int64
    allocated: Int64
    reserved: Int64  # empty where the trace does not say
    start_bytes: int  # allocated before the first event
    made_ns: Int64
    bytes: Int64
    freed_ns: (
        Int64 | None
    )  # NEVER_NS: alive at the recording's end; None: nothing tells what a free gave back
    group: Int64  # index into the groups
    free_ns: Int64
    free_bytes: Int64


def prepare_histories(
    histories: Sequence[History], groups: Sequence[Group], steps: Steps, start_ns: int, end_ns: int
) -> dict[str, npt.NDArray[Any]]:
    """Everything that slices need, as plain arrays; start and end are the recording's. See slice_memory."""
    texts = TextTable()
    names = [(texts.add(g.operator), texts.add(g.file), g.line, texts.add(g.function)) for g in groups]
    curves: list[Pyramid] = []
    allocations: list[tuple[npt.NDArray[Any], ...]] = []
    frees: list[tuple[npt.NDArray[Any], ...]] = []
    for history in histories:
        curves += _curves(history, start_ns)
        freed = np.zeros_like(history.made_ns) if history.freed_ns is None else history.freed_ns
        allocations.append((history.made_ns, freed, history.bytes, history.group))
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
        "memory_meta": np.frombuffer(json.dumps(meta).encode("ascii"), np.uint8),
        "memory_text": text,
        "memory_text_first": text_first,
        "memory_step_name": step_name,
        "memory_step_start_ns": steps.start_ns,
        "memory_step_end_ns": steps.end_ns,
        "memory_groups": np.array(names, np.int64).reshape(-1, 4),
        **pack("memory_curve", curves),
        **_joined("memory_allocations_first", _ALLOCATION_ARRAYS, allocations),
        **_joined("memory_frees_first", _FREE_ARRAYS, frees),
    }


def prepare_memory(facts: Facts) -> dict[str, npt.NDArray[Any]]:
    """Everything that slices of this trace's memory need, as plain arrays (no objects), to be kept as it
    is."""
    devices = facts.memory[:MOST_DEVICES]
    groups: dict[Group, int] = {}
    histories = [_history(facts, device, groups) for device in devices]
    slices = devices[0].floors.periods if devices else None
    none = np.zeros(0, np.int64)
    steps = Steps([], none, none)
    if slices is not None and slices.unit == "step":
        steps = Steps(slices.names, slices.start_ns, slices.end_ns)
    window = facts.recording
    times = [history.time_ns for history in histories if len(history.time_ns)]
    start_ns = min([window.start_ns, *(int(time[0]) for time in times)])
    end_ns = max([window.end_ns, *(int(time[-1]) for time in times)])
    return prepare_histories(histories, list(groups), steps, start_ns, end_ns)


def _history(facts: Facts, device: DeviceMemory, groups: dict[Group, int]) -> History:
    """One device's. New groups are added."""
    curve, allocations = device.curve, device.allocations
    freed = np.where(allocations.freed == NONE, NEVER_NS, allocations.freed_ns)
    return History(
        device=device.device,
        time_ns=curve.time_ns,
        allocated=curve.allocated,
        reserved=curve.reserved if curve.has_reserved else np.zeros(0, np.int64),
        start_bytes=curve.start_bytes,
        made_ns=allocations.time_ns,
        bytes=allocations.bytes,
        freed_ns=freed if allocations.paired else None,
        group=_grouped(facts, device, groups),
        free_ns=allocations.free_ns,
        free_bytes=allocations.free_bytes,
    )


def _grouped(facts: Facts, device: DeviceMemory, groups: dict[Group, int]) -> Int64:
    """Shape of the device's allocations: the group of each."""
    allocations, host, memory = device.allocations, facts.host, facts.trace.memory
    site, one = site_keys(allocations, host, memory, np.arange(len(allocations)))
    total = np.zeros(len(one), np.int64)
    np.add.at(total, site, allocations.bytes)
    number = np.full(len(one), groups.setdefault(Group(), len(groups)), np.int64)
    for index in np.argsort(-total, kind="stable")[:MOST_GROUPS].tolist():
        first = int(one[index])
        place, stack = int(allocations.place[first]), int(allocations.stack[first])
        frame = host.frame(place) if place != NONE else None
        if frame is None and stack != NONE:
            frame = innermost_place(memory.stacks[stack])
        group = Group(span_name(host, int(allocations.operator[first])), *(frame or ("", 0, "")))
        number[index] = groups.setdefault(group, len(groups))
    return number[site]


def slice_memory(
    prepared: Prepared, device: int | None, start_us: float | None, end_us: float | None, width: int
) -> pb.MemorySlice:
    """One device's memory from start to end (None: of the recording), for `width` pixels; the first device
    where none is named.

    Raises:
        UsageError: the trace has no memory of this device.
    """
    meta = json.loads(bytes(prepared["memory_meta"]))
    devices, first_ns, last_ns = meta["devices"], int(meta["start_ns"]), int(meta["end_ns"])
    if not devices or (device is not None and device not in devices):
        raise UsageError("The trace has no memory of this device.", where="device")
    index = 0 if device is None else devices.index(device)
    start_ns = first_ns if start_us is None else clamped_ns(start_us)
    end_ns = max(last_ns if end_us is None else clamped_ns(end_us), start_ns)
    allocated = slice_curve(unpack(prepared, "memory_curve", 2 * index), start_ns, end_ns + 1, width)
    reserved = slice_curve(unpack(prepared, "memory_curve", 2 * index + 1), start_ns, end_ns + 1, width)
    found = pb.MemorySlice(
        state="ready",
        progress=1.0,
        device=devices[index],
        start_us=start_ns / NS_PER_US,
        end_us=end_ns / NS_PER_US,
        trace_start_us=first_ns / NS_PER_US,
        trace_end_us=last_ns / NS_PER_US,
        allocated=_on_wire(allocated),
        reserved=_on_wire(reserved),
        exact=allocated.exact and reserved.exact,
        steps=step_marks(prepared, start_ns, end_ns, "memory_"),
    )
    _add_frees(found, prepared, index, start_ns, end_ns)
    _add_allocations(found, prepared, index, start_ns, end_ns)
    if not meta["paired"][index]:
        _forget_survivors(found)
    return found


def _forget_survivors(found: pb.MemorySlice) -> None:
    """Where nothing tells what a free gave back, nothing tells what survives."""
    found.survived_bytes = found.kept_bytes = NONE
    for site in found.sites:
        site.survived_bytes = site.kept_bytes = NONE


def _curves(history: History, start_ns: int) -> tuple[Pyramid, Pyramid]:
    """Allocated and reserved, from the recording's start on."""
    time = history.time_ns
    begin = np.minimum(time[:1], start_ns)
    # What was reserved before the first event is not known: as much as after it.
    return (
        build_pyramid(np.r_[begin, time], np.r_[np.int64(history.start_bytes), history.allocated]),
        build_pyramid(*_changes(np.r_[begin, time], np.r_[history.reserved[:1], history.reserved]))
        if len(history.reserved)
        else build_pyramid(np.zeros(0, np.int64), np.zeros(0, np.int64)),
    )


def _changes(time_ns: Int64, value: Int64) -> tuple[Int64, Int64]:
    """Only the points at which the value is another one than before."""
    changes = np.r_[True, value[1:] != value[:-1]]
    return time_ns[changes], value[changes]


def _joined(
    first: str, names: Sequence[str], devices: Sequence[tuple[npt.NDArray[Any], ...]]
) -> dict[str, npt.NDArray[Any]]:
    """The devices' arrays one after another, and where each device's begin."""
    counts = [len(arrays[0]) for arrays in devices]
    return {
        first: np.cumsum([0, *counts], dtype=np.int64),
        **{
            f"memory_{name}": np.concatenate([np.zeros(0, np.int64), *(arrays[at] for arrays in devices)])
            for at, name in enumerate(names)
        },
    }


def _within(
    prepared: Prepared, first: str, time: str, index: int, start_ns: int, end_ns: int
) -> slice[int, int, None]:
    """The device's rows whose time lies in [start, end]."""
    low, high = prepared[first][index : index + 2].tolist()
    own = np.asarray(prepared[time])[low:high]
    left, right = np.searchsorted(own, start_ns), np.searchsorted(own, end_ns, side="right")
    return slice(low + int(left), low + int(right))


def _add_frees(found: pb.MemorySlice, prepared: Prepared, index: int, start_ns: int, end_ns: int) -> None:
    rows = _within(prepared, "memory_frees_first", "memory_free_ns", index, start_ns, end_ns)
    found.freed_bytes = int(prepared["memory_free_bytes"][rows].sum())
    found.frees = rows.stop - rows.start


def _add_allocations(
    found: pb.MemorySlice, prepared: Prepared, index: int, start_ns: int, end_ns: int
) -> None:
    rows = _within(prepared, "memory_allocations_first", "memory_made_ns", index, start_ns, end_ns)
    size, freed, group = (
        np.asarray(prepared[f"memory_{name}"])[rows] for name in ("bytes", "freed_ns", "group")
    )
    alive = np.flatnonzero(freed > end_ns)
    kept = alive[freed[alive] == NEVER_NS]
    found.allocated_bytes, found.allocations = int(size.sum()), len(size)
    found.survived_bytes, found.survivors = int(size[alive].sum()), len(alive)
    found.kept_bytes = int(size[kept].sum())
    groups = len(prepared["memory_groups"])
    count = np.bincount(group, minlength=groups)
    allocated, survived, left = (
        np.bincount(group[some], size[some], groups) for some in (slice(None), alive, kept)
    )
    # Those of which nothing survived come last, most allocated first.
    order = np.lexsort((-allocated, -survived))[:MOST_SITES]
    for site in order[count[order] > 0].tolist():
        operator, place = _named(prepared, site)
        found.sites.add(
            operator=operator,
            place=place,
            allocated_bytes=float(allocated[site]),
            allocations=int(count[site]),
            survived_bytes=float(survived[site]),
            kept_bytes=float(left[site]),
        )


def _named(prepared: Prepared, group: int) -> tuple[str, pb.Place | None]:
    operator, file, line, function = (int(part) for part in prepared["memory_groups"][group])
    text = [
        text_at(prepared["memory_text"], prepared["memory_text_first"], index)
        for index in (operator, file, function)
    ]
    place = pb.Place(file=text[1], line=line, function=text[2], operator=text[0])
    return text[0], place if text[1] or text[2] else None


def _on_wire(curve: CurveSlice) -> pb.Curve:
    return pb.Curve(
        time_us=(curve.time_ns / NS_PER_US).tolist(), low=curve.low.tolist(), high=curve.high.tolist()
    )
