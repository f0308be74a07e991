"""Which ranks the others wait for, and what these ranks do longer: shared by rules and the verdict.

A rank's own time is what it does itself in a step: everything but communicating and waiting. A step takes as
long as the rank with most own time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from tb_gpudiag.arrays import Bool, Float64, Int64, mask_of
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.own_time import OwnTime
from tb_gpudiag.jobs.replay.job_replay import JobSlowdown
from tb_gpudiag.jobs.step_parts import ids_of
from tb_gpudiag.vocabulary import levels

# Below this, a fix is hardly noticed. Over several steps, ranks of healthy jobs, simulated and real, differ
# by up to 1%.
LEAST_SHARE = levels.MEASURABLE

# More than chance: own times vary from step to step, and their mean by this many standard errors. In some
# sixty recordings of healthy jobs of two to eight ranks on a CPU, the slowest rank is up to 4.3 above its
# peers, and once 5.5.
CERTAIN = 5.0

# In each step this many times as long as its peers is no chance, however much longer one of the steps is. In
# 160 recordings without a fault, up to 1.3 times, and 1.5 times without computing; once 2.04 times, where
# another process had one rank's core, which all of its operators show.
TIMES_IN_EACH_STEP = 2.0

# If the sizes of its inputs show that a rank has more work, or its own report that it alone is in a mode that
# slows it, its times only have to agree. Five times the rows beside busy processes: 3.2; anomaly mode: 2.6.
CERTAIN_OF_MORE = 2.0

# Now and then a rank is slow by this many times what a usual rank varies by from step to step.
UNUSUAL = 4.0

# Ranks that share the cores of a host slow one another down. Which of them is slow is chance.
SHARED_CORES = 1.25

# If a rank computes longer by this many times a usual rank's own time, cores that others use show in all of
# its operators.
TIMES_USUAL = 1.0

# A rank that is above its peers in this share of the steps is slow, not hit by chance.
PERSISTENT = 0.6

# Where ranks are slow now and then, one of them is the cause if this much of the lost time is due to it.
MOST_OF_LOST = 0.6


# More work, or cores that others use, are the reason if they explain at least this much of what is longer.
# Batches of all ranks differ a little in size, which explains little.
EXPLAINED = levels.HALF

# The median operator says less than all of them: a rank beside another process was 1.8 times as slow, and its
# lateness half explained. One that also makes histograms was 2.1 times as slow, which explained 8%.
HARDLY_EXPLAINED = levels.LARGE

# Sizes of inputs say how much work there is if they are known for most of the kernels' time.
SHAPED = levels.HALF

# Without shapes, kernels with other grids than the peers' show more work if they are this much of the
# computing.
OTHER_WORK = levels.LARGE

# Chance makes kernels differ by 1% between equal GPUs, and GPUs of one type by 3%.
SLOWER = 1.03

# Work by the sizes of inputs, relative to the peers', that is more: batches differ a little.
MORE_WORK = 1.05

# Lengths that each rank draws by itself differ by less over a few steps. So do equal stages of a pipeline:
# the first has no gradient of its inputs, and the last has the loss. Of two blocks each, that is 1.2 times.
MUCH_MORE_WORK = 1.5

# First and last stages of a pipeline hold the embedding and the loss, so some difference cannot be avoided.
STAGE_SHARE = levels.SIZEABLE

# The replay compares a rank with the mean of its peers, and own times with their lower median: of two ranks,
# that gives half. If it gives even less, the peers' own hosts take the rest of the time.
HOSTS_ARE_LATE = 0.4

LEAST_STEPS = 2

# A step that loses less than this share of what the worst one loses is another matter: chance, on shared
# cores. Counted, it would make a habit of a delay of 300 ms that happened once.
LIKE_WORST = levels.SIZEABLE

# Beside other processes, a rank on a CPU loses its core for a while in up to three of six steps. A rank that
# sleeps, loads, saves or collects garbage is late in five or six.
SHARE_OF_STEPS_ON_CPU = 2 / 3


@dataclass(frozen=True, eq=False)
class Uneven:
    """How uneven a job is. members: those that the others wait for; if they vary, all that were slowest once.

    high_ns, low_ns: what is lost because of them in these steps, at most and at least. part: what they do
    longer, and part_ns by how much in all. steps: in how many of `of_steps` they were slow. work: whether
    they compute more than their peers ("more") or compute the same but slower ("slower"); "" if the trace
    does not show it, or if it is not computing that takes longer. slower: how many times as long the same
    kernels take, NaN if not known. stretched: on a CPU, the same operators take so much longer that all
    else which these ranks do is expected to, as far as that explains their lateness. others_ns: by how
    much the other ranks differ.
    """

    pattern: Literal["even", "persistent", "sometimes", "varying", "too few steps"]
    members: Int64
    high_ns: int
    of_steps: int
    low_ns: int = 0
    part: str = ""
    part_ns: int = 0
    steps: int = 0
    work: Literal["", "more", "slower"] = ""
    slower: float = math.nan
    stretched: bool = False
    on_cpu: bool = False
    others_ns: int = 0

    @property
    def once(self) -> bool:
        """Whether it was seen in so few steps that nothing shows that it happens again."""
        least = SHARE_OF_STEPS_ON_CPU * self.of_steps if self.on_cpu else LEAST_STEPS - 1
        return self.pattern != "persistent" and self.steps <= least

    @property
    def may_be_chance(self) -> bool:
        """Whether nothing shows that another recording would have it."""
        return self.once or self.lacks_cores or self.within_sharing

    @property
    def within_sharing(self) -> bool:
        """Whether ranks that share the cores of a CPU are late by no more than another one computes, and than
        the others differ: which of them waits for a core is chance. More work is none."""
        alike = self.on_cpu and not self.low_ns and self.high_ns <= self.others_ns
        return alike and self.work != "more"

    @property
    def lacks_cores(self) -> bool:
        """Whether a CPU takes longer for the same work: whoever else needs a rank's cores does so for a
        while, and in all of its code."""
        return self.on_cpu and (self.work == "slower" or self.stretched)

    @property
    def found(self) -> bool:
        return self.pattern in ("persistent", "sometimes", "varying")


def find_uneven(facts: JobFacts) -> Uneven:
    """Judge the own times of the ranks."""
    found = _uneven(facts, facts.own_time)
    if facts.on_gpu or found.pattern == "too few steps" or (found.found and not found.may_be_chance):
        return found
    # Whoever takes cores from the ranks makes all of them compute longer now and then, which hides one that
    # sleeps or loads longer than its peers in each step.
    besides = _uneven(facts, facts.own_time.without("computing"))
    return besides if besides.pattern == "persistent" and not besides.may_be_chance else found


def _uneven(facts: JobFacts, own: OwnTime) -> Uneven:
    excess, steps = own.excess_ns, len(own.steps)
    total, in_step_ns = excess.sum(axis=1), np.maximum(0, excess.max(axis=0))
    least_ns = LEAST_SHARE * max(1, int(own.step_ns.sum()), facts.job_ns)
    lost_ns = _replayed(facts, int(in_step_ns.sum()))
    even = Uneven("even", np.zeros(0, np.int64), lost_ns, steps, on_cpu=not facts.on_gpu)
    if even.high_ns < least_ns or not steps:
        return even
    if steps < LEAST_STEPS:
        return replace(even, pattern="too few steps")
    # How much a usual rank's own time varies from step to step, compared with its peers' time.
    from_middle = np.abs(excess - np.median(excess, axis=1, keepdims=True))
    noise_ns = 1.4826 * np.median(np.median(from_middle, axis=1))
    chance_ns = np.maximum(UNUSUAL * noise_ns, _waits_for_a_core_ns(facts))
    every = np.ones(steps, np.bool_)
    shown = _shows_more_work(facts) | facts.in_another_mode
    certain = (own.certainty >= CERTAIN) | (shown & (own.certainty >= CERTAIN_OF_MORE))
    certain |= own.times_in_each_step >= TIMES_IN_EACH_STEP
    slow = (total >= least_ns) & certain & (total >= levels.HALF * total.max())
    persistent = np.flatnonzero(slow & (_is_above(own).mean(axis=1) >= PERSISTENT))
    of_role = np.bincount(own.role)
    slow_of_role = np.bincount(own.role[persistent], minlength=len(of_role))
    if len(persistent) and (slow_of_role <= np.maximum(1, levels.HALF * of_role)).all():
        uneven = _described(facts, own, replace(even, pattern="persistent", members=persistent), every)
        # A stage of a pipeline that has no more to do than the first or the last one must have. Stages on one
        # CPU take each other's cores, so there the sizes of inputs say it, not the time.
        of_an_end = uneven.high_ns < STAGE_SHARE * own.usual_ns[0].sum()
        if not facts.on_gpu:
            of_an_end = not _shows_more_work(facts)[uneven.members].any()
        by_design = own.staged and uneven.work == "more" and of_an_end
        if by_design or _shares_cores(facts, uneven):
            return replace(uneven, pattern="even", members=even.members)
        return uneven
    worth = in_step_ns >= np.maximum(LEAST_SHARE * own.step_ns, chance_ns)
    worth &= in_step_ns >= LIKE_WORST * in_step_ns.max()
    by = np.bincount(excess.argmax(axis=0)[worth], in_step_ns[worth], len(total)).astype(np.int64)
    if by.sum() < least_ns:
        return even
    if by.max() >= MOST_OF_LOST * by.sum():
        worth &= excess.argmax(axis=0) == by.argmax()
        uneven = _described(
            facts, own, replace(even, pattern="sometimes", members=np.array([int(by.argmax())])), worth
        )
    else:
        uneven = _described(facts, own, replace(even, pattern="varying", members=np.flatnonzero(by)), worth)
    by_chance = not facts.on_gpu and uneven.low_ns < least_ns
    return even if by_chance or _shares_cores(facts, uneven) else uneven


def _replayed(facts: JobFacts, lost_ns: int) -> int:
    """Return what stragglers cost over the steps, if a replay shows far less than own times do. These are a
    GPU's: while it waits in a collective, its host may be nearly as late as the last one, and only the replay
    has hosts. On a CPU, own time is the host's already. Stages without replicas have no peers in a replay."""
    slowdown = facts.slowdown if facts.on_gpu and not facts.own_time.staged else None
    if slowdown is None:
        return lost_ns
    most = max(1.0, slowdown.s, *slowdown.by_member.values())
    replayed_ns = round((1 - 1 / most) * slowdown.step_ns * max(1, len(facts.own_time.steps)))
    return replayed_ns if replayed_ns < HOSTS_ARE_LATE * lost_ns else lost_ns


