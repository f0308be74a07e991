"""The step without the recorder: the replay, with what recording each event costs the host taken out."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Int64
from tb_gpudiag.facts.replay.model import Calls
from tb_gpudiag.facts.replay.replay import Replay
from tb_gpudiag.frozen import dataclass

# A launch takes a microsecond and more without a recorder, too.
_LEAST_CALL_NS: Final = 1_000


@dataclass(frozen=True, eq=False)
class Unslowed:
    """Length of the step window without the recorder: at most, if recording an event costs little; most
    likely; and at least. recorded_ns: as it was recorded. sooner: the host's times of the most likely, see
    Replay.run."""

    recorded_ns: int
    most_ns: int
    likely_ns: int
    least_ns: int
    sooner: tuple[Int64, Int64]

    @property
    def least_slowed(self) -> float:
        """The share of the recorded window that is at least the recorder's."""
        return 1 - self.most_ns / self.recorded_ns if self.recorded_ns else 0.0


@dataclass(frozen=True, eq=False)
class Spent:
    """What the recorder takes of the host: before each call of the replay, shape (c,), and inside one."""

    before_ns: Int64
    inside_ns: int


def find_unslowed(replay: Replay, least: Spent, likely: Spent, most: Spent) -> Unslowed:
    """Replay without what the recorder takes at least, most likely, and at most."""
    whole_ns = replay.unchanged.window_ns
    sooner = [_sooner(replay.calls, spent) for spent in (least, likely, most)]
    window_ns = [replay.run(sooner=times).window_ns for times in sooner]
    most_ns, likely_ns, least_ns = np.minimum.accumulate([whole_ns, *window_ns])[1:].tolist()
    return Unslowed(whole_ns, most_ns, likely_ns, least_ns, sooner[1])


def _sooner(calls: Calls, spent: Spent) -> tuple[Int64, Int64]:
    """Host time before and inside each call without the recorder's."""
    between = calls.between_ns
    before = np.where(between > 0, np.maximum(0, between - spent.before_ns), between)
    shorter = np.maximum(np.minimum(calls.inside_ns, _LEAST_CALL_NS), calls.inside_ns - spent.inside_ns)
    return before, np.where(calls.event == NONE, calls.inside_ns, shorter)
