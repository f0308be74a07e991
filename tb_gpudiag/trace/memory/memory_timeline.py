"""Read what `torch.profiler.profile.export_memory_timeline` writes into a Trace.

`.raw.json.gz` has events, `[[time in ns, action, bytes, category], …]`. `.json` and `.json.gz` have the sum
of each category over time, `[[times in µs], [[0, bytes of each category], …]]`. Neither says which device it
is about (sizes tell a GPU from the CPU), nor how much memory the allocator had reserved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_gpudiag.arrays import NONE, Bool, Int64
from tb_gpudiag.errors import NotATrace
from tb_gpudiag.trace.events import MemoryEvents, Metadata, Trace
from tb_gpudiag.trace.memory.snapshot_history import spans
from tb_gpudiag.trace.times import note_of, reach, settled
from tb_gpudiag.trace.trace_parts import MOST_BYTES
from tb_gpudiag.vocabulary.recorded import DeviceType, MemoryAction, MemoryPurpose

_SPACE: Final = b" \t\r\n"
_NUMBERS: Final = b"0123456789-"
_FIELDS: Final = 4  # per event
_COLUMNS: Final = 1 + len(MemoryPurpose)  # per row of sums
_PREEXISTING, _CREATE, _CHANGE_OF_VERSION, _DESTROY = 1, 2, 3, 4
_LATEST_NS: Final = 1 << 62
_PART_BYTES: Final = 1 << 20
# CUDA's caching allocator rounds sizes up to a multiple of this. The CPU's takes any.
_BLOCK_BYTES: Final = 512
_GPU_NOTE: Final = "the file does not say which device it is about: GPU 0 is assumed"
_CPU_NOTE: Final = "the file does not say which device it is about: by its sizes, it is the CPU"


def read_memory_timeline(data: bytes, path: str, progress: Callable[[float, str], None]) -> Trace:
    """Read the text of a file. Raises NotATrace."""
    progress(0.2, "reading the timeline")
    data = data.translate(None, _SPACE)
    shape = data.translate(None, _NUMBERS)
    rows = shape.count(b"[") - 1
    notes: list[str] = []
    if shape == _list_of(rows, _FIELDS):
        events = _numbers(data, rows * _FIELDS, path).reshape(rows, _FIELDS)
        time_ns, size, purpose, found, level = _of_events(events, notes)
    else:
        rows = max(0, rows - 2)
        if not rows or shape != b"[[" + b"," * (rows - 1) + b"]," + _list_of(rows, _COLUMNS) + b"]":
            raise _not_one(path)
        numbers = _numbers(data, rows * (1 + _COLUMNS), path)
        time_ns, size, purpose, found, level = _of_sums(
            numbers[:rows], numbers[rows:].reshape(rows, _COLUMNS), notes
        )
    if not len(time_ns):
        raise _not_one(path)
    start_ns = int(time_ns.min())
    progress(1.0, "read")
    count = len(time_ns)
    on_cpu = _is_of_cpu(time_ns, size, found)

    def of_all(value: int, kind: Any) -> npt.NDArray[Any]:
        return np.full(count, value, kind)

    return Trace(
        events=spans([], 0),
        memory=MemoryEvents(
            time_ns=time_ns - start_ns,
            action=np.where(size >= 0, MemoryAction.ALLOCATE, MemoryAction.FREE).astype(np.uint8),
            bytes=size,
            address=of_all(0, np.uint64),
            device_type=of_all(DeviceType.CPU if on_cpu else DeviceType.CUDA, np.int32),
            device=of_all(NONE if on_cpu else 0, np.int32),
            allocated=level,
            reserved=of_all(NONE, np.int64),
            thread=of_all(NONE, np.int32),
            stack=of_all(NONE, np.int32),
            stacks=[],
            found=found,
            purpose=purpose.astype(np.uint8),
        ),
        metadata=Metadata(),
        status="COMPLETE",
        events_read=rows,
        malformed_events=0,
        start_ns=start_ns,
        kind="memory_timeline",
        notes=[_CPU_NOTE if on_cpu else _GPU_NOTE, *notes],
    )


def _is_of_cpu(time_ns: Int64, size: Int64, found: Bool) -> bool:
    """Return whether new allocations have sizes that a GPU's allocator does not give.

    What existed before may be listed with the size of its tensor, whatever the device.
    """
    new = (size > 0) & ~found & (time_ns > time_ns.min())
    return bool((size[new] % _BLOCK_BYTES != 0).any())


_Columns = tuple[Int64, Int64, Int64, Bool, Int64]
"""Time in ns, signed bytes, purpose, found, and the total afterwards in bytes; see MemoryEvents."""


def _of_events(events: Int64, notes: list[str]) -> _Columns:
    time_ns, action, size, purpose = events.T
    found = action == _PREEXISTING
    known = (size > -MOST_BYTES) & (size < MOST_BYTES) & (purpose >= 0) & (purpose < len(MemoryPurpose))
    known &= found | ((time_ns >= 0) & (time_ns < _LATEST_NS))
    known &= (action >= _PREEXISTING) & (action <= _DESTROY)
    # A new version of a tensor takes two rows, one for the old version and one for the new. Nothing is
    # allocated, so the rows matter only if the purpose changes.
    changes = known & (action == _CHANGE_OF_VERSION)
    old = np.flatnonzero(changes[:-1] & changes[1:] & (size[:-1] == -size[1:]) & (size[:-1] < 0))
    same = old[purpose[old] == purpose[old + 1]]
    known[same] = known[same + 1] = False
    settled = np.arange(len(size))
    settled[old] += 1
    dated = known & ~found
    time_ns = time_ns.copy()
    time_ns[dated] = _settled(time_ns[dated], notes)
    first_ns = int(time_ns[dated].min()) if dated.any() else 0
    time_ns = np.where(found | (time_ns < first_ns), first_ns, time_ns)
    order = np.lexsort((~found, time_ns))
    order = order[known[order]]
    position = np.zeros(len(size), np.int64)
    position[order] = np.arange(len(order))
    total = np.cumsum(size[order])
    level = total[position[settled[order]]]
    return (
        time_ns[order],
        size[order],
        purpose[order],
        found[order],
        level - min(0, int(level.min(initial=0))),
    )


def _of_sums(time_us: Int64, sums: Int64, notes: list[str]) -> _Columns:
    time_ns = _settled(np.clip(time_us, 0, _LATEST_NS // 1000) * 1000, notes)
    sums = np.clip(sums[:, 1:], 0, MOST_BYTES)
    order = np.argsort(time_ns, kind="stable")
    sums, time_ns = sums[order], time_ns[order]
    change = np.diff(sums, axis=0, prepend=0)
    row, purpose = np.nonzero(change)
    found = np.zeros(len(row), np.bool_)
    return time_ns[row], change[row, purpose], purpose, found, sums.sum(axis=1)[row]


def _settled(time_ns: Int64, notes: list[str]) -> Int64:
    """Settle times far from all others (see times.py)."""
    times, stray = settled(time_ns, *reach(time_ns))
    if stray:
        notes.append(note_of(stray))
    return times


def _list_of(rows: int, fields: int) -> bytes:
    """Return JSON of this many lists of this many numbers, without the numbers."""
    one = b"[" + b"," * (fields - 1) + b"]"
    return b"[" + b",".join([one] * rows) + b"]"


def _numbers(data: bytes, count: int, path: str) -> Int64:
    text = data.translate(None, b"[]")
    found = np.zeros(count, np.int64)
    done = at = 0
    try:
        while count and at <= len(text):
            # A part at a time: split text takes twenty times as much memory.
            end = text.find(b",", at + _PART_BYTES)
            end = len(text) if end < 0 else end
            part = [int(number) for number in text[at:end].split(b",")]
            found[done : done + len(part)] = part
            done += len(part)
            at = end + 1
    except (ValueError, OverflowError):
        raise _not_one(path) from None
    if done != count:
        raise _not_one(path)
    return found


def _not_one(path: str) -> NotATrace:
    return NotATrace(
        "it is JSON, but neither a trace nor a memory timeline that has events",
        where=path,
        remedy="name a file that torch.profiler.tensorboard_trace_handler or export_memory_timeline wrote",
    )
