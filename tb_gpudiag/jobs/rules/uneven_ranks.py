"""Which ranks the others wait for, and what those do longer: shared by the rules on it and by the verdict.

A rank's own time is what it does itself in a step: everything but communicating and waiting. A step takes as
long as the rank with most own time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tb_gpudiag.arrays import Float64, Int64
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.own_time import OwnTime
from tb_gpudiag.jobs.ranks.stragglers import main_part, other_sizes, stragglers_of

# Below this, a fix is hardly noticed. Ranks of healthy jobs, simulated and real, differ by up to 1% over some
# steps.
LEAST_SHARE = 0.02

# More than chance: own times of a rank vary from step to step, and their sum by the square root of the steps.
CERTAIN = 4.0

# A rank that is above its peers in this many steps is slow, and not only hit once.
PERSISTENT = 0.6

# Ranks that are slow now and then: one of them is the cause if this much of the lost time is its own.
MOST_OF_LOST = 0.6

# The others wait for the slowest rank, and for those that are nearly as slow: this much of its excess.
COMPARABLE = 0.5

# The rest of the ranks are the measure of what is usual, so they must be the majority of a role.
MOST_RANKS = 0.5

# More work is the reason if it explains at least this much of the longer computing. Batches of all ranks
# differ a little in size, which explains little.
EXPLAINED = 0.5

# Sizes of inputs say how much work there is if they are known for most of the kernels' time.
SHAPED = 0.5

# Without shapes, other grids than the peers' show more work if they are this much of the computing.
OTHER_WORK = 0.25

# Chance makes kernels differ by 1% between equal GPUs, and GPUs of one type by 3%.
SLOWER = 1.03

# First and last stages of a pipeline hold the embedding and the loss, so some difference cannot be avoided.
STAGE_SHARE = 0.08

LEAST_STEPS = 2

UnevenPattern = Literal["even", "persistent", "sometimes", "varying", "too few steps"]


@dataclass(frozen=True)
class Uneven:
    """How uneven a job is. members: those that the others wait for; all that were slowest, if they vary.

    part: what they do longer, and part_ns how much of it in all. low_ns, high_ns: what is lost because of
    them, at least and at most, over the steps. steps: in how many of `of_steps` they were slow. work: whether
    they compute more than their peers ("more"), compute the same but slower ("slower"), or "" if the trace
    does not show it or computing is not what takes longer. slower: how many times as long the same kernels
    take, NaN if not known.
    """

    pattern: UnevenPattern
    members: Int64
    part: str
    part_ns: int
    low_ns: int
    high_ns: int
    steps: int
    of_steps: int
    work: Literal["", "more", "slower"]
    slower: float

    @property
    def found(self) -> bool:
        return self.pattern in ("persistent", "sometimes", "varying")


def find_uneven(facts: JobFacts) -> Uneven:
    """Judge the own times of the ranks."""
    own = facts.own_time
    found = stragglers_of(own, LEAST_SHARE)
    window_ns = max(1, int(own.step_ns.sum()), facts.job_ns)
    steps = len(own.steps)
    lost_ns = int(found.lost_ns.sum())
    none = np.zeros(0, np.int64)
    if lost_ns < LEAST_SHARE * window_ns or not steps:
        return Uneven("even", none, "", 0, 0, lost_ns, 0, steps, "", float("nan"))
    if steps < LEAST_STEPS:
        return Uneven("too few steps", none, "", 0, 0, lost_ns, 0, steps, "", float("nan"))
    chance_ns = CERTAIN * _noise_ns(own) * np.sqrt(steps)
    slow = found.excess_ns >= max(LEAST_SHARE * window_ns, chance_ns)
    slow &= found.excess_ns >= COMPARABLE * found.excess_ns.max()
    persistent = np.flatnonzero(slow & (found.steps_above >= PERSISTENT))
    if len(persistent) and _are_few(own, persistent):
        uneven = _described(facts, "persistent", persistent)
        by_design = (
            own.staged and uneven.work == "more" and uneven.high_ns < STAGE_SHARE * own.usual_ns[0].sum()
        )
        return uneven if not by_design else replace(uneven, pattern="even", members=none)
    worth = found.lost_ns >= np.maximum(LEAST_SHARE * own.step_ns, CERTAIN * _noise_ns(own))
    by = np.bincount(
        found.slowest[worth], weights=found.lost_ns[worth], minlength=len(found.excess_ns)
    ).astype(np.int64)
    if by.sum() < LEAST_SHARE * window_ns:
        return Uneven("even", none, "", 0, 0, lost_ns, 0, steps, "", float("nan"))
    if by.max() >= MOST_OF_LOST * by.sum():
        return _described(facts, "sometimes", np.array([int(by.argmax())]))
    return _described(facts, "varying", np.flatnonzero(by))


def _noise_ns(own: OwnTime) -> float:
    """How much a rank's own time varies from step to step, compared with its peers': usual rank."""
    excess = own.excess_ns
    middle = np.median(excess, axis=1, keepdims=True)
    return float(1.4826 * np.median(np.median(np.abs(excess - middle), axis=1)))


def _are_few(own: OwnTime, members: Int64) -> bool:
    slow = np.bincount(own.role[members], minlength=int(own.role.max()) + 1)
    of = np.bincount(own.role, minlength=len(slow))
    return bool((slow <= np.maximum(1, MOST_RANKS * of)).all())


def _described(facts: JobFacts, pattern: UnevenPattern, members: Int64) -> Uneven:
    own = facts.own_time
    low_ns, high_ns = _lost_because_of(own, members)
    above = own.excess_ns[members] >= LEAST_SHARE * np.maximum(1, own.step_ns)[None, :]
    part, part_ns = main_part(own, members) if pattern != "varying" else _main_part_of_slowest(own)
    part = _by_own_report(facts, members, part, part_ns)
    work, slower = _work(facts, members, part)
    return Uneven(
        pattern,
        members,
        part,
        part_ns,
        low_ns,
        high_ns,
        int(above.any(axis=0).sum()),
        len(own.steps),
        work,
        slower,
    )


def _lost_because_of(own: OwnTime, members: Int64) -> tuple[int, int]:
    """How much shorter the steps were without these ranks, and if they were like their peers."""
    total, usual = own.total_ns, own.usual_ns
    excess = own.excess_ns
    among = np.zeros(len(total), np.bool_)
    among[members] = True
    # By role: stages of a pipeline do not have to be equal.
    rest = np.where(among[:, None], usual, total) - usual
    left = np.maximum(0, rest.max(axis=0))
    lost = np.maximum(0, excess[members].max(axis=0))
    return int(np.maximum(0, lost - left).sum()), int(lost.sum())


def _main_part_of_slowest(own: OwnTime) -> tuple[str, int]:
    """What the slowest rank of each step does longer."""
    slowest = own.excess_ns.argmax(axis=0)
    more = own.excess_parts_ns[slowest, np.arange(len(slowest))].sum(axis=0)
    best = int(more.argmax())
    return own.part_names[best], int(more[best])


def _by_own_report(facts: JobFacts, members: Int64, part: str, part_ns: int) -> str:
    """What the ranks' own reports say: after a synchronization the host is late with everything, so that the
    GPU waits for Python and launches."""
    if part not in _AFTER_A_SYNC:
        return part
    drained = [
        finding.cost_us * 1e3
        for member in members.tolist()
        for finding in facts.set.members[member].findings
        if finding.rule == _HOST_SYNC
    ]
    return "sync" if sum(drained) >= MOST_OF_LOST * part_ns else part


_HOST_SYNC = "GD301"
_AFTER_A_SYNC = ("python", "dispatch", "launch", "latency")


def _work(facts: JobFacts, members: Int64, part: str) -> tuple[Literal["", "more", "slower"], float]:
    if part != "computing":
        return "", float("nan")
    kernels = facts.kernels
    time, work, slower = (_mean(values[members]) for values in (kernels.time, kernels.work, kernels.slower))
    if _mean(kernels.shaped[members]) >= SHAPED:
        explained = work - 1 >= EXPLAINED * (time - 1)
        return ("slower", slower) if slower >= SLOWER and not explained else ("more", slower)
    grids = other_sizes(facts.own_time, members)
    if grids >= OTHER_WORK:
        return "more", slower
    return ("slower", slower) if grids < OTHER_WORK and slower >= SLOWER else ("", slower)


def _mean(values: Float64) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
