"""What the step clocks of a log directory say: small files of each run, which others may have written."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tb_gpudiag.errors import TraceError
from tb_gpudiag.trace.files.opening import open_local
from tb_gpudiag.training.rank_lateness import RankSteps
from tb_gpudiag.training.step_clock import PHASES
from tb_gpudiag.wording.format import one_line

NOW: Final = "now"
"""File of a rank: its RankSteps."""
ORDER: Final = "order"
"""File of a run: its last RecordingOrder."""

FOLDER: Final = os.path.join("gpudiag", "clock")

_MOST_FILE_BYTES: Final = 1 << 16
_MOST_FOLDERS: Final = 10_000
_MOST_RANKS: Final = 4_096


@dataclass(frozen=True)
class ClockState:
    """The step clocks of a run. run: its folder below the log directory. why: of the last recording that they
    asked for; "" if there was none. ranks: by number."""

    run: str
    why: str
    ranks: list[RankSteps]


def clock_states(root: str) -> Iterator[ClockState]:
    """Yield what the clocks below a local directory say, without following links."""
    for number, (folder, names, _) in enumerate(os.walk(root)):
        if number >= _MOST_FOLDERS:
            return
        names.sort()
        clock = os.path.join(folder, FOLDER)
        if not os.path.isdir(clock):
            continue
        ranks = list(_ranks(clock, root))
        if ranks:
            why = (read_fields(os.path.join(clock, ORDER), root) or {}).get("why", "")
            yield ClockState(os.path.relpath(folder, root), one_line(str(why), _MOST_FILE_BYTES), ranks)


def read_fields(path: str, folder: str = "") -> dict[str, Any] | None:
    """Return what is in a file; None without one, and if others have written something else there.

    folder: see open_local.
    """
    with contextlib.suppress(OSError, ValueError, RecursionError, TraceError):
        with open_local(path, os.path.realpath(folder) if folder else "") as file:
            fields = json.loads(file.read(_MOST_FILE_BYTES))
        return fields if isinstance(fields, dict) else None
    return None


def _ranks(clock: str, root: str) -> Iterator[RankSteps]:
    names = [name for name in os.listdir(clock) if name.startswith("rank-") and name[5:].isdecimal()]
    for name in sorted(names, key=lambda name: int(name[5:]))[:_MOST_RANKS]:
        fields = read_fields(os.path.join(clock, name, NOW), root)
        with contextlib.suppress(TypeError, ValueError):
            found = RankSteps(**(fields or {}))
            if _is_plain(found):
                yield found


def _is_plain(found: RankSteps) -> bool:
    """Return whether all numbers are numbers, as a clock writes them."""
    counts = found.rank, found.step, found.blocks, found.drifts, found.since
    times = found.step_ms, found.core_ms, *found.phases_ms, *found.longer_ms
    return (
        all(type(number) is int for number in counts)
        and all(type(time) in (int, float) and math.isfinite(time) for time in times)
        and len(found.phases_ms) == len(PHASES)
        and len(found.longer_ms) in (0, len(PHASES) + 2)
    )
