"""Finds when the steps of one rank get slower than they were: suddenly, or little by little."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from tb_gpudiag.arrays import Float64
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.jobs.history.change_points import change_points
from tb_gpudiag.trace.step_clocks.clock_state import COMPARED_BLOCKS

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

# Of false places where a drift began. A third of it is for trends, which name no place.
PLACE_SIGNIFICANCE: Final = 0.015

HELD_LOOKS: Final = 12
"""What does not begin at once is a drift if it holds for so many blocks."""

GROWN_SHARE: Final = 0.1
"""Growth that is too slow for a window: steps take this much longer than in the run's fastest minutes."""

GROWN_LEVEL: Final = 1
GROWN_BLOCKS: Final = 10

STEP, TOTAL, FIRST_PHASE, CORE = 0, 1, 2, -1
"""Columns of rows and blocks: number of the step, ms of the step, of each phase (NaN where it was not timed),
and what other processes took of it."""


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
        if now - was < least:
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
        if _with_core(now) < (1 + GROWN_SHARE * (1 + len(self._found))) * _with_core(fastest):
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
