"""Which ranks the others wait for, and what these ranks do longer: shared by rules and the verdict.

A rank's own time is what it does itself in a step: everything but communicating and waiting. A step takes as
long as the rank with most own time. `Lateness` has the figures. Here is who is slow (in each step, now and
then, or in turn), from which level on, why, and what on shared cores is nobody's fault.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from tb_gpudiag.arrays import Bool, Int64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.job_facts import JobFacts
from tb_gpudiag.jobs.ranks.lateness import Lateness, mean
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


_Work = Literal["", "more", "slower"]


@dataclass(frozen=True, eq=False)
class Uneven:
    """How uneven a job is. members: those that the others wait for; if they vary, all that were slowest once.

    steps: in how many of `of_steps` they were slow. work: whether they compute more than their peers, or the
    same but slower; "" if the trace does not show it, or if it is not computing that takes longer. stretched:
    whether that explains their lateness. The figures are those of Lateness.
    """

    pattern: Literal["even", "persistent", "sometimes", "varying", "too few steps"]
    members: Int64
    high_ns: int
    of_steps: int
    low_ns: int = 0
    part: str = ""
    part_ns: int = 0
    steps: int = 0
    work: _Work = ""
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

    @property
    def certain(self) -> bool:
        return self.found and not self.may_be_chance


def find_uneven(facts: JobFacts) -> Uneven:
    """Judge the own times of the ranks."""
    found = _uneven(Lateness(facts, facts.own_time))
    if facts.on_gpu or found.certain:
        return found
    # Whoever takes cores from the ranks makes all of them compute longer now and then, which hides one that
    # sleeps or loads longer than its peers in each step.
    besides = _uneven(Lateness(facts, facts.own_time.without("computing")))
    return besides if besides.pattern == "persistent" and besides.certain else found


def _uneven(ranks: Lateness) -> Uneven:
    facts, own = ranks.facts, ranks.own
    least_ns = LEAST_SHARE * max(1, int(own.step_ns.sum()), facts.job_ns)
    high_ns, steps = _replayed(facts, int(ranks.lost_ns.sum())), len(own.steps)
    even = Uneven("even", np.zeros(0, np.int64), high_ns, steps, on_cpu=not facts.on_gpu)
    if high_ns < least_ns:
        return even
    if steps < LEAST_STEPS:
        return replace(even, pattern="too few steps")
    found = _persistent(ranks, even, least_ns)
    if found.pattern == "even":
        found = _now_and_then(ranks, even, least_ns)
    return even if _by_design(ranks, found) or _by_chance(facts, found, least_ns) else found


def _persistent(ranks: Lateness, even: Uneven, least_ns: float) -> Uneven:
    """Ranks that take longer than their peers in most steps, by more than chance, and as much as others that
    do. If most ranks with a role are slow, it is the others that are fast."""
    own = ranks.own
    total_ns = own.excess_ns.sum(axis=1)
    shown = _shows_more_work(ranks.facts) | ranks.facts.in_another_mode
    certain = own.certainty >= np.where(shown, CERTAIN_OF_MORE, CERTAIN)
    certain |= own.times_in_each_step >= TIMES_IN_EACH_STEP
    slow = certain & (total_ns >= np.maximum(least_ns, levels.HALF * total_ns.max()))
    slow &= _is_above(own).mean(axis=1) >= PERSISTENT
    of_role = np.bincount(own.role)
    most_of_role = np.maximum(1, levels.HALF * of_role)
    if not slow.any() or (np.bincount(own.role[slow], minlength=len(of_role)) > most_of_role).any():
        return even
    found = replace(even, pattern="persistent", members=np.flatnonzero(slow))
    return _described(ranks, found, np.ones(len(own.steps), np.bool_), slow)


def _now_and_then(ranks: Lateness, even: Uneven, least_ns: float) -> Uneven:
    """Ranks that are late in some steps, by more than ranks usually vary, and wait for a core: the one that
    most of the lost time is due to, or several in turn."""
    own, lost_ns, excess = ranks.own, ranks.lost_ns, ranks.own.excess_ns
    # How much a usual rank's own time varies from step to step, compared with its peers' time.
    noise_ns = 1.4826 * np.median(np.abs(excess - np.median(excess, axis=1, keepdims=True)), axis=1)
    unusual_ns = np.maximum(UNUSUAL * np.median(noise_ns), ranks.core_wait_ns)
    slow = lost_ns >= np.maximum(LEAST_SHARE * own.step_ns, unusual_ns)
    slow &= lost_ns >= LIKE_WORST * lost_ns.max()
    by_ns = np.bincount(ranks.latest[slow], lost_ns[slow], len(own.role)).astype(np.int64)
    if by_ns.sum() < least_ns:
        return even
    worst = by_ns.argmax()
    if by_ns[worst] < MOST_OF_LOST * by_ns.sum():
        found = replace(even, pattern="varying", members=np.flatnonzero(by_ns))
        return _described(ranks, found, slow, np.arange(len(by_ns))[:, None] == ranks.latest)
    found = replace(even, pattern="sometimes", members=np.array([worst]))
    return _described(ranks, found, slow & (ranks.latest == worst), np.arange(len(by_ns)) == worst)


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


def _by_design(ranks: Lateness, found: Uneven) -> bool:
    """Whether it is a stage of a pipeline that has no more to do than the first or the last one must have.
    Stages on one CPU take each other's cores, so there the sizes of inputs say it, not the time."""
    if not ranks.own.staged or found.pattern != "persistent" or found.work != "more":
        return False
    if found.on_cpu:
        return not _shows_more_work(ranks.facts)[found.members].any()
    return bool(found.high_ns < STAGE_SHARE * ranks.own.usual_ns[0].sum())


