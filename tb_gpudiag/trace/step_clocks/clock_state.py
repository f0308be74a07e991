"""What the step clocks of a log directory say: small files of each run, which others may have written, and
their lines, in the event files of each rank."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeGuard

import numpy as np

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.errors import GpudiagError, NotATrace, NothingToRead, TraceError, Unreadable
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.credentials.removing import cleaned
from tb_gpudiag.trace.files.file_names import EVENT_FILE, MADE, NOW, ORDER
from tb_gpudiag.trace.files.opening import first_bytes
from tb_gpudiag.vocabulary.written import FULL_LINES, PHASES, TAGS, WAIT

COMPARED_BLOCKS: Final = 24
"""A rank compares so many blocks of its steps, the newest ones with the first half."""

MOST_RECORDINGS: Final = 50
"""The newest ones. A clock asks for four a day."""

_MOST_FILE_BYTES: Final = 1 << 16
_MOST_RANKS: Final = 4_096
_LARGEST: Final = 1 << 53
"""Of steps and counts, and of times in ms: no training reaches it."""


@dataclass(frozen=True)
class RankSteps:
    """What a rank says. Times are medians over its last blocks, in ms.

    core_ms: how long its main thread could run and had no core. drifts: how many it has found. since,
    gradual, longer_ms: of the last one; longer_ms is of the step, its phases, and core_ms.
    """

    rank: int
    step: int
    blocks: int
    step_ms: float
    phases_ms: Sequence[float]
    core_ms: float = 0.0
    drifts: int = 0
    since: int = 0
    gradual: bool = False
    longer_ms: Sequence[float] = ()

    @property
    def own_ms(self) -> float:
        """Its part of a step: without waiting for other ranks, or for a core."""
        return self.step_ms - self.phases_ms[WAIT] - self.core_ms

    @property
    def own_longer_ms(self) -> float:
        return self.longer_ms[0] - self.longer_ms[1 + WAIT] - self.longer_ms[-1]

    @property
    def only_waits(self) -> bool:
        """Whether its last drift is that of other ranks."""
        return self.longer_ms[1 + WAIT] > self.longer_ms[0] / 2


@dataclass(frozen=True)
class ClockRecording:
    """A recording of a clock. file: its name, in the folder of the run. step: at which it was armed. time_s:
    Unix time."""

    file: str
    why: str
    step: int
    time_s: float


@dataclass(frozen=True)
class ClockState:
    """The step clocks of a run. run: its folder below the log directory. why: of the last recording that they
    asked for; "" if there was none. ordered_s: when, as Unix time; 0 if unknown. ranks: by number.
    recordings: those of a rank, in their order."""

    run: str
    why: str
    ordered_s: float
    ranks: list[RankSteps]
    recordings: dict[int, list[ClockRecording]]


def read_state(clock: str, folder: str, run: str) -> ClockState:
    """Return what is in a folder of clocks. folder: see open_local. Raises OSError: it cannot be listed."""
    names = rank_folders(clock)
    order = read_fields(os.path.join(clock, ORDER), folder) or {}
    return cleaned(
        ClockState(
            run,
            why if isinstance(why := order.get("why"), str) else "",
            _time_s(order.get("time_s")),
            [found for name in names.values() if (found := rank_now(os.path.join(clock, name), folder))],
            {rank: _recordings(os.path.join(clock, name), folder) for rank, name in names.items()},
        )
    )


def rank_folders(clock: str) -> dict[int, str]:
    """Return the names of the ranks' folders, by rank."""
    names = [name for name in os.listdir(clock) if name.startswith("rank-") and name[5:].isdecimal()]
    found = {int(name[5:]): name for name in names if len(name) < 16}
    return {rank: found[rank] for rank in sorted(found)[:_MOST_RANKS]}


def read_fields(path: str, folder: str = "") -> dict[str, Any] | None:
    """Return what is in a file; None without one, and if others have written something else there.

    folder: see open_local.
    """
    with contextlib.suppress(OSError, ValueError, RecursionError, TraceError):
        fields = json.loads(first_bytes(path, _MOST_FILE_BYTES, folder))
        return fields if isinstance(fields, dict) else None
    return None


def rank_now(place: str, folder: str = "") -> RankSteps | None:
    """Return what the rank of this folder says; None if it says nothing, or others have written there."""
    fields = read_fields(os.path.join(place, NOW), folder)
    with contextlib.suppress(TypeError, ValueError):
        found = RankSteps(**(fields or {}))
        return found if _is_plain(found) else None
    return None


def _recordings(place: str, folder: str) -> list[ClockRecording]:
    found = (read_fields(os.path.join(place, MADE), folder) or {}).get("recordings")
    made = []
    for fields in found[-MOST_RECORDINGS:] if isinstance(found, list) else ():
        with contextlib.suppress(KeyError, TypeError):
            file, why, step = fields["file"], fields["why"], fields["step"]
            if isinstance(file, str) and isinstance(why, str) and _is_count(step):
                made.append(ClockRecording(file, why, step, _time_s(fields["time_s"])))
    return made


def _time_s(value: object) -> float:
    return float(value) if _is_time(value) and value > 0 else 0.0


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _LARGEST


def _is_time(value: object) -> TypeGuard[float]:
    """Return whether it is a time that may be: neither NaN nor Infinity, which JSON of Python may have."""
    return isinstance(value, int | float) and type(value) is not bool and -_LARGEST < value < _LARGEST