def slowdown_shown(facts: JobFacts) -> JobSlowdown | None:
    """Return what stragglers cost, if a replay can tell. It makes each rank like its peers, and stages
    without replicas have none."""
    return None if facts.own_time.staged else slowdown_found(facts)


def slowdown_found(facts: JobFacts) -> JobSlowdown | None:
    """Return what stragglers cost, if the job has some: ranks that share the cores of a CPU straggle by
    chance, and no change of the job removes that."""
    return facts.slowdown if facts.on_gpu or find_uneven(facts).found else None


def _shares_cores(facts: JobFacts, uneven: Uneven) -> bool:
    """Whether a CPU computes the same work longer, as it does when ranks or other processes use its cores."""
    same = uneven.part == "computing" and uneven.work != "more"
    always = uneven.pattern == "persistent" and (
        uneven.slower >= SHARED_CORES
        or _by_few_operators(facts, uneven)
        or bool(facts.in_another_mode[uneven.members].all())
    )
    return not facts.on_gpu and same and not always


def _by_few_operators(facts: JobFacts, uneven: Uneven) -> bool:
    """Whether a rank computes so much longer that all of its operators would, if others had its cores, and
    they do not: a few take the time, such as one that fills new memory."""
    usual_ns = int(facts.own_time.usual_ns[uneven.members].sum()) // max(1, len(uneven.members))
    return uneven.slower < SHARED_CORES and uneven.part_ns >= TIMES_USUAL * usual_ns * len(uneven.members)


