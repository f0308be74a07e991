"""Which steps are slow: a rank's that get slower than they were, and those of ranks later than the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Float64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.history.change_points import change_points
from tb_gpudiag.report.building.clock_words import most_of, ms_text, why_longer
from tb_gpudiag.trace.step_clocks.clock_state import COMPARED_BLOCKS, RankSteps
from tb_gpudiag.vocabulary.written import CORE, STEP, TOTAL, WAIT

# Blocks of long steps have so many.
BLOCK_STEPS: Final = 16

RECENT: Final = 5
"""The newest blocks. Their median stands two that have a checkpoint or an evaluation in them."""

# A block of a level is the median of four of the level below. With blocks of 10 s, windows are 4 minutes, 16,
# 64: a machine whose steps vary by 3% in the course of a day changes by less than 1% in an hour.
LEVELS: Final = 3
MERGED: Final = 4

LEAST_SHARE: Final = 0.03
"""Steps that are slower by less are not worth a recording."""

# Where steps drift again and again, that is how this job is: each drift of the last day adds LEAST_SHARE.
DAY_BLOCKS: Final = 8_640

# The median of five blocks differs from that of twelve by 0.65 standard deviations of a block. So this is
# five times that: by chance, once in a million looks.
LEAST_NOISE: Final = 3.25

HELD_LOOKS: Final = 12
"""What does not begin at once is a drift if it holds for so many blocks."""

GROWN_SHARE: Final = 0.1
"""Growth that is too slow for a window: steps take this much longer than in the run's fastest minutes."""

GROWN_LEVEL: Final = 1
GROWN_BLOCKS: Final = 10


@dataclass(frozen=True, eq=False)
class StepDrift:
    """Steps take longer than before, beside what other processes take of them.

    since: the first step of the block with which it began; if gradual, of those that it is compared with.
    before, after: medians of blocks, in ms: the step and its phases.
    """

    since: int
    gradual: bool
    before: Float64
    after: Float64

    @property
    def longer_ms(self) -> Float64:
        """By how much, shape (1 + phases,)."""
        return self.after - self.before


def means(rows: Float64) -> Float64:
    """Return the mean of steps, shape (…, n, columns), over those that were timed; NaN without one."""
    timed = ~np.isnan(rows)
    with np.errstate(invalid="ignore"):
        return np.where(timed, rows, 0.0).sum(axis=-2) / timed.sum(axis=-2)