def is_order(fields: dict[str, Any]) -> bool:
    """Return whether these are the fields of an order, as a clock writes them."""
    ranks = fields.get("ranks")
    return (
        isinstance(fields.get("why"), str)
        and isinstance(ranks, list)
        and all(_is_count(number) for number in (fields.get("at"), fields.get("first"), *ranks))
    )


def _is_plain(found: RankSteps) -> bool:
    """Return whether all values are of the kind that a clock writes."""
    counts = found.rank, found.step, found.blocks, found.drifts, found.since
    times = found.step_ms, found.core_ms, *found.phases_ms, *found.longer_ms
    return (
        type(found.gradual) is bool
        and all(map(_is_count, counts))
        and all(map(_is_time, times))
        and len(found.phases_ms) == len(PHASES)
        and len(found.longer_ms) in (0, len(PHASES) + 2)
    )


MOST_FILE_BYTES: Final = 64 << 20
"""A rank has 20 MB after a day of steps of 100 ms, and 30 MB after a month."""

MOST_BYTES: Final = 512 << 20
"""Of all ranks. Those with higher numbers are left out."""

TOTAL, FIRST_PHASE, CORE = 0, 1, -1
"""Columns of values: ms of a step, of each phase, and what other processes took of it."""

# A record of the TFRecord format: length, checksum of the length, content, checksum of the content.
_HEAD_BYTES: Final = 12
_TAIL_BYTES: Final = 4
# Of one of our lines: it has ten short values.
_MOST_LINE_BYTES: Final = 4_096
_LARGEST_STEP: Final = 1 << 53
_COLUMNS: Final = {tag: column for column, tag in enumerate(TAGS)}


@dataclass(frozen=True, eq=False)
class StepLines:
    """Steps of one rank, in order. A line is the mean of one step or of several.

    step, steps: the last step of each line, and how many it is the mean of, shape (n,). values: in ms, shape
    (n, 2 + phases); NaN where no step was timed. start_s: when the first one ended, as Unix time.
    """

    step: Int64
    steps: Int64
    values: Float64
    start_s: float


def read_lines(clock: str, folder: str = "") -> tuple[dict[int, StepLines], list[GpudiagError]]:
    """Return the lines of each rank, and what could not be read. folder: see open_local.

    Raises NothingToRead: no rank has a line. OSError: the folder cannot be listed.
    """
    found: dict[int, StepLines] = {}
    errors: list[GpudiagError] = []
    left_bytes = MOST_BYTES
    for rank, name in rank_folders(clock).items():
        path = _newest(os.path.join(clock, name))
        if not path:
            continue
        try:
            content = first_bytes(path, min(MOST_FILE_BYTES, left_bytes), folder)
            left_bytes -= len(content)
            lines = lines_in(content, path)
        except OSError as error:
            errors.append(Unreadable(error.strerror or type(error).__name__, where=path))
        except GpudiagError as error:
            errors.append(error)
        else:
            if len(lines.step):
                found[rank] = lines
    if not found:
        nothing = NothingToRead(
            "no step is written yet", where=clock, remedy="a clock writes every 10 seconds"
        )
        raise next(iter(errors), nothing)
    return found, errors


def _newest(place: str) -> str:
    """Return the event file that was written last; "" without one. Each job has one of its own."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        files = [
            entry for entry in entries if EVENT_FILE in entry.name and entry.is_file(follow_symlinks=False)
        ]
        if files:
            return max(files, key=lambda entry: (entry.stat().st_mtime_ns, entry.name)).path
    return ""


def lines_in(content: bytes, path: str) -> StepLines:
    """Return the lines in an event file, whose end may be missing. Raises NotATrace: it is none, or is
    damaged."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    unknown = [np.nan] * len(TAGS)
    rows: list[list[float]] = []
    steps: list[int] = []
    start_s = 0.0
    for place, size in _records(content, path):
        try:
            event = Event.FromString(content[place : place + size])
        except DecodeError as error:
            raise _damaged(path) from error
        values = unknown.copy()
        for one in event.summary.value:
            column = _COLUMNS.get(one.tag)
            if column is not None:
                values[column] = one.simple_value
        if not 0 <= values[TOTAL] < np.inf or not 0 <= event.step < _LARGEST_STEP:  # the file's own head
            continue
        start_s = start_s or (event.wall_time if 0 <= event.wall_time < np.inf else 0.0)
        steps.append(event.step)
        rows.append(values)
    return _in_order(np.array(steps, np.int64), np.array(rows).reshape(-1, len(TAGS)), start_s)


def _in_order(step: Int64, values: Float64, start_s: float) -> StepLines:
    means_of = np.exp2(np.minimum(np.arange(len(step)) // FULL_LINES, 32)).astype(np.int64)
    values[~np.isfinite(values) | (values < 0)] = np.nan
    # What comes again is not ours.
    is_next = step > np.maximum.accumulate(np.concatenate([[-1], step]))[:-1]
    return StepLines(step[is_next], means_of[is_next], values[is_next], start_s)


def _records(content: bytes, path: str) -> Iterator[tuple[int, int]]:
    """Yield place and size of each record. The last one may be cut off."""
    place = 0
    while place + _HEAD_BYTES <= len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        if size > _MOST_LINE_BYTES:
            raise _damaged(path)
        end = place + _HEAD_BYTES + size + _TAIL_BYTES
        if end > len(content):
            return
        yield place + _HEAD_BYTES, size
        place = end


def _damaged(path: str) -> NotATrace:
    return NotATrace(
        "it is no event file of a step clock, or it is damaged",
        where=path,
        remedy="delete it: the clock of the next job writes its own",
    )
