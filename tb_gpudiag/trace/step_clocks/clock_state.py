"""What the step clocks of a log directory say: small files of each run, which others may have written."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from tb_gpudiag.errors import TraceError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.trace.credentials.removing import cleaned
from tb_gpudiag.trace.files.clock_names import MADE, NOW, ORDER
from tb_gpudiag.trace.files.opening import first_bytes
from tb_gpudiag.vocabulary.clock_phases import PHASES, WAIT

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
