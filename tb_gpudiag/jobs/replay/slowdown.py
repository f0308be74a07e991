"""What stragglers cost a job, and what fixing one rank or one kind of work saves.

The slowdown is defined in "Understanding Stragglers in Large Model Training Using What-if Analysis"
(OSDI'25).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Float64
from tb_gpudiag.errors import TraceError
from tb_gpudiag.jobs.replay.job_replay import UNCHANGED, WITHOUT_STRAGGLING, JobChange, JobReplay
from tb_gpudiag.jobs.replay.rank_work import JobWork

TRANSFER: Final = "transfer"
"""What collectives do once all ranks have arrived."""

# Each rank takes a replay of its own, and fixing the tenth-worst rank saves little while others are slow.
MOST_MEMBERS: Final = 16

# 2.5% quantiles of 2,000 resamples rest on 50 of them.
RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
_SEED: Final = 20231


@dataclass(frozen=True)
class JobSlowdown:
    """S: the step time divided by the step time without straggling, with its 95% interval over the steps.

    step_ns: mean as recorded. by_member: S if one rank takes as long as its peers, for the ranks that others
    waited for most. by_part: S if one part takes equally long on all peers; TRANSFER is one. error: of a
    replay without changes.
    """

    s: float
    low: float
    high: float
    step_ns: float
    by_member: dict[int, float]
    by_part: dict[str, float]
    error: float

    @property
    def ideal_step_ns(self) -> float:
        return self.step_ns / self.s


def slowdown_of(work: JobWork, replay: JobReplay) -> JobSlowdown:
    """Replay a job without its straggling. replay: of this work. Raises TraceError if the steps take no
    time."""
    if math.isinf(replay.error):
        raise TraceError("the steps of the ranks take no time")
    members = slowest_members(work)
    parts = [name for name, spent in zip(work.part_names, work.parts_ns.sum(axis=0), strict=True) if spent]
    changes = [UNCHANGED, WITHOUT_STRAGGLING]
    changes += [JobChange(parts=None, members=frozenset([member])) for member in members]
    changes += [JobChange(parts=frozenset([name])) for name in parts] + [JobChange(transfers=True)]
    # No step takes less than 1 ns, so that all ratios are numbers.
    unchanged, ideal, *fixed = np.maximum(replay.step_ns(changes), 1.0)
    gains = [float(unchanged.mean() / steps.mean()) for steps in fixed]
    low, high = _interval(unchanged, ideal)
    return JobSlowdown(
        float(unchanged.mean() / ideal.mean()),
        low,
        high,
        float(replay.recorded_step_ns.mean()),
        dict(zip(members, gains, strict=False)),
        dict(zip([*parts, TRANSFER], gains[len(members) :], strict=True)),
        replay.error,
    )


def slowest_members(work: JobWork) -> list[int]:
    """Return the members that others waited for, longest first, at most MOST_MEMBERS."""
    matched = np.flatnonzero(work.collective != NONE)
    order = matched[np.lexsort((work.start_ns[matched], work.collective[matched]))]
    collective, start = work.collective[order], work.start_ns[order]
    first = np.flatnonzero(np.diff(collective, prepend=NONE))
    count = np.diff(first, append=len(order))
    last = first + count - 1
    late = start[last] - start[first + (count - 1) // 2]  # after half of the others
    caused = np.zeros(work.members)
    np.add.at(caused, work.member[order[last]], late)
    slowest = np.argsort(-caused, kind="stable")[:MOST_MEMBERS]
    return [int(member) for member in slowest if caused[member] > 0]


def _interval(unchanged: Float64, ideal: Float64) -> tuple[float, float]:
    """Return the interval of the ratio of means, resampling the steps. The same for the same steps."""
    chosen = np.random.default_rng(_SEED).integers(0, len(ideal), (RESAMPLES, len(ideal)))
    ratios = unchanged[chosen].mean(axis=1) / ideal[chosen].mean(axis=1)
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