def _by_chance(facts: JobFacts, found: Uneven, least_ns: float) -> bool:
    """Whether a CPU's cores, that ranks or other processes share, make ranks late: now and then by what a
    core costs, or while they compute the same work."""
    if not found.on_cpu:
        return False
    always, same = found.pattern == "persistent", found.part == "computing" and found.work != "more"
    return (not always and found.low_ns < least_ns) or (same and not (always and _is_its_own(facts, found)))


def _is_its_own(facts: JobFacts, found: Uneven) -> bool:
    """Whether ranks that compute the same work longer in each step do so by themselves: far longer, in a mode
    that slows them, or twice as long, while operators that can be compared are not slower: a few take the
    time, such as one that fills new memory."""
    twice = found.part_ns >= TIMES_USUAL * int(facts.own_time.usual_ns[found.members].sum())
    return found.slower >= SHARED_CORES or twice or bool(facts.in_another_mode[found.members].all())


def _shows_more_work(facts: JobFacts) -> Bool:
    """Mask of the members whose inputs are so much larger that they must compute longer, shape (members,)."""
    return (facts.kernels.shaped >= SHAPED) & (facts.kernels.work >= MUCH_MORE_WORK)


def _is_above(own: OwnTime) -> Bool:
    """Mask of the members that are above their peers by a noticeable share of the step, shape (members,
    steps)."""
    return own.excess_ns >= LEAST_SHARE * np.maximum(1, own.step_ns)[None, :]


def _described(ranks: Lateness, found: Uneven, slow: Bool, late: Bool) -> Uneven:
    """Add what is lost because of the members, and why. slow: mask of the steps in which they are slow, or of
    all steps if they always are. late: mask of the ranks, or of ranks and steps, that show what takes
    longer."""
    members = found.members
    low_ns, high_ns = (min(ns, found.high_ns) for ns in ranks.lost_because_of(members, slow))
    part, part_ns = ranks.longer_part(late)
    stretched = ranks.stretched(members, slow, high_ns)
    work = _work(ranks, members, always=found.pattern == "persistent") if part == "computing" else ""
    return replace(
        found,
        low_ns=low_ns,
        high_ns=high_ns,
        part=_by_own_report(ranks.facts, members, part, part_ns),
        part_ns=part_ns,
        steps=int((_is_above(ranks.own)[members].any(axis=0) & slow).sum()),
        # What the operators hardly explain is something that the peers do not do.
        work="" if work == "slower" and stretched < HARDLY_EXPLAINED else work,
        slower=mean(ranks.facts.kernels.slower[members]),
        stretched=stretched >= EXPLAINED,
        others_ns=ranks.others_differ_ns(members, slow),
    )


def _by_own_report(facts: JobFacts, members: Int64, part: str, part_ns: int) -> str:
    """Return "sync" if the ranks' own reports say so: after a synchronization the host is late with
    everything, so that the GPU waits for Python and launches."""
    drained_ns = 1e3 * sum(
        finding.cost_us
        for member in members.tolist()
        for finding in facts.set.members[member].findings
        if finding.rule in ids_of("sync")
    )
    return "sync" if part in _AFTER_A_SYNC and drained_ns >= MOST_OF_LOST * part_ns else part


_AFTER_A_SYNC = ("python", "host", "dispatch", "launch", "latency")


def _work(ranks: Lateness, members: Int64, *, always: bool) -> _Work:
    """Return whether these members compute more, or slower. always: they are late in every step. Large
    batches of some steps hardly show in the work of all."""
    kernels = ranks.facts.kernels
    columns = kernels.time, kernels.work, kernels.slower, kernels.shaped
    time, work, slower, shaped = (mean(column[members]) for column in columns)
    by_inputs, sizes = shaped >= SHAPED, ranks.other_sizes(members)
    explains = work >= MORE_WORK and work - 1 >= EXPLAINED * (time - 1)
    more = explains if by_inputs else sizes >= OTHER_WORK
    if more:
        return "more"
    if slower >= SLOWER:
        return "slower"
    return "more" if sizes >= OTHER_WORK and not always else ""