def _waits_for_a_core_ns(facts: JobFacts) -> Int64:
    """Return how long a rank may wait for another to leave it a core, by step: as long as a usual rank
    computes. 0 on GPUs: each rank has one, and leaves the cores to the others."""
    own = facts.own_time
    if facts.on_gpu:
        return np.zeros(len(own.steps), np.int64)
    computing = own.parts_ns[:, :, own.part_names.index("computing")]
    return np.asarray(np.median(computing, axis=0), np.int64)


def _shows_more_work(facts: JobFacts) -> Bool:
    """Mask of the members whose inputs are so much larger that they must compute longer, shape (members,)."""
    return (facts.kernels.shaped >= SHAPED) & (facts.kernels.work >= MUCH_MORE_WORK)


def _is_above(own: OwnTime) -> Bool:
    """Mask of the members that are above their peers by a noticeable share of the step, shape (members,
    steps)."""
    return own.excess_ns >= LEAST_SHARE * np.maximum(1, own.step_ns)[None, :]


def _described(facts: JobFacts, own: OwnTime, found: Uneven, slow: Bool) -> Uneven:
    """Add what is lost because of the members, and why. slow: mask of the steps in which they are slow, or of
    all steps if they always are."""
    members = found.members
    low_ns, high_ns = (min(ns, found.high_ns) for ns in _lost_because_of(own, members, slow))
    # While some ranks waited, the late one had their cores. Without the wait, all need them at once.
    low_ns = max(0, low_ns - int(_waits_for_a_core_ns(facts)[slow].sum()))
    part, part_ns = _main_part(own, None if found.pattern == "varying" else members)
    part = _by_own_report(facts, members, part, part_ns)
    work, slower = _work(facts, members, part, always=found.pattern == "persistent")
    explained = math.inf if facts.on_gpu else _explained_by_cores(facts, members, slow, high_ns)
    if work == "slower" and explained < HARDLY_EXPLAINED:
        work = ""  # it does something that its peers do not
    others_ns = own.excess_ns[~mask_of(members, len(own.total_ns))][:, slow].sum(axis=1)
    return replace(
        found,
        low_ns=low_ns,
        high_ns=high_ns,
        part=part,
        part_ns=part_ns,
        steps=int((_is_above(own)[members].any(axis=0) & slow).sum()),
        work=work,
        slower=slower,
        stretched=not facts.on_gpu and explained >= EXPLAINED,
        others_ns=int(np.ptp(others_ns)) if len(others_ns) else 0,
    )


