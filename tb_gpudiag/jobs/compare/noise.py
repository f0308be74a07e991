"""How much two sets of steps differ (medians and means, with intervals from resampling), and how much the
steps of equal code differ between recordings: because of the machine, or of chance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Float64
from tb_gpudiag.digest.digest import numbers, texts
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.compare.side import Side
from tb_gpudiag.wording.format import figures, in_quotes, share, time_ns

_Middle = Callable[[Float64], Float64]

# 2.5% quantiles of 2,000 resamples rest on 50 of them: with another seed, they move by less than the
# interval's width.
RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
# A few slow steps move the mean. For this confidence, four of eight steps have to be slow, or five of forty.
CONFIDENCE_OF_MEANS: Final = 0.99
_SEED: Final = 20231
_MOST_CELLS: Final = 1 << 20  # 8 MB of resampled steps at once


@dataclass(frozen=True)
class Difference:
    """Medians or means of both sides, and the confidence interval of candidate - base."""

    base: float
    candidate: float
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.candidate - self.base

    @property
    def significant(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.low > 0 or self.high < 0

    def exceeds(self, noise: float) -> bool:
        """Whether it is significant and more than equal code may differ by, as a share."""
        known = self.significant and min(self.base, self.candidate) > 0
        return bool(known and abs(np.log(self.candidate / self.base)) > np.log1p(noise))

    @property
    def share(self) -> float:
        """The difference as a share of the base; 0 without one."""
        return self.value / self.base if self.base > 0 else 0.0


def difference_of_medians(base: Float64, candidate: Float64) -> Difference:
    """Compare medians, with 95% confidence. Resampled medians are measured steps, so with few steps the
    interval is at least as wide as the steps are apart."""
    return _difference(base, candidate, lambda steps: np.median(steps, axis=-1), CONFIDENCE)


def difference_of_means(base: Float64, candidate: Float64) -> Difference:
    """Compare means, with 99% confidence."""
    return _difference(base, candidate, lambda steps: np.mean(steps, axis=-1), CONFIDENCE_OF_MEANS)


def _difference(base: Float64, candidate: Float64, middle: _Middle, confidence: float) -> Difference:
    """Compare the middles of the steps. The interval is a percentile bootstrap, the same for the same steps.
    The middle of no steps is 0."""
    before, after = (float(middle(side)) if len(side) else 0.0 for side in (base, candidate))
    if not len(base) or not len(candidate):
        return Difference(before, after, 0.0, 0.0)
    generator = np.random.default_rng(_SEED)
    moved = _resampled(candidate, generator, middle) - _resampled(base, generator, middle)
    low, high = np.quantile(moved, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(before, after, float(low), float(high))


def _resampled(steps: Float64, generator: np.random.Generator, middle: _Middle) -> Float64:
    """Return the middles of resamples, shape (RESAMPLES,)."""
    at_once = max(1, _MOST_CELLS // len(steps))
    found = []
    for done in range(0, RESAMPLES, at_once):
        rows = min(at_once, RESAMPLES - done)
        found.append(middle(steps[generator.integers(0, len(steps), (rows, len(steps)))]))
    return np.concatenate(found)


Calls = dict[tuple[str, str], tuple[float, float]]
"""Calls, and their own time, per step and rank by path and operator."""

ROUNDING = 0.005  # counts per step of recordings with other numbers of steps differ by less than this


@dataclass(frozen=True)
class MoreCalls:
    """moved_ns: time per step, as in the base, of calls that the candidate makes more, or less, if negative.
    pace: how many times as long the calls that both make take in the candidate. operator, counts: what moved
    most, and how often a step of each side calls it."""

    moved_ns: float
    pace: float
    operator: str
    counts: tuple[float, float]

    @property
    def sentence(self) -> str:
        """What the counts show."""
        if not self.operator:
            return "Both sides call the same operators equally often."
        more = "more" if self.moved_ns > 0 else "less"
        base, candidate = (figures(count) for count in self.counts)
        return (
            f"A step of the candidate calls operators that take {time_ns(abs(self.moved_ns))} {more}: "
            f"{in_quotes(self.operator, 60)} {candidate} instead of {base} times."
        )


def more_calls(base: Side, candidate: Side) -> MoreCalls:
    """Compare how often the sides call each operator."""
    one, other = _calls(base), _calls(candidate)
    both = np.array([(*one[key], *other[key]) for key in one if key in other]).reshape(-1, 4)
    calls = np.sqrt(both[:, 0] * both[:, 2])
    times = [float(calls @ (both[:, at + 1] / np.maximum(both[:, at], 1e-9))) for at in (0, 2)]
    pace = times[1] / times[0] if min(times) > 0 else 1.0
    moved: dict[tuple[str, str], float] = {}
    for key in dict.fromkeys((*one, *other)):
        (before, before_ns), (after, after_ns) = one.get(key, (0.0, 0.0)), other.get(key, (0.0, 0.0))
        if abs(after - before) > ROUNDING * max(after, before):
            moved[key] = (after - before) * (before_ns + after_ns / pace) / (before + after)
    most = max(moved, key=lambda key: abs(moved[key]), default=("", ""))
    counts = one.get(most, (0.0, 0.0))[0], other.get(most, (0.0, 0.0))[0]
    return MoreCalls(sum(moved.values()), pace, most[1], counts)


def more_work(base: Side, candidate: Side) -> MoreCalls | None:
    """Return the work that one side does more on a CPU; None if that does not show which side is faster. What
    else the machine does changes no counts; the time without what equal calls take longer has to agree."""
    more, sides = more_calls(base, candidate), (base, candidate)
    if base.on_gpu or candidate.on_gpu or min(len(side.recordings) for side in sides) < 2:
        return None
    found_ns = candidate.mean_step_ns / more.pace - base.mean_step_ns
    pairs = (pair for side in sides for pair in pairwise(map(Side, side.recordings)))
    varies_ns = sum(abs(more_calls(*pair).moved_ns) for pair in pairs)
    least_ns = max(SAME_WITHIN * base.mean_step_ns, varies_ns / (1 - EXPLAINED))
    return more if more.moved_ns * found_ns > 0 and abs(more.moved_ns) >= least_ns else None


def _calls(side: Side) -> Calls:
    found: defaultdict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for digest in side.digests:
        table, factor = digest.operators, side.per_step(digest)
        columns = (
            *(texts(table, column) for column in ("path", "operator")),
            *(numbers(table, column).tolist() for column in ("count", "host_ns")),
        )
        for path, operator, count, host_ns in zip(*columns, strict=True):
            if operator:
                known = found[path, operator]
                found[path, operator] = known[0] + count * factor, known[1] + host_ns * factor
    return dict(found)


# Clocks and temperature change a GPU's speed by 1% to 2% from run to run. The steps of one run do not show
# this, so the interval does not include it. Of 27 real jobs on an H200 that were recorded twice, the ten that
# kept it busy for 95% of the time differed by less. Of the others, whose steps wait for the host, eight
# differed by 17% to 80%: there, what follows about CPUs holds, too.
SAME_WITHIN: Final = 0.02

# On a CPU, other processes and the scheduler do more. Of 58 real jobs of one process that were recorded
# twice, five differed by 30% to 47%, the others by less.
ONE_ON_CPU: Final = 0.50

# Ranks that share the cores of a host also wait for one another: of 21 such jobs, six differed by 47% to
# 67%.
RANKS_ON_CPU: Final = 1.0

# Under a load, the steps of one recording differ, and so do recordings: equal code by up to the ratio of
# these quantiles of the steps, times what recordings of a calm machine differ by. Of 30 real jobs beside busy
# processes, the medians of four differed by a factor of 1.4 to 12, and their steps by 2.4 to 18. Means differ
# by more: one step that lost its core for long decides.
SLOW_STEPS: Final = (0.1, 0.9)

ON_GPU: Final = ("computing", "copying", "communicating")
"""Parts of a step that last as long as the GPU and its links take."""

# Several recordings a side show the noise, the better the more there are. Student's t for 2, 3, … degrees of
# freedom, two-sided: equal code is told apart by chance in at most one of 100 comparisons.
STUDENT_T: Final = (9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355)

# Recordings on a calm machine scatter by this much. Where those at hand do not scatter by far more, that
# counts as one more degree of freedom: two a side that scatter by 1% then show a change of 10% in 95 of 100
# comparisons (without it, in 60), and equal code is told apart in at most two of 100, however it scatters.
CALM: Final = 0.01
STILL_CALM: Final = 0.02

# The machine was slower if equal operators took longer, all of those that take the middle half of the time:
# as many times as all did together. They have to be this much of all work and this many operators, and
# explain this much of the difference. No machine is slower than itself by more: then, operators do something
# else. A CPU with four other processes for two cores took up to five times as long.
MOST_OF_WORK: Final = 0.5
LEAST_OPERATORS: Final = 4
EXPLAINED: Final = 0.75
MOST_TIMES: Final = 2.0
MOST_TIMES_ON_CPU: Final = 10.0


Key = tuple[str, str, str]
"""Name, operator and shapes; or path, operator and calls per step."""

Rows = dict[Key, tuple[float, float]]
"""Count and time of each."""


@dataclass(frozen=True)
class Noise:
    """What is not a difference. least: a smaller share is none; of_means: the same of mean steps. why: as a
    clause, where the least is not that of a GPU's clocks. times: how many times as long equal operators with
    equal shapes take in the candidate; 1.0 if they do not differ, or if that cannot be told."""

    least: float
    of_means: float
    why: str
    times: float

    @property
    def of_savings(self) -> float:
        """How much measured savings, which are differences of means, may be off."""
        return self.of_means if np.isfinite(self.of_means) else self.least

    def explains(self, base: float, candidate: float) -> bool:
        """Return whether the machine was slower, or faster, by most of the difference."""
        if base <= 0 or candidate <= 0:
            return False
        machine, found = np.log(self.times), np.log(candidate / base)
        return bool(machine * found > 0 and abs(machine) >= EXPLAINED * abs(found))

    @property
    def machine(self) -> str:
        """What the operators show, as a clause."""
        return (
            f"equal operators took {figures(self.times)} times as long in the candidate: "
            "the machine differed, or its settings, such as threads and number formats"
        )


def noise_between(base: Side, candidate: Side) -> Noise:
    """Judge how much the sides differ without a change of the code."""
    both = (base, candidate)
    several = all(len(side.recordings) > 1 for side in both)
    times = 1.0 if several else _times(base, candidate)  # by turns, both sides meet the same changes
    if several:
        middles = (side.middles_ns[0] for side in both)
        spread = max(float(each.max() / max(1.0, each.min())) - 1 for each in middles)
        why = f"recordings of one side differ by {share(spread)}: record each side more often, by turns"
        medians, means = (_by_chance(*ns) for ns in zip(*(side.middles_ns for side in both), strict=True))
        return Noise(max(SAME_WITHIN, medians), max(SAME_WITHIN, means), why, times)
    if base.on_gpu or candidate.on_gpu:
        return _of_gpu_jobs(base, candidate, times)
    usual = RANKS_ON_CPU if len(base.recordings[0]) > 1 else ONE_ON_CPU
    slow = max(_slow_steps(side) for side in both) - 1
    differ = (
        f"on a CPU, steps of equal code differ by up to {share(usual)} from recording to recording"
        if slow <= usual
        else f"steps of one recording differ {figures(1 + slow)} times, as on a busy machine"
    )
    why = f"{differ}: record each side twice, into one directory"
    return Noise((1 + usual) * (1 + slow) - 1, np.inf, why, times)


def _of_gpu_jobs(base: Side, candidate: Side, times: float) -> Noise:
    # The share of a step that the host's speed decides on both sides: the GPU is idle. What only one side
    # waits for is a difference. A simulated host has no noise.
    of_base, of_candidate = base.part_ns, candidate.part_ns
    both_ns = sum(min(ns, of_candidate.get(part, 0.0)) for part, ns in of_base.items() if part not in ON_GPU)
    step_ns = min(base.mean_step_ns, candidate.mean_step_ns)
    simulated = base.first.about.simulated or candidate.first.about.simulated
    host = min(1.0, max(0.0, both_ns / step_ns)) if step_ns > 0 and not simulated else 0.0
    why = (
        f"the host decides {share(host)} of the step, and recordings of equal code differ by up to "
        f"{share(ONE_ON_CPU)} there: record each side twice, into one directory"
    )
    least = SAME_WITHIN + host * ONE_ON_CPU
    return Noise(least, least, why if host else "", times)


def _slow_steps(side: Side) -> float:
    """Return how many times as long as the fast steps of a side its slow steps take."""
    if not len(side.samples_ns):
        return 1.0
    low, high = np.quantile(side.samples_ns, SLOW_STEPS)
    return float(high / max(1.0, low))


def _by_chance(base_ns: Float64, candidate_ns: Float64) -> float:
    """Return by what share the sides may differ by chance: Student's t-test of the median or mean steps of
    their recordings, shape (recordings,)."""
    logs = [np.log(np.maximum(1.0, side_ns)) for side_ns in (base_ns, candidate_ns)]
    freedom = sum(len(each) - 1 for each in logs)
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in logs)
    if squares <= freedom * STILL_CALM**2:
        squares, freedom = squares + CALM**2, freedom + 1
    variance = squares / freedom
    error = np.sqrt(variance * sum(1 / len(each) for each in logs))
    return float(np.expm1(STUDENT_T[min(freedom - 2, len(STUDENT_T) - 1)] * error))


def _times(base: Side, candidate: Side) -> float:
    """Return how many times as long equal operators take, if they all take longer, or shorter."""
    if base.on_gpu or candidate.on_gpu:
        return _times_of(_by_operator(base), _by_operator(candidate), MOST_TIMES)
    found = _times_of(_by_operator(base), _by_operator(candidate), MOST_TIMES_ON_CPU)
    return found if found != 1.0 else _times_of(_by_count(base), _by_count(candidate), MOST_TIMES_ON_CPU)


def _times_of(one: Rows, other: Rows, most: float) -> float:
    """most: no machine is slower than itself by more."""
    shared = [key for key in one if key in other]
    if len({operator for _, operator, _ in shared}) < LEAST_OPERATORS:
        return 1.0
    if any(_time(rows, shared) < MOST_OF_WORK * _time(rows, rows) for rows in (one, other)):
        return 1.0
    weight = np.sqrt([one[key][1] * other[key][1] for key in shared])  # the same both ways round
    each = np.array([_mean(other[key]) / max(1e-9, _mean(one[key])) for key in shared])
    order = np.argsort(each)
    so_far = np.cumsum(weight[order])
    places = np.searchsorted(so_far, np.array([0.25, 0.5, 0.75]) * so_far[-1])
    low, _, high = each[order][places].tolist()
    own = np.array([np.sqrt(one[key][0] * other[key][0]) * _mean(one[key]) for key in shared])
    times = float(own @ each / max(1e-9, own.sum()))
    return times if (low > 1 or high < 1) and 1 / most <= times <= most else 1.0


def _time(rows: Rows, keys: Iterable[Key]) -> float:
    return sum(rows[key][1] for key in keys)


def _mean(counted: tuple[float, float]) -> float:
    return counted[1] / max(1e-9, counted[0])


def _by_count(side: Side) -> Rows:
    """Return count and own time of each operator, by its count: most compute nothing, whatever the shapes."""
    return {(*key, f"{spent[0]:.2f}"): spent for key, spent in _calls(side).items()}


def _by_operator(side: Side) -> Rows:
    """Return count and time of each kernel, or operator of a CPU, with its shapes."""
    found: Rows = {}
    for digest in side.digests:
        table = digest.kernels
        keys = zip(*(texts(table, column) for column in ("name", "operator", "shapes")), strict=True)
        rows = zip(keys, numbers(table, "count").tolist(), numbers(table, "time_ns").tolist(), strict=True)
        for key, count, took_ns in rows:
            if key[2]:
                known = found.get(key, (0.0, 0.0))
                found[key] = (known[0] + count, known[1] + took_ns)
    return found
