"""Replay of a job: its step time if a rank took as long as its peers, or if transfers took as long as usual.

One rank alone never shows what a fix would save, because it waits for the others. Replayed together, ranks
arrive at each collective when their own work is done. A collective ends when the last rank has arrived and
the data is transferred. The slowdown by stragglers is defined in "Understanding Stragglers in Large Model
Training Using What-if Analysis" (OSDI'25).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from tb_gpudiag.arrays import NONE, Float64, Int64
from tb_gpudiag.errors import TraceError
from tb_gpudiag.facts.core.intervals import union
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.ranks.operations import row_groups
from tb_gpudiag.jobs.replay.job_work import JobWork, Pieces, cut, cut_host
from tb_gpudiag.jobs.replay.peers import SHARED, Peers, PeerTimes, peers_of
from tb_gpudiag.jobs.replay.schedule import Schedule, schedule

CELLS: Final = 4_000_000
"""Durations in memory at once. As many changes as fit are replayed together."""

TRANSFER: Final = "transfer"
"""What collectives do once all ranks have arrived."""

# Each rank takes a replay of its own, and fixing the tenth-worst rank saves little while others are slow.
MOST_MEMBERS: Final = 16

# Share of a step's operations that may start in the step before. Where more do, the steps have different
# numbers of operations: a job that reduces its gradients in every other step has 8 and 20 by turns.
MOST_EARLY: Final = 0.25

# 2.5% quantiles of 2,000 resamples rest on 50 of them.
RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
_SEED: Final = 20231


@dataclass(frozen=True)
class JobChange:
    """What is different in a replay.

    parts: names of the parts of the work that take as long as on the rank's peers: on those that do not
    change, or on all of them if all members change. None: all parts. members: whose parts, None for all
    members. transfers: whether transfers take the median of their kind and size. even: whether peers exchange
    equal amounts.
    """

    parts: frozenset[str] | None = frozenset()
    members: frozenset[int] | None = None
    transfers: bool = False
    even: bool = False


UNCHANGED: Final = JobChange()
WITHOUT_STRAGGLING: Final = JobChange(parts=None, transfers=True)
EVEN_WORK: Final = JobChange(parts=frozenset(SHARED), even=True)
"""Ranks that run the same program share their work evenly."""


class JobReplay:
    """A job that can be replayed with changes.

    Raises TraceError if there are no collectives, or if they wait for one another in a circle.
    """

    def __init__(self, work: JobWork) -> None:
        if not len(work):
            raise TraceError("the ranks have no collectives, so they wait for nobody")
        self._work = work
        peers = peers_of(work)
        self._pieces = cut(work, [some.rows for some in peers])
        alone = work.collective.max(initial=NONE) + 1 + np.arange(len(work))
        collective = np.where(work.collective == NONE, alone, work.collective)
        group = np.unique(collective, return_inverse=True)[1].astype(np.int64)
        self._schedule = _schedule(work, self._pieces, group)
        self._group = group
        # The time from the last arrival to each rank's end, shape (n,).
        _, last = _extremes(work.start_ns, group)
        self._transfer_ns = np.asarray(np.maximum(work.end_ns - last[group], 0), np.float64)
        self._usual_transfer_ns = _usual_transfers(work, group, self._transfer_ns)
        self._even = _even(work, group, peers)
        self._host = cut_host(work)
        self._peers = peers
        self._usual = [PeerTimes(work, pieces, peers) for pieces in (self._pieces, self._host)]

    def have_peers(self, members: frozenset[int]) -> bool:
        """Whether ranks other than these run the same programs, and so show how long that takes."""
        groups = [frozenset(some.members.tolist()) for some in self._peers]
        return members <= frozenset().union(*(group for group in groups if not group <= members))

    def step_ns(self, changes: Sequence[JobChange]) -> Float64:
        """Return the step times with each change, mean over ranks, shape (changes, k).

        A step is from the end of the last collective before it to the end of its own last one. If the ranks
        share only one, it is the whole window, with k = 1.
        """
        at_once = max(1, CELLS // self._schedule.count)
        parts = [changes[low : low + at_once] for low in range(0, len(changes), at_once)]
        return np.concatenate([self._replayed(some) for some in parts])

    @cached_property
    def recorded_step_ns(self) -> Float64:
        """Step times as recorded, shape (k,)."""
        pieces, work = self._pieces, self._work
        finish = np.zeros(len(pieces.member))
        finish[np.flatnonzero(np.diff(pieces.member, append=-1))] = work.finish_ns
        ends = np.concatenate([finish, work.called_ns, work.end_ns]) - work.begin_ns.min()
        return np.asarray(self._steps(ends[:, None])[0])

    @cached_property
    def error(self) -> float:
        """Share by which the mean step time differs in a replay without changes.

        If it is large, the model does not fit the job, and its replays cannot be trusted.
        """
        recorded_ns = float(self.recorded_step_ns.mean())
        if recorded_ns <= 0:  # only a damaged digest has steps of no time
            return math.inf
        return abs(float(self.step_ns([UNCHANGED]).mean()) / recorded_ns - 1)

    @cached_property
    def most_saved_ns(self) -> float:
        """Bound on what any change of a rank's work or of transfers saves, per step: while no rank waited for
        another, and no transfer took longer than usual, all were busy."""
        work = self._work
        marks = _marks(work)
        steps = max(1, marks.shape[1] - 1)
        ends = work.end_ns[marks].mean(axis=0) if marks.shape[1] > 1 else np.zeros(0)
        begin, end = (ends[0], ends[-1]) if len(ends) else (work.begin_ns.min(), work.finish_ns.max())
        first, last = _extremes(work.start_ns, self._group)
        waiting = union(
            np.clip(first, begin, end).astype(np.int64), np.clip(last, begin, end).astype(np.int64)
        )
        longer = np.zeros(len(first))
        np.maximum.at(longer, self._group, self._transfer_ns - self._usual_transfer_ns)
        inside = (last >= begin) & (last < end)
        return float((waiting.total + longer[inside].sum()) / steps)

    def _replayed(self, changes: Sequence[JobChange]) -> Float64:
        ends = self._schedule.ends(np.stack([self._durations(change) for change in changes], axis=1))
        return self._steps(ends)

    def _durations(self, change: JobChange) -> Float64:
        """Return the durations of pieces, calls and collectives, shape (s + 2n,)."""
        work = self._work
        spent, on_host = (
            self._spent(pieces, usual, change)
            for pieces, usual in zip((self._pieces, self._host), self._usual, strict=True)
        )
        called = np.empty(len(work))
        until = np.cumsum(on_host)
        first = np.searchsorted(self._host.member, self._host.member)
        called[self._host.ready] = until - (until[first] - on_host[first])
        begin = (work.begin_ns - work.begin_ns.min()).astype(np.float64)
        spent[np.flatnonzero(np.diff(self._pieces.member, prepend=-1))] += begin
        transfer = self._usual_transfer_ns if change.transfers else self._transfer_ns
        if change.even:
            transfer = transfer * self._even
        return np.concatenate([spent, called + begin[work.member], transfer])

    def _spent(self, pieces: Pieces, usual: PeerTimes, change: JobChange) -> Float64:
        """Return the durations of pieces, shape (s,)."""
        names = self._work.part_names
        chosen = [i for i, name in enumerate(names) if change.parts is None or name in change.parts]
        whose = np.ones(self._work.members, bool)
        if change.members is not None:
            whose = np.isin(np.arange(self._work.members), list(change.members))
        if not chosen:
            return np.asarray(pieces.ns.sum(axis=1))
        gained = (pieces.ns - usual.of(change.members))[:, chosen].sum(axis=1)
        return np.asarray(pieces.ns.sum(axis=1) - gained * whose[pieces.member])

    def _steps(self, ends: Float64) -> Float64:
        """Return step times, shape (c, k), from the ends of pieces, calls and collectives, (s + 2n, c)."""
        marks = _marks(self._work)
        if marks.shape[1] > 1:
            collectives = ends[len(ends) - len(self._work) :]
            return np.asarray(np.diff(collectives[marks], axis=1).mean(axis=0).T)
        last = np.flatnonzero(np.diff(self._pieces.member, append=-1))
        begin = self._work.begin_ns - self._work.begin_ns.min()
        return np.asarray((ends[last] - begin[:, None]).mean(axis=0)[:, None])


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
    least = max(1.0, float(unchanged.mean()) - replay.most_saved_ns)
    gains = [float(unchanged.mean() / max(steps.mean(), least)) for steps in [ideal, *fixed]]
    s, most = gains.pop(0), float(unchanged.mean()) / least
    low, high = (min(bound, most) for bound in _interval(unchanged, ideal))
    return JobSlowdown(
        s,
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


def _schedule(work: JobWork, pieces: Pieces, group: Int64) -> Schedule:
    """Order the pieces, the calls of collectives, and the collectives themselves."""
    calls = len(pieces.member)
    count = calls + len(work)
    following = np.flatnonzero(np.diff(pieces.member) == 0)
    ready, waits = np.flatnonzero(pieces.ready != NONE), np.flatnonzero(pieces.waits != NONE)
    lane = np.lexsort((work.start_ns, work.stream, work.member))
    same = (np.diff(work.member[lane]) == 0) & (np.diff(work.stream[lane]) == 0)
    same &= work.end_ns[lane[:-1]] <= work.start_ns[lane[1:]]
    every = np.arange(len(work))
    before = (following, ready, count + pieces.waits[waits], count + lane[:-1][same], calls + every)
    after = (following + 1, count + pieces.ready[ready], waits + 1, count + lane[1:][same], count + every)
    groups = np.concatenate([np.arange(count), count + group])
    return schedule(groups, np.concatenate(before), np.concatenate(after))


def _extremes(value: Int64, group: Int64) -> tuple[Int64, Int64]:
    """Return the lowest and the highest value of each group, shape (groups,) each."""
    count = int(group.max(initial=-1)) + 1
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, group, value)
    np.maximum.at(high, group, value)
    return low, high


def _even(work: JobWork, group: Int64, peers: list[Peers]) -> Float64:
    """Return how long transfers take if peers exchange equal amounts, as a share of the time now, shape (n,).

    The rank with the largest amount determines how long a transfer takes.
    """
    even = work.bytes.astype(np.float64)
    for some in peers:
        even[some.rows] = even[some.rows].mean(axis=0)
    most = np.zeros((2, int(group.max(initial=-1)) + 1))
    for found, amount in zip(most, (even, work.bytes), strict=True):
        np.maximum.at(found, group, amount)
    share = np.divide(most[0], most[1], out=np.ones_like(most[0]), where=most[1] > 0)
    return np.asarray(np.minimum(1.0, share[group]))


def _usual_transfers(work: JobWork, group: Int64, transfer_ns: Float64) -> Float64:
    """Return the median transfer of the same kind, size, number of ranks and number of hosts, shape (n,).

    Where sizes are not known, the same place in the step stands for the same size."""
    first, _ = row_groups(group, work.host[work.member])
    hosts = np.bincount(group[first])
    # The place of each operation among those of its member and step, shape (n,).
    every = np.arange(len(work))
    new = (np.diff(work.member, prepend=NONE) != 0) | (np.diff(work.step, prepend=NONE) != 0)
    _, number = row_groups(
        work.kind,
        work.bytes,
        np.where(
            work.bytes > 0, NONE, np.asarray(every - np.maximum.accumulate(np.where(new, every, 0)), np.int64)
        ),
        np.bincount(group)[group],
        hosts[group],
    )
    return _medians(transfer_ns, number)[number]


def _medians(values: Float64, number: Int64) -> Float64:
    """Return the median of the values of each number, numbers from 0 on."""
    order = np.lexsort((values, number))
    counts = np.bincount(number)
    first = np.cumsum(counts) - counts
    ordered = values[order]
    return np.asarray((ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) / 2)


def _marks(work: JobWork) -> Int64:
    """Find the last collective of each step that all members have, shape (members, steps)."""
    steps = int(work.step.max(initial=-1)) + 1
    inside = np.flatnonzero(work.step != NONE)
    counts = np.bincount(work.member[inside], minlength=work.members)
    if steps and len(inside) == len(work) and not (counts % steps).any():
        # A receive that is posted early starts in the step before its own.
        by_step = np.zeros((work.members, steps), np.int64)
        np.add.at(by_step, (work.member, work.step), 1)
        until = np.outer(counts // steps, np.arange(1, steps + 1))
        if (np.abs(np.cumsum(by_step, axis=1) - until) <= MOST_EARLY * until[:, :1]).all():
            return (np.cumsum(counts) - counts)[:, None] + until - 1
    last = np.full((work.members, steps), NONE)
    last[work.member[inside], work.step[inside]] = inside  # rows are in order: the last one stays
    return last[:, (last != NONE).all(axis=0)]
