"""Reads the lines of step clocks: the event files in a folder of clocks, the newest one of each rank."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.errors import GpudiagError, NotATrace, NothingToRead, Unreadable
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.files.clock_names import EVENT_FILE
from tb_gpudiag.trace.files.opening import first_bytes
from tb_gpudiag.trace.step_clocks.clock_state import rank_folders
from tb_gpudiag.vocabulary.clock_phases import FULL_LINES, TAGS

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