class StepDrifts:
    """Takes steps, and keeps means of blocks of them: a few thousand numbers, however long the run.
    block_s: how long the steps of a block take at least."""

    def __init__(self, block_s: float) -> None:
        self._block_s = block_s
        self._rows: Float64 | None = None  # after the last block
        self._found: deque[int] = deque()  # blocks with which drifts were found
        self.recent: deque[Float64] = deque(maxlen=RECENT)
        """The newest blocks, shape (2 + phases,)."""
        self.blocks = 0
        self._start()

    def _start(self) -> None:
        self._levels: list[deque[Float64]] = [deque(maxlen=COMPARED_BLOCKS) for _ in range(LEVELS)]
        self._unmerged: list[list[Float64]] = [[] for _ in range(LEVELS)]
        self._held = [0] * LEVELS
        self._fastest: Float64 | None = None

    def add(self, rows: Float64) -> StepDrift | None:
        """Add steps, shape (n, 2 + phases), in order. Return the last drift that shows with them.

        After a drift, steps are compared with those after it.
        """
        found = None
        rows = rows if self._rows is None else np.concatenate([self._rows, rows])
        while True:
            sums_s = rows[:, TOTAL].cumsum() / 1e3
            size = max(int(np.searchsorted(sums_s, self._block_s)) + 1, BLOCK_STEPS)
            if size > len(rows):
                self._rows = rows
                return found
            block = means(rows[:size])
            block[STEP] = rows[0, STEP]
            if self.recent:
                block = np.where(np.isnan(block), self.recent[-1], block)
            found = self._add_block(np.nan_to_num(block)) or found
            rows = rows[size:]

    def _add_block(self, block: Float64) -> StepDrift | None:
        self.recent.append(block)
        self.blocks += 1
        while self._found and self.blocks - self._found[0] > DAY_BLOCKS:
            self._found.popleft()
        for level in self._push(block):
            drift = self._drift_in(level) or (self._grown() if level == GROWN_LEVEL else None)
            if drift is not None:
                self._found.append(self.blocks)
                self._start()
                return drift
        return None

    def _push(self, block: Float64) -> Iterator[int]:
        """Add a block to the levels. Yield those that got one."""
        for level, (blocks, unmerged) in enumerate(zip(self._levels, self._unmerged, strict=True)):
            blocks.append(block)
            yield level
            unmerged.append(block)
            if len(unmerged) < MERGED:
                return
            first = unmerged[0][STEP]
            block = np.median(unmerged, axis=0)
            block[STEP] = first
            unmerged.clear()

    def _drift_in(self, level: int) -> StepDrift | None:
        """Compare the newest blocks of a level with the first half of them."""
        if len(self._levels[level]) < COMPARED_BLOCKS:
            return None
        blocks = np.array(self._levels[level])
        before, after = np.median(blocks[: COMPARED_BLOCKS // 2], axis=0), np.median(blocks[-RECENT:], axis=0)
        times = _with_core(blocks)
        was, now = np.median(times[: COMPARED_BLOCKS // 2]), np.median(times[-RECENT:])
        least = max(LEAST_SHARE * (1 + len(self._found)) * was, LEAST_NOISE * _noise(times))
        # Steps that take no longer are none, however much less they had to wait for a core.
        if min(now - was, after[TOTAL] - before[TOTAL]) < least:
            self._held[level] = 0
            return None
        self._held[level] += 1
        if self._held[level] < HELD_LOOKS:
            return _sudden(blocks, least)
        return StepDrift(int(blocks[0][STEP]), True, before[TOTAL:], after[TOTAL:])

    def _grown(self) -> StepDrift | None:
        """Compare the newest blocks with the fastest ones of the run."""
        newest = list(self._levels[GROWN_LEVEL])[-GROWN_BLOCKS:]
        if len(newest) < GROWN_BLOCKS:
            return None
        now = np.median(newest, axis=0)
        if self._fastest is None or _with_core(now) < _with_core(self._fastest):
            self._fastest = now
        fastest = self._fastest
        grown = min(_with_core(now) / _with_core(fastest), now[TOTAL] / fastest[TOTAL])
        if grown < 1 + GROWN_SHARE * (1 + len(self._found)):
            return None
        return StepDrift(int(fastest[STEP]), True, fastest[TOTAL:], now[TOTAL:])


def _sudden(blocks: Float64, least: float) -> StepDrift | None:
    """Return the drift that began with one of these blocks; None if it began little by little."""
    times = _with_core(blocks)
    for place in (change.point for change in change_points(times, least, 0.015) if not change.gradual):
        before, after = np.median(blocks[:place], axis=0), np.median(blocks[place:], axis=0)
        if np.median(times[place:]) > np.median(times[:place]) and len(blocks) - place >= RECENT:
            return StepDrift(int(blocks[place][STEP]), False, before[TOTAL:], after[TOTAL:])
    return None


def _with_core(blocks: Float64) -> Float64:
    """Return the ms of steps for which they had a core, or waited for something else."""
    return blocks[..., TOTAL] - blocks[..., CORE]


def _noise(values: Float64) -> float:
    """Return the standard deviation from one block to the next, which a trend does not widen."""
    differences = np.diff(values)
    return 1.4826 * float(np.median(np.abs(differences - np.median(differences)))) / float(np.sqrt(2))


LATE_SHARE: Final = 0.1
"""A rank is late if its own part of a step, without waiting, is longer than that of the median rank by this
share of a step. Ranks of healthy jobs on one busy machine differ by less for long."""

LATE_BLOCKS: Final = 4
"""For so many blocks in a row: chance, a checkpoint or an evaluation makes a rank late once."""

# Beside other processes, the same work takes more time even while it has a core: caches are shared, and cores
# have two threads.
BUSY_SHARE: Final = 0.25

# A rank that only waits longer has no reason of its own. What the other ranks have not found within a window
# of blocks, they find no more.
PATIENT_LOOKS: Final = COMPARED_BLOCKS

MOST_A_DAY: Final = 4
"""Recordings of a clock. Each slows a few steps down, and takes some megabytes."""

AFTER_S: Final = 600.0
"""After one, what other ranks say is likely to be about the same thing, unless it costs much more."""

# A busy machine that slowed steps a little must not hide what comes after it.
MUCH_MORE: Final = 2.0

_DAY_S: Final = 86_400.0


@dataclass(frozen=True)
class RecordingOrder:
    """These ranks record. since: the step at which it began. longer_ms: what it costs a step."""

    ranks: Sequence[int]
    why: str
    since: int
    longer_ms: float


class RankWatch:
    """Looks at all ranks again and again."""

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}  # drifts by rank that are settled
        self._looks = 0  # since the first drift that is not
        self._times = self._block = 0  # blocks in a row for which a rank is late, and the last of them
        self._latest: RankSteps  # as it was with the first of them
        self._known_ms: dict[int, float] = {}  # lateness of ranks that were named
        self._orders: deque[tuple[float, RecordingOrder]] = deque(maxlen=MOST_A_DAY)

    def look(self, ranks: Sequence[RankSteps], now_s: float) -> RecordingOrder | None:
        """Return what is to be recorded now. ranks: at least this one; those that were heard of lately."""
        order = self._late(ranks) or self._drifted(ranks)
        if order is None:
            return None
        self._settle(ranks)
        if self._orders:
            last_s, last = self._orders[-1]
            if now_s - last_s < AFTER_S and order.longer_ms < MUCH_MORE * last.longer_ms:
                return None
            if len(self._orders) == MOST_A_DAY and now_s - self._orders[0][0] < _DAY_S:
                return None
        self._orders.append((now_s, order))
        return order

    def _settle(self, ranks: Sequence[RankSteps]) -> None:
        self._heard = {rank.rank: rank.drifts for rank in ranks}
        self._looks = 0

    def _late(self, ranks: Sequence[RankSteps]) -> RecordingOrder | None:
        """Return an order if one rank is late for long enough."""
        late = _Lateness.among(ranks)
        least_ms = late.least_ms + self._known_ms.get(late.rank.rank, 0.0) if late is not None else 0.0
        if late is None or late.sure_ms < least_ms or late.is_of_others:
            self._times = 0
            return None
        if not self._times or self._latest.rank != late.rank.rank:
            self._times, self._latest, self._block = 1, late.rank, late.rank.blocks
        elif late.rank.blocks > self._block:
            self._times, self._block = self._times + 1, late.rank.blocks
        return self._named(late, self._latest.step, ranks) if self._times >= LATE_BLOCKS else None

    def _named(self, late: _Lateness, since: int, ranks: Sequence[RankSteps]) -> RecordingOrder:
        self._times = 0
        self._known_ms[late.rank.rank] = late.sure_ms
        why = (
            f"rank {late.rank.rank} of {len(ranks)} is late since about step {since}: its part of a step "
            f"takes {ms_text(late.ms)} longer than that of the others{most_of(late.ms, late.of_phases_ms)}"
        )
        return RecordingOrder(_with_an_ordinary_one(late.rank, ranks), why, since, late.ms)

    def _drifted(self, ranks: Sequence[RankSteps]) -> RecordingOrder | None:
        """Return an order if the steps of a rank take longer, and no other process is to blame."""
        new = [rank for rank in ranks if rank.drifts > self._heard.get(rank.rank, 0)]
        if not new:
            return None
        self._looks += 1
        slowest = max(new, key=lambda rank: (not rank.only_waits, rank.own_longer_ms))
        longer_ms = slowest.longer_ms[0]
        if slowest.only_waits:
            late = _Lateness.among(ranks)
            if (
                late is not None
                and not late.is_of_others
                and late.sure_ms >= max(late.least_ms, longer_ms / 2)
            ):
                return self._named(late, slowest.since, ranks)
            if len(new) < len(ranks):
                if self._looks >= PATIENT_LOOKS:
                    self._settle(ranks)
                return None
        elif _is_of_others(slowest, slowest.own_longer_ms, slowest.longer_ms[-1]):
            self._settle(ranks)
            return None
        return RecordingOrder(
            _with_an_ordinary_one(slowest, ranks), why_longer(slowest, len(ranks)), slowest.since, longer_ms
        )


@dataclass(frozen=True)
class _Lateness:
    """By how much the part of the latest rank is longer than that of the median of the others.

    own_ms: without what it waits longer for a core, which ms has.
    """

    rank: RankSteps
    own_ms: float
    ms: float
    is_of_others: bool  # other processes keep it from its core
    of_phases_ms: Sequence[float]

    @property
    def sure_ms(self) -> float:
        """A rank that computes longer, and waits so much less for a core, is not late."""
        return min(self.own_ms, self.ms)

    @property
    def least_ms(self) -> float:
        return LATE_SHARE * self.rank.step_ms

    @classmethod
    def among(cls, ranks: Sequence[RankSteps]) -> _Lateness | None:
        """Return None without others."""
        latest = max(ranks, key=lambda rank: rank.own_ms)
        others = [rank for rank in ranks if rank is not latest]
        if not others:
            return None
        own_ms = latest.own_ms - median([rank.own_ms for rank in others])
        core_ms = latest.core_ms - median([rank.core_ms for rank in others])
        longer_ms = [
            own - median([rank.phases_ms[phase] for rank in others])
            for phase, own in enumerate(latest.phases_ms)
        ]
        longer_ms[WAIT] = 0.0  # those that wait for it wait longer
        return cls(latest, own_ms, own_ms + core_ms, _is_of_others(latest, own_ms, core_ms), longer_ms)


def _is_of_others(rank: RankSteps, own_ms: float, core_ms: float) -> bool:
    """Return whether other processes, which have the cores, are the reason: a recording knows nothing of
    them. More work of its own waits longer for a core, too. own_ms, core_ms: by which its step is longer."""
    return core_ms >= own_ms and own_ms < BUSY_SHARE * (rank.step_ms - rank.core_ms)


def _with_an_ordinary_one(slowest: RankSteps, ranks: Sequence[RankSteps]) -> list[int]:
    """Return the ranks that are to record: the slowest, and rank 0, which diagnoses ranks together. If it is
    rank 0, the one closest to the median."""
    if len(ranks) == 1:
        return [slowest.rank]
    others = [rank for rank in ranks if rank is not slowest]
    middle_ms = median([rank.own_ms for rank in others])
    ordinary = min(others, key=lambda rank: (rank.rank != 0, abs(rank.own_ms - middle_ms)))
    return sorted((slowest.rank, ordinary.rank))