def _explained_by_cores(facts: JobFacts, members: Int64, slow: Bool, late_ns: int) -> float:
    """Return the share of their lateness that is explained if all of these ranks' own time is stretched as
    their operators are, which take longer for the same work. 0 if that is not known."""
    longer = _mean(facts.kernels.slower[members]) - 1
    usual_ns = float(facts.own_time.usual_ns[members][:, slow].sum()) / len(members)
    return longer * usual_ns / max(1, late_ns) if math.isfinite(longer) else 0.0


def _lost_because_of(own: OwnTime, members: Int64, slow: Bool) -> tuple[int, int]:
    """Return how much shorter these steps would be without these ranks, and if these were like their
    peers."""
    total, usual, excess = own.total_ns[:, slow], own.usual_ns[:, slow], own.excess_ns[:, slow]
    among = mask_of(members, len(total))
    # By role: stages of a pipeline do not have to be equal.
    rest = np.where(among[:, None], usual, total) - usual
    left = np.maximum(0, rest.max(axis=0))
    lost = np.maximum(0, excess[members].max(axis=0))
    return int(np.maximum(0, lost - left).sum()), int(lost.sum())


def _main_part(own: OwnTime, members: Int64 | None) -> tuple[str, int]:
    """Return the part that these members have most more of than their peers, and how much in all. None: the
    slowest rank of each step."""
    excess = own.excess_parts_ns
    if members is None:
        slowest = own.excess_ns.argmax(axis=0)
        more = excess[slowest, np.arange(len(slowest))].sum(axis=0)
    else:
        more = excess[members].sum(axis=(0, 1))
    part = int(more.argmax())
    return own.part_names[part], int(more[part])


def _by_own_report(facts: JobFacts, members: Int64, part: str, part_ns: int) -> str:
    """Return "sync" if the ranks' own reports say so: after a synchronization the host is late with
    everything, so that the GPU waits for Python and launches."""
    if part not in _AFTER_A_SYNC:
        return part
    drained = [
        finding.cost_us * 1e3
        for member in members.tolist()
        for finding in facts.set.members[member].findings
        if finding.rule in ids_of("sync")
    ]
    return "sync" if sum(drained) >= MOST_OF_LOST * part_ns else part


_AFTER_A_SYNC = ("python", "host", "dispatch", "launch", "latency")


def _work(
    facts: JobFacts, members: Int64, part: str, *, always: bool
) -> tuple[Literal["", "more", "slower"], float]:
    """Return whether these members have more work or are slower. always: they are late in every step. Large
    batches of some steps hardly show in the work of all."""
    if part != "computing":
        return "", math.nan
    kernels = facts.kernels
    time, work, slower = (_mean(values[members]) for values in (kernels.time, kernels.work, kernels.slower))
    if _mean(kernels.shaped[members]) >= SHAPED:
        if work >= MORE_WORK and work - 1 >= EXPLAINED * (time - 1):
            return "more", slower
        if slower >= SLOWER:
            return "slower", slower
        other = not always and _other_sizes(facts.own_time, members) >= OTHER_WORK
        return ("more" if other else "", slower)
    grids = _other_sizes(facts.own_time, members)
    if grids >= OTHER_WORK:
        return "more", slower
    return ("slower", slower) if grids < OTHER_WORK and slower >= SLOWER else ("", slower)


def _mean(values: Float64) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _other_sizes(own: OwnTime, members: Int64) -> float:
    """Return the share of these members' comparable computing that ran with other sizes than on their peers;
    NaN if none can be compared."""
    same = int(own.computing_same_ns[members].sum())
    other = int(own.computing_other_ns[members].sum())
    return other / (same + other) if same + other else math.nan
